"""NeighGen's exchange where sums are hidden: the server carries it, and cannot read it.

The numbers are those of ``whole_neighgen.py``, so the generators are the same to the bit. An
offer is sealed for all owners. Answers are added up under masks, like all that is summed, and
what is for D_i has a veil besides that only D_i can take off: it sees the sum over all others,
and the server sees nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from fedsage.errors import Absent, PrivacyError
from fedsage.mending.generator import GenDone, learner, local_steps
from fedsage.mending.offers import (
    Answers,
    AnswerSum,
    Offer,
    Offers,
    OfferTurn,
    answer_form,
    full_sizes,
    words_of_offer,
)
from fedsage.mending.whole_neighgen import (
    answer_offers,
    full_answers,
    local_offer,
    others_gradient,
)
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import Whole
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.hidden_sums.messages import Note
from fedsage.protocol.messages import Ask, Each, Ints, OwnerId, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Sealed, Summed, in_sums, procedure
from fedsage.protocol.wire import encode as to_frame

if TYPE_CHECKING:
    from fedsage.protocol.hidden_sums.masks import Masks

FEWEST = 3  # owners in a sum of answers: with fewer, an owner would see another's alone


@message
class SealedOffers:
    """Procedure A, S → D_j: the offers of all others, sealed, and everybody's signatures."""

    t: int
    boxes: dict[OwnerId, Whole]
    signatures: dict[OwnerId, str]  # of all that are to be answered, D_j's own among them


@message
class VeiledSum:
    """Procedure A, S → D_i: the sum of answers for D_i under the veils of who added to it."""

    t: int
    parts: Parameters
    scale: float  # to make up for owners that did not answer
    added: dict[OwnerId, bool]


def masks_of(owner: DataOwner) -> Masks:
    """The owner's masks and keys."""
    if owner.sum_masks is None:
        raise PrivacyError("This owner has no keys for hidden sums. Nothing was sent.")
    return owner.sum_masks


def about_offer(t: int) -> str:
    """What a sealed offer is about."""
    return f"the offer of round {t}"


def about_answers(t: int) -> str:
    """What veils are about."""
    return f"answers of round {t}"


@procedure(
    phase="mending",
    uses=Sealed,
    shapes=lambda plan: {"box": Ints((None,))},
    leaves=lambda config: words_of_offer(config, ", and cannot read them"),
    full=lambda plan, turn: (len(to_frame(Ask(0))), full_sizes(plan)[0]),
    when=in_sums,
)
def sealed_offer(owner: DataOwner, turn: OfferTurn) -> Note:
    """Procedure C (LocalRequest), for all other owners to read."""
    from fedsage.protocol.hidden_sums.notes import written  # cryptography takes time to load

    note = written(masks_of(owner), local_offer(owner, turn), about_offer(turn.t))
    learner(owner).signature = note.signature
    return note


@procedure(
    phase="mending",
    uses=Summed,
    shapes=lambda plan: {"of": Each(answer_form(plan))},
    leaves="In each of these rounds: gradients that tell the others how far their generated "
    "features are from your nearest nodes, in integers of a few bits. An owner can read only "
    "the sum of all gradients for it; the server, none.",
    full=full_answers,
    alike=lambda offers: replace(offers, boxes={}),
    rounds=True,
    fewest=FEWEST,
    when=in_sums,
)
def sealed_answers(owner: DataOwner, offers: SealedOffers) -> Answers:
    """Procedure D (FeedForward): the gradient for every other owner, under a veil for it."""
    from fedsage.protocol.hidden_sums.notes import veiled

    own = learner(owner)
    if offers.t <= own.answered:
        raise PrivacyError(f"Round {offers.t} was asked for again. Nothing was sent.")
    found = {i: one for i, one in opened(owner, offers).items() if i != owner.id}
    if len(found) + 1 < FEWEST:
        raise PrivacyError(
            f"Answers to {len(found)} other owners were asked for. With fewer than "
            f"{FEWEST - 1}, one of them would see a single answer. Nothing was sent."
        )
    news = {i: one.news for i, one in found.items()}
    questions = {i: one.question for i, one in found.items()}
    answers = answer_offers(owner, Offers(offers.t, news, questions)).of
    own.answered = offers.t
    about = about_answers(offers.t)
    hidden = {i: veiled(masks_of(owner), one, i, about) for i, one in answers.items()}
    return Answers(dict(sorted({**hidden, owner.id: nothing(answers)}.items())))


def opened(owner: DataOwner, offers: SealedOffers) -> dict[OwnerId, Offer]:
    """The offers of all others; refuses to leave out any of those that all others answer."""
    from fedsage.protocol.hidden_sums.notes import read

    others = offers.signatures.keys() - {owner.id}
    ours = offers.signatures.get(owner.id) == learner(owner).signature
    if not ours or offers.boxes.keys() != others:
        raise PrivacyError(
            f"The offers of round {offers.t} are not those that all owners are to answer. "
            "Nothing was sent."
        )
    about = about_offer(offers.t)
    notes = {i: Note(offers.boxes[i], offers.signatures[i]) for i in sorted(others)}
    return {i: read(masks_of(owner), i, Offer, note, about) for i, note in notes.items()}


def nothing(answers: dict[OwnerId, Parameters]) -> Parameters:
    """What an owner adds to the sum for itself."""
    form = next(iter(answers.values()))
    return {name: torch.zeros_like(one) for name, one in form.items()}


@procedure(
    phase="mending",
    uses=Summed,
    keeps=learner,
    leaves="In each of these rounds: the losses of your generator.",
    full=lambda plan, total: (full_sizes(plan)[1], len(to_frame(GenDone(0.1, 0.1, 0.1, 0.1)))),
    alike=lambda total: Ask(total.t),
    rounds=True,
    when=in_sums,
)
def update_by_veiled_sum(owner: DataOwner, total: VeiledSum) -> GenDone:
    """Procedure E (UpdateNeighGen) with the others' gradients, which only D_i can read."""
    from fedsage.protocol.hidden_sums.notes import unveiled

    writers = sorted(total.added.keys() - {owner.id})
    parts = unveiled(masks_of(owner), total.parts, writers, about_answers(total.t))
    others = others_gradient(owner, AnswerSum(total.t, parts, total.scale))
    settings = owner.config.neighgen
    return local_steps(owner, total.t, others, settings.alpha * settings.lambda_f)


def exchange_under_seal(exchange: Exchange, t: int) -> GenDone:
    """Procedure A (ServerExecutionForGen) where sums are hidden: one round."""
    owners = exchange.owners
    here = exchange.ready(2)  # the same keys for offers and both sums
    at_first = owners if t == 0 else []
    offered = exchange.answered.get(sealed_offer.name, at_first)
    holding = exchange.answered.get(sealed_answers.name, at_first)
    lacking = any(i not in offered or i not in holding for i in owners)
    notes = exchange.pass_on(sealed_offer, dict.fromkeys(here, OfferTurn(t, lacking)))  # C
    if len(notes) < FEWEST:
        raise Absent(
            f"{len(notes)} owners made an offer, but {FEWEST} are needed: with fewer, one "
            "would see another's answer alone."
        )
    signatures = {i: note.signature for i, note in notes.items()}
    boxes = {i: note.box for i, note in notes.items()}
    asked = {
        j: SealedOffers(t, {i: box for i, box in boxes.items() if i != j}, signatures)
        for j in notes
    }
    total = exchange.sum(sealed_answers, asked, least=max(FEWEST, exchange.engine.min_owners))
    added = exchange.answered[sealed_answers.name]
    sums = {i: veiled_sum(t, total.of[i], i, added, len(notes) - 1) for i in notes}
    return exchange.mean(update_by_veiled_sum, sums)  # E


def veiled_sum(
    t: int, parts: Parameters, i: OwnerId, added: Sequence[OwnerId], all_of_them: int
) -> VeiledSum:
    """What D_i gets, and the factor that makes up for owners that did not answer."""
    others = [j for j in added if j != i]
    return VeiledSum(t, parts, all_of_them / len(others), dict.fromkeys(added, True))
