"""Procedures B and F by changes: all hold the same φ, and faults cost nothing but a round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedsage.config import load_config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.models.parameters import parameters_of, sha256_of
from fedsage.protocol.changes.follow import Turn, follower
from fedsage.protocol.changes.owner import local_change_c, receive_change, strange_change
from fedsage.protocol.changes.server import ByChanges, ruled
from fedsage.protocol.changes.state import FIXED, Change, packed, unpacked
from fedsage.protocol.changes.step import changes_in, next_state
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.plan import Miss
from fedsage.protocol.server import RULES, average, median
from fedsage.runs.execute import run_config
from tests.small import SMALL, exchange_on, owners_of, small_setup, trained

HOWS = pytest.mark.parametrize("how", ["whole", "low-rank"])


def setup_of(graph: Graph, owners: Partition, how: str = "low-rank", **more: Any):
    traffic = {"how": how, "rank": 2, **more.pop("traffic", {})}
    return small_setup(graph, owners, traffic=traffic, **more)


@HOWS
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("moments", ["averaged", "own", "reset"])
def test_all_hold_the_same_classifier_to_the_bit(
    how: str, optimizer: str, moments: str, graph: Graph, owners: Partition
) -> None:
    settings = {"optimizer": optimizer, "moments": moments, "rounds_c": 4}
    setup = setup_of(graph, owners, how, classifier=settings)
    everyone = owners_of(setup)
    exchange = Exchange(InProcessEngine(everyone), setup.plan)
    outcome = trained(setup, exchange, 4)
    wanted = sha256_of(outcome.classifier.phi)
    assert {sha256_of(parameters_of(owner.model)) for owner in everyone} == {wanted}
    assert wanted != sha256_of(setup.plan.phi.phi)


def test_what_all_hold_follows_from_messages_alone(graph: Graph, owners: Partition) -> None:
    """Owners that share no object with anybody hold the same as the server."""
    setup = setup_of(graph, owners)
    exchange = exchange_on(setup)
    server = ByChanges(exchange, average)
    server.begin(setup.plan.phi)
    for t in range(3):
        before = unpacked(setup.config, packed(server.common))  # a copy
        news: list[Any] = []
        carry = exchange.engine.carry

        def seen(
            procedure: Any, requests: Any, lot: Any, carry: Any = carry, news: Any = news
        ) -> Any:
            if procedure is receive_change:
                news.append(next(iter(requests.values())))
            return carry(procedure, requests)

        exchange.engine.carry = seen  # type: ignore[method-assign]
        classifier, _, _ = server.round(t, keep=False)
        exchange.engine.carry = carry  # type: ignore[method-assign]
        assert not news[0].phi and not news[0].memory
        after = next_state(before, news[0].total, news[0].guide)
        assert sha256_of(after.phi) == sha256_of(classifier.phi)
        held = [*server.common.phi.values(), *classifier.moments.values()]
        assert all(tensor.is_contiguous() for tensor in held)
        memory = packed(after).moments
        assert sha256_of(memory) == sha256_of(classifier.moments)


class Away(InProcessEngine):
    """An engine whose owner 2 does not hear some procedures in some rounds."""

    def __init__(self, owners: Any, missed: set[tuple[str, int]]) -> None:
        super().__init__(owners)
        self.min_owners, self.missed = 1, missed

    def carry(
        self, procedure: Any, requests: Any, lot: int | None = None
    ) -> dict[OwnerId, Any]:
        gone = {
            i: Miss(i, procedure.name, "away")
            for i, one in requests.items()
            if i == 2 and (procedure.name, getattr(one, "t", -1)) in self.missed
        }
        return (
            super().carry(procedure, {i: r for i, r in requests.items() if i not in gone}, lot)
            | gone
        )


@HOWS
@pytest.mark.parametrize(
    "missed",
    [
        {("local_change_c", 1)},
        {("receive_change", 2)},
        {("receive_change", 0), ("receive_change", 1)},
        {("receive_change", 4)},
    ],
)
def test_who_was_away_gets_all_of_it_and_holds_the_same(
    how: str, missed: set[tuple[str, int]], graph: Graph, owners: Partition
) -> None:
    setup = setup_of(graph, owners, how, classifier={"selection": "last"})
    everyone = owners_of(setup)
    exchange = Exchange(Away(everyone, missed), setup.plan)
    outcome = trained(setup, exchange, 4)
    assert exchange.misses
    wanted = sha256_of(outcome.classifier.phi)
    assert {sha256_of(parameters_of(owner.model)) for owner in everyone[:2]} == {wanted}
    if ("receive_change", 4) not in missed:  # the very last word never came
        assert sha256_of(parameters_of(everyone[2].model)) == wanted


def test_an_owner_that_does_not_hold_the_last_round_says_so(
    graph: Graph, owners: Partition
) -> None:
    setup = setup_of(graph, owners)
    exchange = exchange_on(setup)
    server = ByChanges(exchange, average)
    server.begin(setup.plan.phi)
    server.round(0, keep=False)
    for owner in exchange.engine.data_owners.values():  # type: ignore[attr-defined]
        follower(owner).common = None
    with pytest.raises(ProtocolError, match="does not hold the classifier that round 1"):
        server.round(1, keep=False)


def test_the_best_round_is_taken_out_again_and_not_sent(
    graph: Graph, owners: Partition
) -> None:
    setup = setup_of(graph, owners)
    exchange = exchange_on(setup)
    server = ByChanges(exchange, average)
    server.begin(setup.plan.phi)
    best, _, _ = server.round(0, keep=False)
    server.round(1, keep=True)
    server.round(2, keep=False)
    before = exchange.engine.traffic["training"].down
    server.end(best, 0, last=2)
    assert exchange.engine.traffic["training"].down - before < 3 * 1000
    for owner in exchange.engine.data_owners.values():  # type: ignore[attr-defined]
        assert sha256_of(parameters_of(owner.model)) == sha256_of(best.phi)


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "krum"])
def test_rules_see_single_changes_and_all_hold_what_they_say(
    rule: str, graph: Graph, owners: Partition
) -> None:
    setup = setup_of(graph, owners, "whole", classifier={"aggregate": rule})
    exchange = exchange_on(setup)
    server = ByChanges(exchange, RULES.find(rule).thing)
    server.begin(setup.plan.phi)
    classifier, _, _ = server.round(0, keep=False)
    owners = exchange.engine.data_owners.values()  # type: ignore[attr-defined]
    held = {sha256_of(parameters_of(owner.model)) for owner in owners}
    assert held == {sha256_of(classifier.phi)} != {sha256_of(setup.plan.phi.phi)}


def test_the_median_of_three_stays_between_two_honest_owners(
    graph: Graph, owners: Partition
) -> None:
    weighting = {"weighting": "owners"}
    setup = setup_of(graph, owners, "low-rank", classifier=weighting)
    exchange = exchange_on(setup)
    server = ByChanges(exchange, median)
    server.begin(setup.plan.phi)
    owners = exchange.engine.data_owners.values()  # type: ignore[attr-defined]
    first, second, third = (local_change_c.run(owner, Turn(0, False)) for owner in owners)
    common = server.common
    most = {p: common.ring(p, 0).most for p in third.parts}
    worst = {p: torch.full_like(n, -most[p]) for p, n in third.parts.items()}
    hostile = replace(third, parts=worst)
    found = ruled(median, common, [first, second, hostile])
    for part, total in found.parts.items():
        low = 3 * torch.minimum(first.parts[part], second.parts[part]).double()
        high = 3 * torch.maximum(first.parts[part], second.parts[part]).double()
        assert bool((low - 1 <= total).all()) and bool((total <= high + 1).all())


def test_no_owner_can_send_more_than_its_share(graph: Graph, owners: Partition) -> None:
    setup, one = setup_of(graph, owners), 2**FIXED

    def refused(number: int, t: int = 2, count: int = 1, steps: int = one) -> str:
        parts = {"left/w": torch.full((2, 2), number, dtype=torch.int8)}
        change = Change(parts, one * count, steps, 0, count)
        return str(strange_change(setup.plan, 0, Turn(t, False), change))

    assert refused(127 // 3) == refused(-127 // 3 + 1) == "None"
    assert "beyond -42 to 42" in refused(43) and "beyond" in refused(-128)
    assert "type torch.int8" in refused(1, t=0)  # twice as many bits were agreed
    assert "not finite" in refused(0, count=0)
    assert "0 steps" in refused(0, steps=0)


def test_what_was_not_sent_is_kept_for_the_next_time(graph: Graph, owners: Partition) -> None:
    """Sent and kept together are the change, whatever was clipped and rounded."""
    setup = setup_of(graph, owners, "whole")
    exchange = exchange_on(setup)
    server = ByChanges(exchange, average)
    server.begin(setup.plan.phi)
    owner = exchange.engine.data_owners[0]  # type: ignore[attr-defined]
    common = server.common
    sent = local_change_c.run(owner, Turn(0, False))
    share = sent.weight / 2**FIXED / common.weight
    sent_changes = changes_in(common, sent.parts, {}, 1 / share)
    sizes = [common.phi[name].numel() for name in common.small]
    rest = follower(owner).feedback["rest"].split(sizes)
    kept = {n: r.reshape(common.phi[n].shape) for n, r in zip(common.small, rest, strict=True)}
    for name, weight in parameters_of(owner.model).items():
        found = sent_changes[name] + kept[name]
        torch.testing.assert_close(found, weight - common.phi[name], rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_alone_nothing_is_sent_by_changes() -> None:
    for method in ("locsage", "globsage"):
        results = [
            run_config(load_config(SMALL, {"run": {"method": method}, "traffic": {"how": how}}))
            for how in ("full", "low-rank")
        ]
        assert results[0].record.model_sha256 == results[1].record.model_sha256
