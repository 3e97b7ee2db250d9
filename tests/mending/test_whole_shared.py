"""One NeighGen for all in few bytes: all hold the same, and faults cost nothing but a round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.engines.simulated import hide_sums
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending.generator import learner
from fedsage.mending.shared import SharedNeighGen, by_shared_neighgen, update_shared_neighgen
from fedsage.mending.whole_shared import (
    NEIGHGEN,
    NeighGenChange,
    change_shared_neighgen,
    first_theta,
    from_disk,
    mend_by_theta,
    receive_theta,
    share_by_changes,
    shared_follower,
    strange_change,
    to_disk,
)
from fedsage.models.parameters import Parameters, parameters_of, sha256_of
from fedsage.protocol.changes.check import proof_of_change
from fedsage.protocol.changes.follow import CLASSIFIER, News, Turn
from fedsage.protocol.changes.server import everything, news_of, state_of
from fedsage.protocol.changes.state import Change
from fedsage.protocol.changes.step import guide_of, next_state
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.procedures import in_sums
from fedsage.runs.execute import run_config
from fedsage.runs.setup import Setup
from tests.mending.test_whole_neighgen import GEN, HOWS, Away
from tests.small import exchange_on, owners_of, small_config, small_setup
from tests.test_resume import stopped_after


def with_gen(graph: Graph, owners: Partition, how: str = "low-rank", **traffic: Any) -> Setup:
    few = {"how": how, "rank": 2, **traffic}
    return small_setup(graph, owners, "shared", neighgen=GEN, traffic=few)


@pytest.mark.slow
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
    each: list[Parameters] = []
    exchange.on_round = lambda line: each.extend(
        parameters_of(learner(owner).neighgen) for owner in everyone
    )
    theta = share_by_changes(exchange).phi
    start = first_theta(setup.plan, 3).phi
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
    engine = Away(everyone, {(receive_theta.name, t) for t in rounds}, late)
    exchange = Exchange(engine, setup.plan)
    by_shared_neighgen(exchange)
    assert len(exchange.misses) == len(rounds)
    found = {sha256_of(parameters_of(learner(owner).neighgen)) for owner in everyone}
    assert len(found) == 1
    asked = [one for name, i, one in engine.asked if i == 2 and name == receive_theta.name]
    assert {news.t for news in asked if news.memory} == {t + 1 for t in rounds}


def test_who_does_not_hold_the_last_round_says_so(graph: Graph, owners: Partition) -> None:
    server = Server(with_gen(graph, owners))
    shared_follower(server.owners[1]).common = None
    with pytest.raises(ProtocolError, match="does not hold the NeighGen that round 0"):
        receive_theta(server.owners[1], server.news(server.total))


class Server:
    """A server after the first changes were added up, who may now say what it likes."""

    def __init__(self, setup: Setup) -> None:
        engine = InProcessEngine(owners_of(setup))
        self.owners = list(engine.data_owners.values())
        self.exchange = exchange = Exchange(engine, setup.plan)
        if in_sums(setup.config):
            hide_sums(exchange, engine)
        self.common = exchange.guard.held = first_theta(setup.plan, 3)
        exchange.all(receive_theta, news_of(self.common))
        turn = Turn(0, False, state_of(self.common))
        self.total = exchange.sum(change_shared_neighgen, turn).change

    def news(self, total: Change) -> News:
        guide = guide_of(self.common, total)
        return news_of(next_state(self.common, total, guide), total, guide)


@pytest.fixture
def server(graph: Graph, owners: Partition) -> Server:
    few = {"how": "low-rank", "rank": 2}
    level = {"privacy": {"level": "sums"}, "neighgen": GEN, "traffic": few}
    return Server(small_setup(graph, owners, "shared", **level))


def test_where_sums_are_hidden_the_honest_sum_is_taken(server: Server) -> None:
    for owner in server.owners:
        receive_theta(owner, server.news(server.total))
        assert shared_follower(owner).held(1).t == 1


def test_a_generator_that_the_server_made_up_is_refused(server: Server) -> None:
    parts = {name: one.clone() for name, one in server.total.parts.items()}
    parts["rest"].view(-1)[0] += 1
    altered = replace(server.total, parts=parts)
    with pytest.raises(PrivacyError, match="not what the owners added up"):
        receive_theta(server.owners[0], server.news(altered))
    phi = {name: torch.zeros_like(one) for name, one in server.common.phi.items()}
    made_up = replace(server.common, phi=phi, t=1)
    for procedure in (receive_theta, mend_by_theta):
        with pytest.raises(PrivacyError, match="2 are required"):
            procedure(server.owners[0], everything(made_up))


def test_nobody_trains_from_another_state_than_the_others(server: Server) -> None:
    owner = server.owners[0]
    receive_theta(owner, server.news(server.total))
    for state in ("", "0" * 64, state_of(server.common)):
        with pytest.raises(PrivacyError, match="names another state"):
            change_shared_neighgen(owner, Turn(1, False, state))


def test_a_sum_of_the_generator_proves_nothing_about_the_classifier(server: Server) -> None:
    masks = server.owners[0].sum_masks
    assert masks is not None
    proofs = {
        proof_of_change(masks.common, what, server.common, server.total)
        for what in (NEIGHGEN, CLASSIFIER)
    }
    assert len(proofs) == 2


@pytest.mark.slow
def test_who_was_away_while_sums_are_hidden_takes_the_others_word(
    graph: Graph, owners: Partition
) -> None:
    few = {"how": "low-rank", "rank": 2}
    open_ = small_setup(graph, owners, "shared", neighgen=GEN, traffic=few)
    setup = small_setup(
        graph, owners, "shared", neighgen=GEN, traffic=few, privacy={"level": "sums"}
    )
    found = []
    for one in (setup, open_):
        everyone = owners_of(one)
        gone = {(change_shared_neighgen.name, t) for t in (1, 2)}
        engine = Away(everyone, gone, False)
        exchange = Exchange(engine, one.plan)
        if one is setup:
            hide_sums(exchange, engine)
        by_shared_neighgen(exchange)
        found += [sha256_of(parameters_of(learner(owner).neighgen)) for owner in everyone]
    assert len(set(found)) == 1  # hidden or not, the same bits, and all hold them


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
    owner, turn = owners_of(setup)[0], Turn(0, False)
    receive_theta(owner, news_of(first_theta(setup.plan, 3)))
    reply = change_shared_neighgen(owner, turn)
    assert strange_change(setup.plan, 0, turn, reply) is None
    change = reply.change
    rest = torch.full_like(change.parts["rest"], torch.iinfo(change.parts["rest"].dtype).min)
    for odd in (
        {"weight": 2 * change.weight}, {"count": 2}, {"parts": change.parts | {"rest": rest}},
    ):  # fmt: skip
        made = type(change)(**{n: getattr(change, n) for n in change.__slots__} | odd)
        assert strange_change(setup.plan, 0, turn, NeighGenChange(made, reply.losses))
