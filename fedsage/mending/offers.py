"""NeighGen's exchange in few bytes: messages of integers, and their form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import torch

from fedsage.config import Config
from fedsage.mending.generator import hg_of
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import Ring, Whole, ring_for
from fedsage.protocol.changes.weights import shapes_of, sizes_in
from fedsage.protocol.messages import (
    AtMost,
    Classifier,
    Form,
    Ints,
    OwnerId,
    form_of,
    message,
    misfit,
)
from fedsage.protocol.plan import Plan
from fedsage.protocol.wire import encode as to_frame


@message
class OfferTurn:
    """S → D_i: make the offer of round ``t``; ``whole`` if somebody missed the last one."""

    t: int
    whole: bool


@message
class HgNews:
    """Procedure C, D_i → S → every D_j: how far H^g_i has moved since round ``since``.

    For owners that do not hold the older H^g_i, the new H^g_i itself.
    """

    since: int
    change: Parameters
    hg: Parameters


@message
class Question:
    """Procedure C, D_i → S → D_j: Z_i^t, and in which directions and units to answer."""

    z: Whole
    exponent: int  # of z's unit
    frame: Parameters


@message
class Offer:
    """Procedure C, D_i → S: what others need to run H^g_i on Z_i^t, in whole numbers."""

    t: int
    news: HgNews
    question: Question


@message
class Offers:
    """Procedure A, S → D_j: the news of all others, and the questions it has to answer."""

    t: int
    news: dict[OwnerId, HgNews]
    questions: dict[OwnerId, Question]


@message
class Answers:
    """Procedure D, D_j → S: for every D_i that asked, the gradient of L^f_{i,j} in H^g_i."""

    of: dict[OwnerId, Parameters]


@message
class AnswerSum:
    """Procedure A, S → D_i: the sum of those gradients over all others, in whole numbers."""

    t: int
    parts: Parameters  # empty if nobody answered
    scale: float  # to make up for owners that were not asked or did not answer


def rank_of(config: Config) -> int:
    """The number of directions of a large weight; 0 if all are sent in full."""
    return config.traffic.rank if config.traffic.how == "low-rank" else 0


def partners_in(plan: Plan) -> int:
    """How many others answer a question."""
    others = max(1, len(plan.nodes) - 1)
    return min(plan.config.neighgen.partners or others, others)


def answer_ring(plan: Plan) -> Ring:
    """The ring of summed answers; they may be many times as large as D_i expects."""
    return ring_for(partners_in(plan), 2 * plan.config.traffic.bits)


def own_ring(plan: Plan) -> Ring:
    """The ring of what is never added up."""
    return Ring(plan.config.traffic.bits, 1)


def fgen_of(plan: Plan) -> dict[str, torch.Size]:
    """The shapes of others' gradients: fGen's, as dGen's count is an integer without one."""
    found = shapes_of(hg_of(plan))
    return {name: shape for name, shape in found.items() if name.startswith("fgen.")}


def ints(sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Form]:
    """Integers of those sizes."""
    return {name: Ints(size) for name, size in sizes.items()}


def question_form(plan: Plan) -> dict[str, Form]:
    """The form of a question."""
    gen = plan.config.neighgen
    frame, _ = sizes_in(fgen_of(plan), rank_of(plan.config))
    return {"z": Ints((AtMost(gen.batch_size), gen.widths[-1])), "frame": ints(frame)}


def answer_form(plan: Plan) -> dict[str, Form]:
    """The form of an answer, and of their sum."""
    _, parts = sizes_in(fgen_of(plan), rank_of(plan.config))
    return ints(parts)


def news_form(plan: Plan) -> dict[str, Form]:
    """The form of news: a change, or H^g, or both."""
    frame, parts = sizes_in(shapes_of(hg_of(plan)), rank_of(plan.config))
    change, hg = ints(frame | parts), form_of(hg_of(plan))
    return {
        "change": lambda found: misfit(found, change) if found else None,
        "hg": lambda found: misfit(found, hg) if found else None,
    }


def strange_offer(plan: Plan, owner: OwnerId, turn: OfferTurn, offer: Offer) -> str | None:
    """Refuse an offer of another round, or one that lacks what was asked for."""
    if offer.t != turn.t:
        return f"an offer of round {offer.t}, not of round {turn.t}"
    complete = offer.news.change and bool(offer.news.hg) == turn.whole
    return None if complete else "an offer without its generator"


def strange_answers(plan: Plan, owner: OwnerId, offers: Offers, answers: Answers) -> str | None:
    """Refuse answers to other questions, or numbers beyond an owner's share of the ring."""
    if {*answers.of} != {*offers.questions}:
        return f"gradients for owners {sorted(answers.of)}"
    ring = answer_ring(plan)
    found = (ring.strange(one) for parts in answers.of.values() for one in parts.values())
    return next((why for why in found if why), None)


def words_of_offer(config: Config, unread: str = "") -> str:
    """What leaves in procedure C."""
    return (
        f"In each of {config.neighgen.rounds_gen} rounds before training: embeddings of a "
        "batch of your nodes and how far the weights of your generator have moved, in integers "
        "of a few bits, and which directions matter most in a gradient over your own nodes; "
        f"the server passes them to all other owners{unread}."
    )


@lru_cache(maxsize=4)
def full_sizes(plan: Plan) -> tuple[int, int]:
    """The bytes of an offer and of a gradient in full messages."""
    hg, gen = hg_of(plan), plan.config.neighgen
    z = torch.zeros(gen.batch_size, gen.widths[-1])
    fgen = {name: hg[name] for name in fgen_of(plan)}
    return len(to_frame(Classifier(hg | {"z": z}, {}))), len(to_frame(Classifier(fgen, {})))


def carried_bytes(plan: Plan) -> int:
    """About how many bytes are exchanged, before integers are compressed."""
    rank, owners = rank_of(plan.config), len(plan.nodes)
    frame, answers = sizes_in(fgen_of(plan), rank)
    change = count_of(*sizes_in(shapes_of(hg_of(plan)), rank))
    gen = plan.config.neighgen
    asked = gen.batch_size * gen.widths[-1] + count_of(frame) + count_of(answers)
    each = owners * change + (1 + partners_in(plan)) * asked
    return gen.rounds_gen * owners * each * plan.config.traffic.bits // 8


def count_of(*sizes: Mapping[str, tuple[int, ...]]) -> int:
    """How many numbers there are in tensors of those sizes."""
    return sum(math.prod(size) for some in sizes for size in some.values())
