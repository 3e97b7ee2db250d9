"""A hostile owner in hidden sums: the sum tells that something is wrong, and who it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedsage.audit.attacks.poisoning import Turn as Attack
from fedsage.audit.attacks.poisoning import by_chance, by_link, by_training, honest
from fedsage.data.synthetic import synthetic
from fedsage.engines.inprocess import InProcessEngine
from fedsage.engines.simulated import hide_sums
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.graph.partition import partition
from fedsage.models.parameters import sha256_of
from fedsage.protocol.changes.follow import MOST_TRIED, Turn
from fedsage.protocol.changes.owner import local_change_c
from fedsage.protocol.changes.server import SEARCHES, STRIKES, ByChanges, Search
from fedsage.protocol.changes.state import Change, checksum_of
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.hidden_sums.memory import AGAIN
from fedsage.protocol.messages import Classifier
from fedsage.protocol.server import average
from fedsage.runs.setup import Setup
from tests.small import owners_of, small_setup, traffic_of, trained

HOSTILE = 3


def five_at(level: str) -> Setup:
    """Five owners, all much alike."""
    graph = synthetic(nodes=400, classes=4, features=80, words=8.0, topicality=0.6)
    parts = partition(graph, 5, "random", 1)
    how = {"privacy": {"level": level}, "traffic": traffic_of("low-rank", 4)}
    return small_setup(graph, parts, "none", data={"owners": 5}, **how)


@pytest.fixture(scope="module")
def five() -> Setup:
    return five_at("sums")


def exchange_with(setup: Setup, attack: Attack, least: int = 4) -> Exchange:
    """Hidden sums of five owners, one of them hostile."""
    owners = owners_of(setup)
    hostile = owners[HOSTILE]
    engine = InProcessEngine(owners, links=lambda i: attack(hostile) if i == HOSTILE else [])
    engine.min_owners = least
    exchange = Exchange(engine, setup.plan)
    hide_sums(exchange, engine)
    return exchange


class Colluding:
    """A server, and an owner that spoils the first sum so that it may be asked for again."""

    def __init__(self, setup: Setup) -> None:
        self.exchange = exchange_with(setup, by_link(-30.0), least=1)
        honest_server = ByChanges(self.exchange, average)
        honest_server.begin(Classifier({}, {}))
        self.common = honest_server.common
        turn = Turn(0, False, checksum_of(self.common))
        self.turn = replace(turn, cause=self.exchange.sum(local_change_c, turn))

    def without(self, owner: int, again: int) -> Change:
        asked = [i for i in self.exchange.owners if i != owner]
        turn = replace(self.turn, again=again)
        return self.exchange.sum(local_change_c, dict.fromkeys(asked, turn))


def test_tries_without_the_same_owner_are_not_repeated(five: Setup) -> None:
    """The mean of many sums without one owner, and the sum with it, would show its change."""
    server = Colluding(five)
    assert server.without(0, 1).count == server.without(1, 2).count == 4
    with pytest.raises(PrivacyError, match=r"\[1, 2, 3, 4\] was to be opened again"):
        server.without(0, 3)


def test_only_some_rounds_of_a_run_are_tried_again(five: Setup) -> None:
    """An owner that spoils every sum for the server gives it two sums of a few rounds."""
    server = Colluding(five)
    assert isinstance(server.exchange.engine, InProcessEngine)
    for owner in server.exchange.engine.data_owners.values():
        assert owner.sum_masks is not None
        for t in range(1, 1 + MOST_TRIED):
            owner.sum_masks.remembered.sums[f"local_change_c {t}{AGAIN}1"] = [0, 1, 2, 3]
    with pytest.raises(PrivacyError, match=f"and so were {MOST_TRIED} others"):
        server.without(0, 1)
    assert MOST_TRIED > SEARCHES > STRIKES


def test_a_server_stops_searching_before_owners_refuse(five: Setup) -> None:
    exchange = exchange_with(five, honest)
    search = Search(exchange, searched=SEARCHES)
    server = Colluding(five)
    total = server.turn.cause
    found, added, again = search.sum_without(server.common, server.turn, total, range(5))
    assert found is total and len(added) == 5 and not again


ATTACKS = {
    "× −30": by_link(-30.0), "× −30, clipped": by_training(-30.0), "× −1": by_link(-1.0),
    "large random numbers": by_chance,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_owner_is_found_and_named(attack: str, five: Setup) -> None:
    exchange = exchange_with(five, ATTACKS[attack])
    outcome = trained(five, exchange, 12)
    assert [miss.owner for miss in exchange.misses] == [HOSTILE] * 3
    assert all("mean cosine" in miss.why for miss in exchange.misses)
    clean = trained(five, exchange_with(five, honest), 12)
    assert outcome.validation > clean.validation - 0.04  # of 64 nodes, and without its data


@pytest.mark.slow
def test_nothing_changes_if_nobody_is_hostile(five: Setup) -> None:
    exchange = exchange_with(five, honest)
    masked = trained(five, exchange, 6)
    assert not exchange.misses
    setup = five_at("open")
    open_run = trained(setup, Exchange(InProcessEngine(owners_of(setup)), setup.plan), 6)
    assert sha256_of(masked.classifier.phi) == sha256_of(open_run.classifier.phi)


def test_a_run_that_needs_all_owners_ends_and_says_because_of_whom(five: Setup) -> None:
    with pytest.raises(ProtocolError, match=f"Owner {HOSTILE} spoils the sum"):
        trained(five, exchange_with(five, by_link(-30.0), least=5), 3)
