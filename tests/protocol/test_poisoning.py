"""What a hostile owner sends to spoil a run, and how it is found out, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
import torch

from fedsage.audit.attacks.poisoning import Poison
from fedsage.config import load_config
from fedsage.data.load import load
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, partition
from fedsage.models.parameters import sha256_of
from fedsage.protocol import guard
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.guard import momentum_of, norm_of, room_of, too_large
from fedsage.protocol.messages import ClassifierUpdate, Hits
from fedsage.runs.setup import Setup, data_owners, prepare
from tests.protocol.test_guard import Alter, Faulty, agreed
from tests.small import HOWS, exchange_on, owners_of, trained

SetUp = Callable[..., Setup]


@pytest.fixture
def set_up(graph: Graph, owners: Partition) -> SetUp:
    return partial(agreed, graph, owners)


def moments_with(kind: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Alter:
    """An update of which one kind of moments is altered."""

    def alter(update: ClassifierUpdate) -> ClassifierUpdate:
        found = {n: change(m) if n.endswith(kind) else m for n, m in update.moments.items()}
        return dataclasses.replace(update, moments=found)

    return alter


IMPOSSIBLE: dict[str, tuple[Alter, str]] = {
    "second moments below zero": (moments_with(".exp_avg_sq", lambda m: -m - 1e-9), "below"),
    "steps below zero": (moments_with(".step", lambda m: -m), "below zero"),
    "first moments beyond all others'": (moments_with(".exp_avg", lambda m: m * 1e4), "usual"),
    "first moments that push back": (moments_with(".exp_avg", lambda m: m * -10), "momentum"),
    "second moments beyond all others'": (
        moments_with(".exp_avg_sq", lambda m: m * 1e8), "usual"),
}  # fmt: skip


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_moments_that_no_optimizer_has_are_refused_and_the_owner_is_named(
    case: str, set_up: SetUp
) -> None:
    alter, why = IMPOSSIBLE[case]
    setup = set_up("none", "full")
    exchange = exchange_on(setup, Faulty(owners_of(setup), ClassifierUpdate, alter))
    outcome = trained(setup, exchange, 3)
    assert exchange.misses
    assert all(miss.owner == 2 and why in miss.why for miss in exchange.misses)
    assert all(bool(torch.isfinite(weight).all()) for weight in outcome.classifier.phi.values())
    strict = exchange_on(setup, Faulty(owners_of(setup), ClassifierUpdate, alter, least=3))
    with pytest.raises(ProtocolError, match=rf"Owner 2: .*{why}"):
        trained(setup, strict, 3)


@pytest.mark.parametrize("how", HOWS)
def test_hits_of_more_nodes_than_there_are_do_not_choose_the_round(
    how: str, set_up: SetUp
) -> None:
    setup = set_up("none", how)
    alter: Alter = lambda hits: Hits(10**6, 10**6, 10**6, 10**6)  # noqa: E731
    exchange = exchange_on(setup, Faulty(owners_of(setup), Hits, alter))
    trained(setup, exchange, 2)
    assert all("hits of 1000000 nodes, but it has 20" in m.why for m in exchange.misses)
    assert exchange.misses


@pytest.mark.parametrize("how", HOWS)
def test_hits_are_of_the_same_nodes_in_every_round(how: str, set_up: SetUp) -> None:
    setup = set_up("none", how)
    seen: list[Hits] = []

    def alter(hits: Hits) -> Hits:
        seen.append(hits)
        grows = dataclasses.replace(hits, total=hits.total + 1)
        return hits if len(seen) < 3 else grows

    exchange = exchange_on(setup, Faulty(owners_of(setup), Hits, alter))
    trained(setup, exchange, 3)
    assert any("nodes, not of" in miss.why for miss in exchange.misses)


def poisoned(setup: Setup, bad: int, factor: float, least: int) -> Exchange:
    """A run in which one owner multiplies its updates at its own door."""
    (owners,) = data_owners(setup)
    link = Poison(factor, owners[bad])
    engine = InProcessEngine(owners, links=lambda i: [link] if i == bad else [])
    engine.min_owners = least
    return Exchange(engine, setup.plan)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_an_update_thirty_times_back_is_refused_in_every_round(
    how: str, set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = set_up("none", how)
    exchange = poisoned(setup, 2, -30.0, least=2)
    outcome = trained(setup, exchange, 3)
    assert [(miss.owner, miss.why[:9]) for miss in exchange.misses] == [(2, "an update")] * 3
    kind = exchange.plan.asks["local_update_c" if how == "full" else "local_change_c"].reply
    gone = trained(setup, exchange_on(setup, Faulty(owners_of(setup), kind, None)), 3)
    assert sha256_of(outcome.classifier.phi) == sha256_of(gone.classifier.phi)
    with pytest.raises(ProtocolError, match="Owner 2: an update of size"):
        trained(setup, poisoned(setup, 2, -30.0, least=3), 3)
    for limit in ("TOO_LARGE", "TOO_LARGE_BACK", "TOO_LARGE_BESIDES"):
        monkeypatch.setattr(guard, limit, 100.0)
    spoilt = poisoned(setup, 2, -30.0, least=3)
    trained(setup, spoilt, 3)  # what it was before
    assert not spoilt.misses


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_one_of_five_owners_does_not_spoil_the_classifier_of_the_others(how: str) -> None:
    """Cora, 20 rounds: over the honest owners' validation nodes within 2 points of clean."""
    graph = load("cora")
    config = load_config(
        {"data": {"owners": 5}, "run": {"seed": 100}},
        {"classifier": {"rounds_c": 20}, "traffic": {"how": how}},
    )
    setup = prepare(config, partition(graph, 5, "louvain", 100), graph)

    def validation(factor: float) -> float:
        exchange = poisoned(setup, 4, factor, least=4)
        view = trained(setup, exchange, 20).view
        assert len(exchange.misses) == (0 if factor == 1 else 20)
        everyone = exchange.engine.data_owners  # type: ignore[attr-defined]
        owners = [everyone[i] for i in range(4)]
        found = [owner.hits(owner.split.val) for owner in owners]
        return sum(getattr(one, view) for one in found) / sum(one.total for one in found)

    assert validation(-30.0) > validation(1.0) - 0.02


def test_larger_gradients_have_no_larger_momentum() -> None:
    """An honest owner that has much to learn is not taken for a hostile one."""
    drawn = torch.Generator().manual_seed(7)
    moments = {
        "w.exp_avg": torch.randn(50, generator=drawn),
        "w.exp_avg_sq": torch.rand(50, generator=drawn) + 0.1,
    }
    larger = {
        "w.exp_avg": moments["w.exp_avg"] * 23,
        "w.exp_avg_sq": moments["w.exp_avg_sq"] * 529,
    }
    usual = norm_of(momentum_of(moments))
    assert norm_of(momentum_of(larger)) == pytest.approx(usual, rel=1e-5)
    false = moments | {"w.exp_avg": -5 * moments["w.exp_avg"]}
    assert norm_of(momentum_of(false)) == pytest.approx(5 * usual)


def test_momentum_the_others_way_may_be_five_times_as_large(set_up: SetUp) -> None:
    """So large it was at an honest owner of PubMed, with the rival ``fedgcn``."""
    setup = set_up("none", "full")
    alter = moments_with(".exp_avg", lambda m: m * 5)
    exchange = exchange_on(setup, Faulty(owners_of(setup), ClassifierUpdate, alter))
    trained(setup, exchange, 3)
    assert not exchange.misses
    alter = moments_with(".exp_avg", lambda m: m * 40)
    exchange = exchange_on(setup, Faulty(owners_of(setup), ClassifierUpdate, alter))
    trained(setup, exchange, 3)
    assert {(miss.owner, miss.why[:8]) for miss in exchange.misses} == {(2, "momentum")}


def test_who_has_more_nodes_may_go_further() -> None:
    assert room_of({0: 100, 1: 100, 2: 1000}) == {0: 1.0, 1: 1.0, 2: 10.0}
    assert too_large({0: 1.0, 1: 1.1, 2: 3.4}, 1.0, guard.UPDATE).keys() == {2}
    assert not too_large({0: 1.0, 1: 1.1, 2: 3.4}, 1.0, "second moments")
    assert too_large({0: 1.0, 1: 1.1, 2: 7.5}, 1.0, guard.BACK, spare=0).keys() == {2}
    assert too_large({0: 1.0, 1: 11.0}, 1.0, guard.UPDATE).keys() == {1}
