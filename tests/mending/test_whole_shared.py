"""One NeighGen for all in few bytes: all hold the same, and faults cost nothing but a round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending.generator import learner
from fedsage.mending.shared import SharedNeighGen, by_shared_neighgen, update_shared_neighgen
from fedsage.mending.whole_shared import (
    NeighGenChange,
    change_shared_neighgen,
    first_theta,
    from_disk,
    share_by_changes,
    shared_follower,
    strange_change,
    to_disk,
)
from fedsage.models.parameters import parameters_of, sha256_of
from fedsage.protocol.changes.server import news_of
from fedsage.protocol.changes.step import guide_of, next_state
from fedsage.protocol.exchange import Exchange
from fedsage.runs.execute import run_config
from fedsage.runs.setup import Setup
from tests.mending.test_whole_neighgen import GEN, HOWS, Away
from tests.small import exchange_on, owners_of, small_config, small_setup
from tests.test_resume import stopped_after


def with_gen(graph: Graph, owners: Partition, how: str = "low-rank", **traffic: Any) -> Setup:
    few = {"how": how, "rank": 2, **traffic}
    return small_setup(graph, owners, "shared", neighgen=GEN, traffic=few)


@HOWS
def test_all_end_with_the_same_neighgen(how: str, graph: Graph, owners: Partition) -> None:
    setup = with_gen(graph, owners, how)
    everyone = owners_of(setup)
    by_shared_neighgen(Exchange(InProcessEngine(everyone), setup.plan))
    found = {sha256_of(parameters_of(learner(owner).neighgen)) for owner in everyone}
    assert len(found) == 1 != {sha256_of(first_theta(setup.plan, 3).phi)}
    assert all(owner.mended is not None for owner in everyone)


def test_with_many_bits_a_round_is_the_mean(graph: Graph, owners: Partition) -> None:
    setup = with_gen(graph, owners, "whole", bits=16)
    everyone = owners_of(setup)
    exchange = Exchange(InProcessEngine(everyone), setup.plan)
    exchange.stopping = True  # after one round
    _, theta = share_by_changes(exchange)
    start = first_theta(setup.plan, 3).phi
    each = [parameters_of(learner(owner).neighgen) for owner in everyone]
    assert len({sha256_of(one) for one in each}) == 3
    for name, weight in theta.items():
        mean = torch.stack([one[name] for one in each]).mean(dim=0)
        far = float((mean - start[name]).abs().max())
        assert float((weight - mean).abs().max()) < 0.01 * far


@pytest.mark.slow
@HOWS
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("rounds", [{0}, {1, 2}, {4}])
def test_who_missed_a_round_gets_the_whole_and_holds_the_same(
    how: str, rounds: set[int], late: bool, graph: Graph, owners: Partition
) -> None:
    setup = with_gen(graph, owners, how)
    everyone = owners_of(setup)
    engine = Away(everyone, {(change_shared_neighgen.name, t) for t in rounds}, late)
    exchange = Exchange(engine, setup.plan)
    by_shared_neighgen(exchange)
    assert len(exchange.misses) == len(rounds)
    found = {sha256_of(parameters_of(learner(owner).neighgen)) for owner in everyone}
    assert len(found) == 1
    asked = [one for name, i, one in engine.asked if i == 2 and name.startswith("change")]
    assert {news.t for news in asked if news.memory} == {t + 1 for t in rounds if t < 4}


def test_who_does_not_hold_the_last_round_says_so(graph: Graph, owners: Partition) -> None:
    setup = with_gen(graph, owners)
    everyone = owners_of(setup)
    exchange = Exchange(InProcessEngine(everyone), setup.plan)
    common = exchange.guard.held = first_theta(setup.plan, 3)
    total = exchange.sum(change_shared_neighgen, news_of(common)).change
    guide = guide_of(common, total)
    shared_follower(everyone[1]).common = None
    with pytest.raises(ProtocolError, match="does not hold the NeighGen that round 0"):
        step = news_of(next_state(common, total, guide), total, guide)
        exchange.sum(change_shared_neighgen, step)


@pytest.mark.slow
@HOWS
def test_a_run_that_was_stopped_again_and_again_goes_on_to_the_bit(
    how: str, tmp_path: Path
) -> None:
    config = small_config("shared", neighgen=GEN, traffic={"how": how, "rank": 2})
    undisturbed = run_config(config)
    for rounds in (2, 4, 7):
        stopped_after(config, rounds, tmp_path)
    again = run_config(config, checkpoint=tmp_path)
    assert again.record.resumed == 3
    assert again.record.model_sha256 == undisturbed.record.model_sha256


def test_what_is_kept_comes_back(graph: Graph, owners: Partition) -> None:
    plan = with_gen(graph, owners).plan
    common = first_theta(plan, 3)
    again = from_disk(plan, to_disk(common))
    assert again is not None and sha256_of(to_disk(again)) == sha256_of(to_disk(common))
    assert from_disk(plan, {}) is None


@pytest.mark.slow
def test_few_bytes_and_what_full_messages_would_have_been() -> None:
    def bytes_of(**traffic: Any) -> tuple[dict[str, int], dict[str, int]]:
        gen = GEN | {"widths": [16, 16], "hidden": [32], "batch_size": 8, "rounds_gen": 12}
        more = {"synthetic": {"nodes": 120, "features": 600, "words": 9.0}, "traffic": traffic}
        record = run_config(small_config("shared", neighgen=gen, **more)).record
        return record.bytes["mending"], record.bytes_full["mending"]

    full, _ = bytes_of(how="full")
    found, instead = bytes_of(how="low-rank", rank=2)
    assert found["up"] < full["up"] / 12 and found["down"] < full["down"] / 4
    for way in ("up", "down"):
        assert instead[way] == pytest.approx(full[way], rel=0.02)


def test_only_what_the_traffic_needs_may_be_asked(graph: Graph, owners: Partition) -> None:
    setup = with_gen(graph, owners)
    shared = SharedNeighGen(0, first_theta(setup.plan, 3).phi)
    with pytest.raises(PrivacyError, match="not part of the agreed run"):
        exchange_on(setup).sum(update_shared_neighgen, shared)


def test_no_owner_counts_twice_or_sends_more_than_its_share(
    graph: Graph, owners: Partition
) -> None:
    setup = with_gen(graph, owners)
    news = news_of(first_theta(setup.plan, 3))
    reply = change_shared_neighgen(owners_of(setup)[0], news)
    assert strange_change(setup.plan, 0, news, reply) is None
    change = reply.change
    rest = torch.full_like(change.parts["rest"], torch.iinfo(change.parts["rest"].dtype).min)
    for odd in (
        {"weight": 2 * change.weight}, {"count": 2}, {"parts": change.parts | {"rest": rest}},
    ):  # fmt: skip
        made = type(change)(**{n: getattr(change, n) for n in change.__slots__} | odd)
        assert strange_change(setup.plan, 0, news, NeighGenChange(made, reply.losses))
