"""NeighGen's exchange under seal: the same generators, and nothing for a server to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsage.data.synthetic import synthetic
from fedsage.engines.inprocess import InProcessEngine
from fedsage.engines.simulated import hide_sums
from fedsage.errors import Absent, ConfigError, PrivacyError, ProtocolError
from fedsage.graph.partition import partition
from fedsage.mending.generator import learner
from fedsage.mending.offers import Answers, Offer, OfferTurn
from fedsage.mending.sealed_neighgen import (
    SealedOffers,
    about_answers,
    exchange_under_seal,
    sealed_answers,
    sealed_offer,
    update_by_veiled_sum,
)
from fedsage.mending.whole_neighgen import exchange_in_whole_numbers
from fedsage.models.parameters import Parameters, parameters_of, sha256_of
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.hidden_sums.messages import answered
from fedsage.protocol.hidden_sums.notes import unveiled
from fedsage.protocol.hidden_sums.owner import give_shares
from fedsage.protocol.hidden_sums.server import HiddenSums
from fedsage.protocol.plan import Miss
from fedsage.protocol.procedures import Sealed, in_sums
from fedsage.protocol.wire import decode
from fedsage.runs.execute import run_config
from fedsage.runs.setup import Setup
from tests.small import owners_of, small_config, small_setup
from tests.test_resume import stopped_after

GEN = {
    "widths": [8, 6], "hidden": [10], "batch_size": 12, "at_least": 1, "eta": 0.01,
    "min_batch": 4, "rounds_gen": 4,
}  # fmt: skip
TRAFFIC = {"how": "low-rank", "rank": 2}


class Watched(InProcessEngine):
    """Owners of whom some miss some procedures in some rounds; what passes is kept."""

    def __init__(self, setup: Setup, missed: set[tuple[str, int, int]]) -> None:
        super().__init__(owners_of(setup))
        self.min_owners, self.missed = 1, missed
        self.passed: list[tuple[str, int, Any, Any]] = []

    def carry(self, procedure: Any, requests: Any, lot: int | None = None) -> Any:
        gone = {
            i: Miss(i, procedure.name, "away")
            for i, one in requests.items()
            if (procedure.name, i, getattr(one, "t", -1)) in self.missed
        }
        here = {i: one for i, one in requests.items() if i not in gone}
        replies = super().carry(procedure, here, lot)
        self.passed += [(procedure.name, i, here[i], reply) for i, reply in replies.items()]
        return replies | gone


def five(level: str, count: int = 5, **more: Any) -> Setup:
    graph = synthetic(nodes=40 * count, classes=3, features=40, words=6.0, topicality=0.6)
    parts = partition(graph, count, "random", 0)
    settings = {"neighgen": GEN | more, "traffic": TRAFFIC, "privacy": {"level": level}}
    return small_setup(graph, parts, "neighgen", **settings)


def exchanged(
    level: str,
    rounds: int,
    missed: set[tuple[str, int, int]] = frozenset(),  # type: ignore[assignment]
) -> tuple[Watched, Exchange]:
    setup = five(level)
    engine = Watched(setup, missed)
    exchange = Exchange(engine, setup.plan)
    if in_sums(setup.config):
        hide_sums(exchange, engine)
    one_round = exchange_under_seal if in_sums(setup.config) else exchange_in_whole_numbers
    for t in range(rounds):
        one_round(exchange, t)
    return engine, exchange


def generators(engine: Watched) -> list[str]:
    return [
        sha256_of(parameters_of(learner(one).neighgen)) for one in engine.data_owners.values()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hidden", "open_"),
    [
        (set(), set()),
        ({("sealed_offer", 1, 1)}, {("local_offer", 1, 1)}),
        ({("sealed_answers", 3, 1)}, {("answer_offers", 3, 1)}),
        ({("update_by_veiled_sum", 2, 0)}, {("update_by_answers", 2, 0)}),
    ],
)
def test_generators_are_those_of_an_open_exchange_with_the_same_absences(
    hidden: set[tuple[str, int, int]], open_: set[tuple[str, int, int]]
) -> None:
    sealed, _ = exchanged("sums", 3, hidden)
    plain, _ = exchanged("open", 3, open_)
    assert generators(sealed) == generators(plain)
    assert len({*generators(sealed)}) == 5


@pytest.mark.slow
def test_the_server_passes_nothing_that_it_can_read() -> None:
    """An offer cannot be decoded, and a sum for an owner is not what the open run adds up."""
    sealed, exchange = exchanged("sums", 1)
    plain, _ = exchanged("open", 1)
    notes = [reply for name, _, _, reply in sealed.passed if name == "sealed_offer"]
    assert len(notes) == 5
    for note in notes:
        with pytest.raises(ProtocolError, match="cannot be read"):
            decode(Offer, note.box.numpy().tobytes())
    veiled = {i: one.parts for name, i, one, _ in sealed.passed if is_update(name)}
    true = {i: one.parts for name, i, one, _ in plain.passed if is_update(name)}
    others = [j for j in exchange.owners if j != 0]
    for part, numbers in true[0].items():
        assert not torch.equal(veiled[0][part], numbers)
    masks = sealed.data_owners[0].sum_masks
    assert masks is not None
    found: Parameters = unveiled(masks, veiled[0], others, about_answers(0))
    assert all(torch.equal(found[part], numbers) for part, numbers in true[0].items())
    elsewhere = sealed.data_owners[1].sum_masks  # another owner cannot read it either
    assert elsewhere is not None
    seen = unveiled(
        elsewhere, veiled[0], [j for j in exchange.owners if j != 1], about_answers(0)
    )
    assert not torch.equal(seen["rest"], true[0]["rest"])


def is_update(name: str) -> bool:
    return name in (update_by_veiled_sum.name, "update_by_answers")


class Server:
    """A server that has all offers of a round, and may now do with them what it likes."""

    def __init__(self) -> None:
        self.engine, self.exchange = exchanged("sums", 1)
        assert isinstance(self.exchange.hidden, HiddenSums)
        self.hidden, owners = self.exchange.hidden, self.exchange.owners
        self.before = self.notes_of(0)
        self.hidden.ready(3)
        self.exchange.ask(sealed_offer, dict.fromkeys(owners, OfferTurn(1, False)), Sealed)
        self.notes = self.notes_of(1)

    def notes_of(self, t: int) -> Mapping[int, Any]:
        passed = self.engine.passed
        return {
            i: reply for name, i, one, reply in passed if name == "sealed_offer" and one.t == t
        }

    def offers(self, to: int, notes: Mapping[int, Any] | None = None) -> SealedOffers:
        found = self.notes if notes is None else notes
        boxes = {i: note.box for i, note in found.items() if i != to}
        return SealedOffers(1, boxes, {i: note.signature for i, note in found.items()})

    def answer(self, offers: SealedOffers, owner: int = 0) -> Answers:
        return sealed_answers(self.engine.data_owners[owner], offers)


def test_an_offer_that_others_answer_is_not_left_out() -> None:
    server = Server()
    whole = server.offers(0)
    del whole.boxes[3]
    with pytest.raises(PrivacyError, match="not those that all owners are to answer"):
        server.answer(whole)
    with pytest.raises(PrivacyError, match="not those that all owners are to answer"):
        server.answer(server.offers(0, {**server.notes, 0: server.before[0]}))


def test_an_offer_of_another_round_or_another_owner_is_refused() -> None:
    server = Server()
    for note in (server.before[3], server.notes[2], replace(server.notes[3], signature="")):
        with pytest.raises(PrivacyError, match="owner 3 is said to have sent"):
            server.answer(server.offers(0, {**server.notes, 3: note}))


def test_a_round_is_answered_once() -> None:
    server = Server()
    server.answer(server.offers(0))
    with pytest.raises(PrivacyError, match="Round 1 was asked for again"):
        server.answer(server.offers(0))


def test_nobody_answers_one_other_owner_alone() -> None:
    server = Server()
    pair = {i: server.notes[i] for i in (0, 1)}
    with pytest.raises(PrivacyError, match="would see a single answer"):
        server.answer(server.offers(0, pair))


@pytest.mark.slow
def test_masks_do_not_cancel_among_owners_that_answer_other_offers() -> None:
    """Owner 4's question is put to the victim alone, to read its answer in the sum for 4."""
    server = Server()
    few = {i: server.notes[i] for i in (0, 1, 2, 3)}
    asked = {j: server.offers(j, server.notes if j in (0, 4) else few) for j in range(5)}
    lot = server.hidden.lot_for(server.exchange.owners)
    replies = server.engine.carry(sealed_answers, asked, lot)
    (layout,) = {frozenset(replies[j].of) for j in (1, 2, 3)}
    assert layout != frozenset(replies[0].of)  # so the sum cannot be added up at all
    same = {j: replace(asked[j], signatures=asked[0].signatures) for j in (1, 2, 3)}
    for j, one in same.items():
        with pytest.raises(PrivacyError):
            server.answer(one, j)


def test_a_sum_of_two_is_not_opened() -> None:
    """Of three owners one vanishes: then each of the others would see a single gradient."""
    setup = five("sums", 3)
    engine = Watched(setup, {("sealed_answers", 2, 0)})
    exchange = Exchange(engine, setup.plan)
    hide_sums(exchange, engine)
    with pytest.raises(Absent, match="3 are needed"):
        exchange_under_seal(exchange, 0)
    assert isinstance(exchange.hidden, HiddenSums)
    masks = engine.data_owners[0].sum_masks
    assert masks is not None and masks.fewest == 3
    told = answered(exchange.hidden.next - 1, [0, 1], {})
    with pytest.raises(PrivacyError, match="3 are required"):
        give_shares(masks, told)


def test_what_cannot_be_hidden_is_said() -> None:
    with pytest.raises(ConfigError, match=r"neighgen\.partners is 2"):
        five("sums", partners=2)
    with pytest.raises(ConfigError, match="among 3 owners or more"):
        five("sums", 2)


@pytest.mark.slow
def test_a_run_that_was_stopped_again_and_again_goes_on_to_the_bit(tmp_path: Path) -> None:
    config = small_config("neighgen", neighgen=GEN, traffic=TRAFFIC, privacy={"level": "sums"})
    undisturbed = run_config(config)
    for rounds in (2, 3, 6):
        stopped_after(config, rounds, tmp_path)
    again = run_config(config, checkpoint=tmp_path)
    assert again.record.resumed == 3
    assert again.record.model_sha256 == undisturbed.record.model_sha256
    plain = config.model_copy(
        update={"privacy": config.privacy.model_copy(update={"level": "open"})}
    )
    assert run_config(plain).record.model_sha256 == undisturbed.record.model_sha256
