"""NeighGen's exchange in few bytes: Eq. (6) but for rounding, and faults cost no agreement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsage.config import load_config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending.generator import learner
from fedsage.mending.neighgen import by_neighgen, local_request
from fedsage.mending.offers import (
    AnswerSum,
    HgNews,
    Offers,
    OfferTurn,
    answer_ring,
    fgen_of,
    strange_answers,
    strange_offer,
)
from fedsage.mending.whole_neighgen import (
    answer_offers,
    exchange_in_whole_numbers,
    local_offer,
    others_gradient,
    update_by_answers,
)
from fedsage.models.parameters import Parameters, parameters_of, sha256_of
from fedsage.protocol.changes.weights import taken_out
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Miss
from fedsage.runs.execute import run_config
from fedsage.runs.setup import Setup
from tests.small import SMALL, exchange_on, owners_of, small_config, small_setup
from tests.test_resume import stopped_after

GEN = {
    "widths": [8, 6], "hidden": [10], "batch_size": 12, "at_least": 1, "eta": 0.01,
    "min_batch": 4, "rounds_gen": 5,
}  # fmt: skip
HOWS = pytest.mark.parametrize("how", ["whole", "low-rank"])


def with_gen(
    graph: Graph, owners: Partition, how: str = "low-rank", rank: int = 2, **changes: Any
) -> Setup:
    traffic = {"how": how, "rank": rank}
    return small_setup(graph, owners, "neighgen", neighgen=GEN | changes, traffic=traffic)


def held_by(everyone: list[DataOwner]) -> list[set[str]]:
    """The checksums of what all owners hold of each H^g; one where they agree."""
    return [
        {sha256_of(learner(owner).known(i).hg) for owner in everyone}
        for i in range(len(everyone))
    ]


def exact_sum(everyone: list[DataOwner], i: int, t: int, hg: Parameters) -> Parameters:
    """What procedure A would hand to D_i in full messages."""
    z = learner(everyone[i]).embeddings(t)
    each = [learner(other).gradient_at(i, t, z, hg)[0] for other in everyone if other.id != i]
    return {name: torch.stack([one[name] for one in each]).sum(dim=0) for name in each[0]}


def test_answers_are_the_exact_gradients_but_for_rounding(
    graph: Graph, owners: Partition
) -> None:
    """With 16 bits and all directions, D_i takes out what full messages would have said."""
    traffic = {"how": "whole", "bits": 16}
    setup = small_setup(graph, owners, "neighgen", neighgen=GEN, traffic=traffic)
    everyone = owners_of(setup)
    for t in range(2):
        offers = {owner.id: local_offer(owner, OfferTurn(t, False)) for owner in everyone}
        answers = {}
        for j, owner in enumerate(everyone):
            news = {i: one.news for i, one in offers.items() if i != j}
            questions = {i: one.question for i, one in offers.items() if i != j}
            answers[j] = answer_offers(owner, Offers(t, news, questions)).of
        for i, owner in enumerate(everyone):
            exact = exact_sum(everyone, i, t, learner(owner).hg())
            each = [answers[j][i] for j in answers if j != i]
            total = {part: sum(one[part] for one in each) for part in each[0]}
            found = others_gradient(owner, AnswerSum(t, total, 1.0))
            for name, gradient in exact.items():
                error = float((found[name] - gradient).abs().max())
                assert error < 2e-3 * float(gradient.abs().max())
            update_by_answers(owner, AnswerSum(t, total, 1.0))


@pytest.mark.slow
@HOWS
def test_all_hold_the_same_of_every_generator_and_follow_it(
    how: str, graph: Graph, owners: Partition
) -> None:
    setup = with_gen(graph, owners, how)
    everyone = owners_of(setup)
    exchange = Exchange(InProcessEngine(everyone), setup.plan)
    start = learner(everyone[0]).hg()
    for t in range(4):
        before = [learner(owner).hg() for owner in everyone]
        exchange_in_whole_numbers(exchange, t)
    assert all(len(found) == 1 for found in held_by(everyone))
    assert len({*held_by(everyone)[0], *held_by(everyone)[1]}) == 2
    for owner, hg in zip(everyone, before, strict=True):
        held = learner(owner).known(owner.id).hg
        for name, weight in hg.items():
            far = float((weight - start[name]).norm())
            assert float((held[name] - weight).norm()) < 0.5 * far


class Away(InProcessEngine):
    """An engine whose owner 2 does not hear some procedures in some rounds."""

    def __init__(self, owners: Any, missed: set[tuple[str, int]], late: bool = False) -> None:
        super().__init__(owners)
        self.min_owners, self.missed, self.late = 1, missed, late
        self.asked: list[tuple[str, OwnerId, Any]] = []

    def carry(
        self, procedure: Any, requests: Any, lot: int | None = None
    ) -> dict[OwnerId, Any]:
        self.asked += [(procedure.name, i, one) for i, one in requests.items()]
        gone = {
            i: Miss(i, procedure.name, "away")
            for i, one in requests.items()
            if i == 2 and (procedure.name, getattr(one, "t", -1)) in self.missed
        }
        here = requests if self.late else {i: r for i, r in requests.items() if i not in gone}
        return super().carry(procedure, here, lot) | gone


@pytest.mark.slow
@HOWS
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "missed",
    [
        {("local_offer", 1)},
        {("answer_offers", 1)},
        {("update_by_answers", 1)},
        {("local_offer", 0), ("answer_offers", 2)},
    ],
)
def test_who_missed_a_round_gets_the_whole_and_holds_the_same(
    how: str, missed: set[tuple[str, int]], late: bool, graph: Graph, owners: Partition
) -> None:
    """Whether a request was lost on its way, or its answer."""
    setup = with_gen(graph, owners, how)
    everyone = owners_of(setup)
    engine = Away(everyone, missed, late)
    exchange = Exchange(engine, setup.plan)
    for t in range(4):
        exchange_in_whole_numbers(exchange, t)
    assert exchange.misses and all(len(found) == 1 for found in held_by(everyone))
    sent = [one for name, _, one in engine.asked if name == "answer_offers"]
    wholes = [offers.t for offers in sent for news in offers.news.values() if news.hg]
    lost = {t for name, t in missed if name != "update_by_answers"}
    assert set(wholes) == {t + 1 for t in lost}
    for offers in sent:
        assert all(bool(news.hg) != bool(news.change) for news in offers.news.values())


def test_who_does_not_hold_what_a_change_moves_says_so(graph: Graph, owners: Partition) -> None:
    first, second, _ = owners_of(with_gen(graph, owners))
    offers = [local_offer(first, OfferTurn(t, t == 1)) for t in range(2)]
    change = Offers(1, {0: replace(offers[1].news, hg={})}, {})
    with pytest.raises(ProtocolError, match="does not hold owner 0's generator of round 0"):
        answer_offers(second, change)
    answer_offers(second, Offers(1, {0: replace(offers[1].news, change={})}, {}))
    held = [learner(owner).known(0) for owner in (first, second)]
    assert held[0].t == held[1].t == 1 and sha256_of(held[0].hg) == sha256_of(held[1].hg)


@pytest.mark.slow
@HOWS
def test_a_run_that_was_stopped_again_and_again_goes_on_to_the_bit(
    how: str, tmp_path: Path
) -> None:
    traffic = {"how": how, "rank": 2}
    config = small_config("neighgen", neighgen=GEN, traffic=traffic)
    undisturbed = run_config(config)
    for rounds in (2, 4, 7):
        stopped_after(config, rounds, tmp_path)
    again = run_config(config, checkpoint=tmp_path)
    assert again.record.resumed == 3
    assert again.record.model_sha256 == undisturbed.record.model_sha256


def test_partners_answer_and_all_others_follow(graph: Graph, owners: Partition) -> None:
    setup = with_gen(graph, owners, partners=1)
    everyone = owners_of(setup)
    engine = Away(everyone, set())
    exchange = Exchange(engine, setup.plan)
    for t in range(3):
        exchange_in_whole_numbers(exchange, t)
    assert all(len(found) == 1 for found in held_by(everyone))
    sent = [one for name, _, one in engine.asked if name == "answer_offers"]
    assert sum(len(offers.questions) for offers in sent) == 3 * 3
    sums = [one for name, _, one in engine.asked if name == "update_by_answers"]
    assert {one.scale for one in sums} == {2.0}
    assert answer_ring(setup.plan).most == 2**15 - 1


@pytest.mark.slow
def test_few_bytes_and_what_full_messages_would_have_been() -> None:
    def bytes_of(**traffic: Any) -> tuple[dict[str, int], dict[str, int], int]:
        gen = GEN | {"widths": [16, 16], "hidden": [32], "batch_size": 8}
        more = {"synthetic": {"nodes": 120, "features": 600, "words": 9.0}, "traffic": traffic}
        config = small_config("neighgen", neighgen=gen, **more)
        carried: list[int] = []
        record = run_config(
            config, lambda event: carried.append(event.carries) if event.carries else None
        ).record
        return record.bytes["mending"], record.bytes_full["mending"], carried[0]

    full, _, foretold = bytes_of(how="full")
    for rank, times in ((2, 8), (4, 5)):
        found, instead, foretold = bytes_of(how="low-rank", rank=rank)
        assert sum(found.values()) < sum(full.values()) / times
        for way in ("up", "down"):
            assert instead[way] == pytest.approx(full[way], rel=0.02)
        assert foretold == pytest.approx(sum(found.values()), rel=0.5)


def test_only_what_the_traffic_needs_may_be_asked(graph: Graph, owners: Partition) -> None:
    with pytest.raises(PrivacyError, match="not part of the agreed run"):
        exchange_on(with_gen(graph, owners)).pass_on(local_request, Ask(0))
    full = small_setup(graph, owners, "neighgen", "paper", neighgen=GEN)
    with pytest.raises(PrivacyError, match="not part of the agreed run"):
        exchange_on(full).pass_on(local_offer, OfferTurn(0, False))


@pytest.mark.slow
def test_alone_nothing_is_rounded() -> None:
    alone = {"run": {"method": "locsage+"}, "neighgen": GEN}
    results = [
        run_config(load_config(SMALL, alone, {"traffic": {"how": how}}))
        for how in ("full", "low-rank")
    ]
    assert results[0].record.model_sha256 == results[1].record.model_sha256


def test_what_does_not_fit_is_refused(graph: Graph, owners: Partition) -> None:
    setup = with_gen(graph, owners)
    first, second, _ = owners_of(setup)
    offer = local_offer(first, OfferTurn(0, False))
    small = replace(offer.question, z=offer.question.z[:3])
    with pytest.raises(PrivacyError, match=r"over 3 embeddings, but below 4"):
        answer_offers(second, Offers(0, {0: offer.news}, {0: small}))
    odd = replace(offer.news, change=offer.news.change | {"more": torch.zeros(1)})
    with pytest.raises(ProtocolError, match="does not fit the agreed shape"):
        answer_offers(second, Offers(0, {0: odd}, {}))
    fine = answer_offers(second, Offers(0, {0: offer.news}, {0: offer.question}))
    for t, parts in ((1, fine.of[0]), (0, {"rest": torch.zeros(1, dtype=torch.int16)})):
        with pytest.raises(ProtocolError, match="does not answer the question of round 0"):
            update_by_answers(first, AnswerSum(t, parts, 1.0))
    found = taken_out(fine.of[0], offer.question.frame, fgen_of(setup.plan))
    assert all(bool(one.any()) for one in found.values())


def test_nobody_can_send_more_than_its_share_or_less_than_was_asked(
    graph: Graph, owners: Partition
) -> None:
    setup = with_gen(graph, owners)
    first, second, _ = owners_of(setup)
    offer = local_offer(first, OfferTurn(0, False))
    assert strange_offer(setup.plan, 0, OfferTurn(0, False), offer) is None
    assert "of round 0" in str(strange_offer(setup.plan, 0, OfferTurn(1, False), offer))
    empty = replace(offer, news=HgNews(-1, {}, {}))
    for turn, one in ((OfferTurn(0, True), offer), (OfferTurn(0, False), empty)):
        assert "without its generator" in str(strange_offer(setup.plan, 0, turn, one))
    offers = Offers(0, {0: offer.news}, {0: offer.question})
    answers = answer_offers(second, offers)
    assert strange_answers(setup.plan, 1, offers, answers) is None
    for value in (2**14, -(2**15)):
        rest = torch.full_like(answers.of[0]["rest"], value)
        large = replace(answers, of={0: answers.of[0] | {"rest": rest}})
        assert "beyond" in str(strange_answers(setup.plan, 1, offers, large))
    wide = {part: found.int() for part, found in answers.of[0].items()}
    assert "of type torch.int32" in str(
        strange_answers(setup.plan, 1, offers, replace(answers, of={0: wide}))
    )
    assert "for owners [0]" in str(strange_answers(setup.plan, 1, Offers(0, {}, {}), answers))


def test_a_generator_that_diverged_is_not_offered(graph: Graph, owners: Partition) -> None:
    owner, other, _ = owners_of(with_gen(graph, owners))
    offer = local_offer(owner, OfferTurn(0, True))
    broken = {name: weight * float("nan") for name, weight in offer.news.hg.items()}
    reply = answer_offers(other, Offers(0, {0: HgNews(-1, {}, broken)}, {0: offer.question}))
    assert not any(bool(part.any()) for part in reply.of[0].values())
    learner(owner).neighgen.hg.dgen.bias.data.fill_(float("nan"))
    with pytest.raises(ProtocolError, match=r"lower neighgen\.eta"):
        local_offer(owner, OfferTurn(1, False))


@pytest.mark.slow
def test_it_mends_as_full_messages_do(graph: Graph, owners: Partition) -> None:
    """With all directions and 16 bits the generators hardly differ."""
    trained = []
    for traffic in ({"how": "full"}, {"how": "whole", "bits": 16}):
        gen = GEN | {"counts": "round", "local_steps": 1, "rounds_gen": 3}
        setup = small_setup(graph, owners, "neighgen", neighgen=gen, traffic=traffic)
        everyone = owners_of(setup)
        by_neighgen(exchange_on(setup, InProcessEngine(everyone)))
        trained.append([parameters_of(learner(owner).neighgen) for owner in everyone])
    for one, other in zip(*trained, strict=True):
        for name, weight in one.items():
            far = float((weight - other[name]).abs().mean())
            assert far < 0.1 * 3 * GEN["eta"]  # of three steps of Adam, a tenth
