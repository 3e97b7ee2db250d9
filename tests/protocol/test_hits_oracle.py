"""A hostile server and the counts of right answers: no answer for a φ that it made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.engines.simulated import hide_sums
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.protocol.changes.follow import CLASSIFIER, News, Turn
from fedsage.protocol.changes.owner import local_change_c, receive_change
from fedsage.protocol.changes.server import ByChanges, everything, news_of, vouched
from fedsage.protocol.changes.state import Change, Common, checksum_of
from fedsage.protocol.changes.step import BEYOND, NEXT, guide_of, next_state
from fedsage.protocol.changes.weights import LEFT, REST
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import NO_HITS, Ask, Classifier
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.server import average
from tests.small import owners_of, small_setup, traffic_of


def turn(common: Common) -> Turn:
    """Train from there, as an honest server says it."""
    return Turn(common.t, False, checksum_of(common))


class Server:
    """A server after a round's changes were added up, who may now say what it likes."""

    def __init__(self, graph: Graph, owners: Partition, level: str) -> None:
        more = {"privacy": {"level": level}, "traffic": traffic_of("low-rank")}
        setup = small_setup(graph, owners, "none", **more)
        engine = InProcessEngine(owners_of(setup))
        self.owners = list(engine.data_owners.values())
        self.exchange = Exchange(engine, setup.plan)
        if level == "sums":
            hide_sums(self.exchange, engine)
        honest = ByChanges(self.exchange, average)
        honest.begin(Classifier({}, {}))
        honest.round(0, keep=False)
        self.common = honest.common
        self.total: Change = self.exchange.sum(local_change_c, turn(self.common))
        self.guide = guide_of(self.common, self.total)

    def news(self, total: Change, guide: Any) -> News:
        return news_of(next_state(self.common, total, guide), total, guide)


@pytest.fixture
def server(graph: Graph, owners: Partition) -> Server:
    return Server(graph, owners, "sums")


def test_the_honest_sum_is_answered_once(server: Server) -> None:
    news = server.news(server.total, server.guide)
    assert receive_change(server.owners[0], news).total > 0
    with pytest.raises(ProtocolError, match="does not hold"):
        receive_change(server.owners[0], news)


@pytest.mark.parametrize("part", [REST, "squares"])
@pytest.mark.parametrize("by", [1, -3])
def test_an_altered_sum_is_refused(server: Server, part: str, by: int) -> None:
    parts = {name: one.clone() for name, one in server.total.parts.items()}
    parts[part].view(-1)[0] += by
    forged = replace(server.total, parts=parts)
    with pytest.raises(PrivacyError, match="not what the owners added up"):
        receive_change(server.owners[0], server.news(forged, server.guide))


@pytest.mark.parametrize("number", ["weight", "steps", "loss", "count", "proof"])
def test_so_is_one_with_another_number(server: Server, number: str) -> None:
    forged = replace(server.total, **{number: getattr(server.total, number) + 1})
    with pytest.raises(PrivacyError, match="not what the owners added up"):
        receive_change(server.owners[0], server.news(forged, server.guide))


def test_a_sum_of_another_round_is_refused(server: Server) -> None:
    receive_change(server.owners[0], server.news(server.total, server.guide))
    owner = server.owners[0]
    after = next_state(server.common, server.total, server.guide)
    local_change_c(owner, turn(after))
    again = news_of(next_state(after, server.total, server.guide), server.total, server.guide)
    with pytest.raises(PrivacyError, match="not what the owners added up"):
        receive_change(owner, again)


@pytest.mark.parametrize("what", [BEYOND, NEXT])
def test_what_the_server_adds_of_its_own_must_follow_from_the_sum(
    server: Server, what: str
) -> None:
    guide = {name: one.clone() for name, one in server.guide.items()}
    name = next(name for name in guide if name.startswith(what))
    guide[name][:] = torch.eye(*guide[name].shape).to(guide[name].dtype) * 2**10
    with pytest.raises(PrivacyError, match="does not follow"):
        receive_change(server.owners[0], server.news(server.total, guide))


@pytest.mark.parametrize("level", ["open", "sums"])
def test_a_classifier_that_is_handed_over_is_not_judged(
    level: str, graph: Graph, owners: Partition
) -> None:
    """The oracle: weights that the server made up, and a count for each of them."""
    server = Server(graph, owners, level)
    phi = {name: torch.zeros_like(one) for name, one in server.common.phi.items()}
    made_up = replace(server.common, phi=phi)
    owner = server.owners[0]
    if level == "sums":
        with pytest.raises(PrivacyError, match="2 are required"):
            receive_change(owner, everything(made_up))
    else:
        assert receive_change(owner, everything(made_up)) == NO_HITS
    foreign = News(3, 0, 0.0, phi, {}, Change({}, 0, 0, 0, 0), {})
    assert receive_change(owner, foreign) == NO_HITS
    if level == "sums":
        assert owner.test_classifier(Ask(0)) == NO_HITS
    with pytest.raises(ProtocolError, match="does not hold"):
        local_change_c(owner, turn(made_up))


def test_nobody_trains_from_another_state_than_the_others(server: Server) -> None:
    """All owners check from which state they start: nobody can be led astray alone."""
    for owner in server.owners:
        receive_change(owner, server.news(server.total, server.guide))
    after = next_state(server.common, server.total, server.guide)
    other = replace(after, usual=after.usual / 1e9)
    with pytest.raises(PrivacyError, match="names another state"):
        server.exchange.sum(local_change_c, turn(other))


def test_who_was_away_is_asked_again_once_its_classifier_is_everybody_s(server: Server) -> None:
    news = server.news(server.total, server.guide)
    for owner in server.owners[1:]:
        receive_change(owner, news)
    after = next_state(server.common, server.total, server.guide)
    handed = vouched(server.exchange, CLASSIFIER, everything(after))
    with pytest.raises(PrivacyError, match="1 signature of"):
        one = dict(list(handed.vouchers.items())[:1])
        receive_change(server.owners[0], replace(handed, vouchers=one))
    assert receive_change(server.owners[0], handed) == NO_HITS
    total = server.exchange.sum(local_change_c, {i: turn(after) for i in range(3)})
    guide = guide_of(after, total)
    later = news_of(next_state(after, total, guide), total, guide)
    assert receive_change(server.owners[0], later).total > 0


def test_with_full_messages_there_is_one_answer_for_each_update(
    graph: Graph, owners: Partition
) -> None:
    setup = small_setup(graph, owners, "none", traffic={"how": "full"})
    owner = owners_of(setup)[0]
    counts = [owner.receive_classifier(setup.plan.phi).total for _ in range(4)]
    assert counts[0] > 0 and counts[1:] == [0, 0, 0]
    owner.local_update_c(Ask(0))
    assert owner.receive_classifier(setup.plan.phi).total > 0
    assert owner.receive_classifier(setup.plan.phi) == NO_HITS


def test_test_nodes_are_counted_once(graph: Graph, owners: Partition) -> None:
    setup = small_setup(graph, owners, "none")
    owner: DataOwner = owners_of(setup)[0]
    assert owner.test_classifier(Ask(0)).total > 0
    assert owner.test_classifier(Ask(0)) == NO_HITS


def test_large_layers_are_in_the_sum(server: Server) -> None:
    """Else nothing above would be about them."""
    assert any(part.startswith(LEFT) for part in server.total.parts)
