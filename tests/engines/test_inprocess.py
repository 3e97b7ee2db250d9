"""Limits, parity and the boundary of the in-process engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fedsage.config import load_config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.models.parameters import sha256_of
from fedsage.protocol.changes.follow import News, Turn
from fedsage.protocol.changes.state import FIXED, ROOTS, Change
from fedsage.protocol.messages import Ask, Classifier, ClassifierUpdate, Hits
from fedsage.protocol.wire import Message, encode
from fedsage.runs.setup import Setup
from tests.small import (
    HOWS,
    SMALL,
    exchange_on,
    owners_of,
    small_setup,
    traffic_of,
    trained,
)

if TYPE_CHECKING:
    from tests.fixtures import Train


def changed(graph: Graph, owners: Partition, how: str = "full", **classifier: object) -> Setup:
    chosen = SMALL["classifier"] | classifier
    return small_setup(graph, owners, classifier=chosen, traffic=traffic_of(how))


@pytest.mark.slow
def test_the_result_does_not_depend_on_how_many_owners_run_at_a_time(train: Train) -> None:
    hashes = {train(run={"workers": workers}).record.model_sha256 for workers in (1, 2, 3, 8)}
    assert len(hashes) == 1


@pytest.mark.slow
def test_the_same_run_gives_the_same_model_and_another_seed_another(train: Train) -> None:
    first, again, other = train(), train(), train(seed=1)
    assert first.record.model_sha256 == again.record.model_sha256
    assert first.record.model_sha256 != other.record.model_sha256


@pytest.mark.slow
def test_one_owner_who_holds_the_whole_graph_is_globsage(graph: Graph) -> None:
    """By full messages, which lose nothing on the way, and at one learning rate for all."""
    from fedsage.graph.partition import partition
    from fedsage.runs.events import Stopwatch
    from fedsage.runs.execute import execute

    alone = partition(graph, 1, "random", 0)
    results = []
    for method in ("fedsage", "globsage", "locsage"):
        more = {"traffic": {"how": "full"}, "classifier": {"eta": 3e-3}}
        config = load_config(SMALL, {"run": {"method": method}}, more)
        results.append(execute(config, alone, graph, Stopwatch()))
    assert len({result.record.model_sha256 for result in results}) == 1
    assert len({result.accuracy["global"] for result in results}) == 1


@pytest.mark.parametrize("how", HOWS)
def test_bytes_reported_are_bytes_serialized(graph: Graph, owners: Partition, how: str) -> None:
    setup = small_setup(graph, owners, traffic=traffic_of(how))
    sent: list[tuple[int, Message]] = []
    engine = InProcessEngine(
        owners_of(setup), on_message=lambda i, message: sent.append((i, message))
    )
    trained(setup, exchange_on(setup, engine), 2)
    goes_up = ClassifierUpdate | Change | Hits
    up = sum(len(encode(m)) for _, m in sent if isinstance(m, goes_up))
    goes_down = Classifier | News | Turn | Ask
    down = sum(len(encode(m)) for _, m in sent if isinstance(m, goes_down))
    counted = list(engine.traffic.values())
    assert sum(t.up for t in counted) == up
    assert sum(t.down for t in counted) == down


@pytest.mark.parametrize("moments", ["own", "reset", "averaged"])
def test_moments_cross_only_if_they_are_averaged(
    graph: Graph, owners: Partition, moments: str
) -> None:
    chosen = changed(graph, owners, moments=moments)
    sent: list[Message] = []
    engine = InProcessEngine(owners_of(chosen), on_message=lambda i, m: sent.append(m))
    trained(chosen, exchange_on(chosen, engine), 2)
    updates = [m for m in sent if isinstance(m, ClassifierUpdate)]
    assert len(updates) == 6
    assert all(bool(m.moments) == (moments == "averaged") for m in updates)


@pytest.mark.parametrize("moments", ["own", "reset", "averaged"])
def test_so_do_their_roots_in_whole_numbers(
    graph: Graph, owners: Partition, moments: str
) -> None:
    chosen = changed(graph, owners, "low-rank", moments=moments)
    sent: list[Message] = []
    engine = InProcessEngine(owners_of(chosen), on_message=lambda i, m: sent.append(m))
    trained(chosen, exchange_on(chosen, engine), 2)
    changes = [m for m in sent if isinstance(m, Change)]
    assert len(changes) == 6
    assert all((ROOTS in m.parts) == (moments == "averaged") for m in changes)
    news = [m for m in sent if isinstance(m, News)]
    assert not any(m.memory for m in news)  # that is for who was away


@pytest.mark.slow
def test_the_three_ways_of_keeping_moments_are_three_ways(train: Train) -> None:
    hashes = {
        train(classifier={"moments": way, "selection": "last"}).record.model_sha256
        for way in ("own", "reset", "averaged")
    }
    assert len(hashes) == 3


def test_without_weighting_the_number_of_training_nodes_stays_home(
    graph: Graph, owners: Partition
) -> None:
    for weighting, seen in (("owners", {1.0}), ("nodes", {12.0})):
        chosen = changed(graph, owners, weighting=weighting)
        weights = {owner.local_update_c(Ask(0)).weight for owner in owners_of(chosen)}
        assert weights == seen
        chosen = changed(graph, owners, "low-rank", weighting=weighting)
        sent: list[Message] = []
        engine = InProcessEngine(
            owners_of(chosen), on_message=lambda i, m, to=sent: to.append(m)
        )
        trained(chosen, exchange_on(chosen, engine), 1)
        changes = [m for m in sent if isinstance(m, Change)]
        assert {m.weight / 2**FIXED for m in changes} == seen


@pytest.mark.parametrize("how", HOWS)
def test_owners_share_no_tensor_with_the_server_or_each_other(
    graph: Graph, owners: Partition, how: str
) -> None:
    setup = small_setup(graph, owners, traffic=traffic_of(how))
    everyone = owners_of(setup)
    before = sha256_of(setup.plan.phi.phi)
    outcome = trained(setup, exchange_on(setup, InProcessEngine(everyone)), 1)
    assert sha256_of(setup.plan.phi.phi) == before
    storages = [
        {weight.data_ptr() for weight in owner.model.parameters()} for owner in everyone
    ]
    storages.append({weight.data_ptr() for weight in outcome.classifier.phi.values()})
    for i, one in enumerate(storages):
        assert all(one.isdisjoint(other) for other in storages[:i])
