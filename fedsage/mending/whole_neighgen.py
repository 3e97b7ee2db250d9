"""NeighGen's exchange in few bytes: procedures A, C, D and E in integers.

An offer is how far H^g_i has moved since the last one. All others and D_i hold the same older
H^g_i, so that what is lost in one round is sent in the next. With it comes a question, with the
frame for answers: D_i answers its own question first, and so sees in which directions the
others' answers will lie and how large they will be. Their integers add up exactly.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import torch

from fedsage.config import Config
from fedsage.errors import ProtocolError
from fedsage.mending.generator import (
    GenDone,
    learner,
    local_steps,
    partners_of,
    refuse_few,
    refuse_unfit,
)
from fedsage.mending.offers import (
    Answers,
    AnswerSum,
    HgNews,
    Offer,
    Offers,
    OfferTurn,
    Question,
    answer_form,
    answer_ring,
    fgen_of,
    full_sizes,
    news_form,
    own_ring,
    partners_in,
    question_form,
    rank_of,
    strange_answers,
    strange_offer,
    words_of_offer,
)
from fedsage.models.neighgen import Held
from fedsage.models.parameters import Parameters, sha256_of
from fedsage.privacy.sums import decode, encode, exponents_for
from fedsage.protocol.changes.weights import frame_for, put_in, shapes_of, taken_out
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.guard import all_finite
from fedsage.protocol.messages import Ask, Each, OwnerId, combined, misfit
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import (
    Sealed,
    Summed,
    in_sums,
    in_whole_numbers,
    procedure,
)
from fedsage.protocol.wire import encode as to_frame
from fedsage.rng import Stream, generator


def in_open_numbers(config: Config) -> bool:
    """For runs with messages in whole numbers that the server can read."""
    return in_whole_numbers(config) and not in_sums(config)


@procedure(
    phase="mending",
    uses=Sealed,
    shapes=lambda plan: {"news": news_form(plan), "question": question_form(plan)},
    check=strange_offer,
    leaves=words_of_offer,
    full=lambda plan, turn: (len(to_frame(Ask(0))), full_sizes(plan)[0]),
    when=in_open_numbers,
)
def local_offer(owner: DataOwner, turn: OfferTurn) -> Offer:
    """Procedure C (LocalRequest) in integers."""
    own = learner(owner)
    own.begin(turn.t)
    stream = generator(owner.seed, "offer", owner.id, turn.t)
    before = own.known(owner.id)
    change = change_of_hg(owner.plan, own.hg(), before, stream)
    held = own.held[owner.id] = after(before, turn.t, change)
    news = HgNews(before.t, change, held.hg if turn.whole else {})
    z, ring = own.embeddings(turn.t), own_ring(owner.plan)
    unit = exponents_for(z.abs().max()[None].double().numpy(), ring)
    whole = encode(z, unit, ring, stream)
    mine, _ = own.gradient_at(owner.id, turn.t, decode(whole, unit).float(), held.hg)
    frame = frame_for(mine, rank_of(owner.config), ring, stream)
    own.asked = turn.t, frame
    return Offer(turn.t, news, Question(whole, int(unit[0]), frame))


def change_of_hg(plan: Plan, hg: Parameters, held: Held, stream: Stream) -> Parameters:
    """How far H^g is from what others hold, in integers with their frame."""
    change = {name: weight - held.hg[name] for name, weight in hg.items()}
    if not all(map(all_finite, change.values())):
        raise ProtocolError("training diverged there: lower neighgen.eta")
    ring = own_ring(plan)
    frame = frame_for(change, rank_of(plan.config), ring, stream)
    return frame | put_in(change, frame, ring, stream)


def full_answers(plan: Plan, offers: Offers) -> tuple[int, int]:
    """The bytes of the offers that an owner gets, and of its gradients, in full messages."""
    offer, gradient = full_sizes(plan)
    return partners_in(plan) * offer, partners_in(plan) * gradient


@procedure(
    phase="mending",
    uses=Sealed,
    shapes=lambda plan: {"of": Each(answer_form(plan))},
    check=strange_answers,
    leaves="In each of these rounds: gradients that tell the others how far their generated "
    "features are from your nearest nodes, in integers of a few bits.",
    full=full_answers,
    when=in_open_numbers,
)
def answer_offers(owner: DataOwner, offers: Offers) -> Answers:
    """Procedure D (FeedForward) in integers: for every question the gradient of its L^f.

    Refuses a batch so small that the gradient would reveal single rows of X_i.
    """
    own, form, asked = learner(owner), news_form(owner.plan), question_form(owner.plan)
    for i, question in offers.questions.items():
        refuse_few(owner, i, len(question.z))
        refuse_unfit(question, asked, i)
    for i, news in offers.news.items():
        refuse_unfit(news, form, i)
        own.held[i] = moved(own.known(i), i, offers.t, news)
    return Answers({i: answer(owner, i, offers.t, one) for i, one in offers.questions.items()})


def moved(held: Held, i: OwnerId, t: int, news: HgNews) -> Held:
    """What an owner holds of D_i's H^g after its news."""
    if news.hg:
        return Held(t, news.hg)
    if held.t != news.since:
        raise ProtocolError(f"it does not hold owner {i}'s generator of round {news.since}")
    return after(held, t, news.change)


def after(held: Held, t: int, change: Parameters) -> Held:
    """What all hold after a change in integers, which come with their frame."""
    shapes = shapes_of(held.hg)
    return held.after(t, sha256_of(change), lambda: taken_out(change, change, shapes))


def answer(owner: DataOwner, i: OwnerId, t: int, question: Question) -> Parameters:
    """The gradient of L^f_{i,j}, in D_i's frame."""
    own = learner(owner)
    z = decode(question.z, np.asarray([question.exponent])).float()
    found = own.gradient_for(i, t, z, own.known(i).hg)
    if not all(map(all_finite, found.values())):  # a broken question harms only D_i itself
        found = {name: torch.zeros_like(each) for name, each in found.items()}
    stream = generator(owner.seed, "answer", owner.id, i, t)
    return put_in(found, question.frame, answer_ring(owner.plan), stream)


@procedure(
    phase="mending",
    uses=Summed,
    keeps=learner,
    leaves="In each of these rounds: the losses of your generator.",
    full=lambda plan, total: (full_sizes(plan)[1], len(to_frame(GenDone(0.1, 0.1, 0.1, 0.1)))),
    when=in_open_numbers,
)
def update_by_answers(owner: DataOwner, total: AnswerSum) -> GenDone:
    """Procedure E (UpdateNeighGen) with the others' gradients, decoded from integers."""
    others, settings = others_gradient(owner, total), owner.config.neighgen
    return local_steps(owner, total.t, others, settings.alpha * settings.lambda_f)


def others_gradient(owner: DataOwner, total: AnswerSum) -> Parameters:
    """The gradient that the sum of answers stands for, in D_i's frame; empty if none came."""
    if not total.parts:
        return {}
    t, frame = learner(owner).asked
    why = misfit(total.parts, answer_form(owner.plan))
    if t != total.t or why:
        raise ProtocolError(
            f"A sum came back that does not answer the question of round {t}: "
            f"{why or f'it is of round {total.t}'}. Do all parties use the same settings?"
        )
    found = taken_out(total.parts, frame, fgen_of(owner.plan))
    return {name: each * total.scale for name, each in found.items()}


def exchange_in_whole_numbers(exchange: Exchange, t: int) -> GenDone:
    """Procedure A (ServerExecutionForGen) in integers: one round.

    All owners hold every H^g as last offered, except owners that were absent, and except after
    a restart: then every D_i whose H^g somebody lacks sends it in full.
    """
    plan, owners = exchange.plan, exchange.owners
    at_first = owners if t == 0 else []
    offered = exchange.answered.get(local_offer.name, at_first)
    holding = exchange.answered.get(answer_offers.name, at_first)

    def lacks(j: OwnerId, i: OwnerId) -> bool:
        return i not in offered or j not in holding

    turns = {i: OfferTurn(t, any(lacks(j, i) for j in owners if j != i)) for i in owners}
    offers = exchange.pass_on(local_offer, turns)  # C
    chosen = partners_of(
        list(offers), plan.config.neighgen.partners, plan.stream("partners", t)
    )
    asked = {
        j: Offers(
            t,
            {i: news_for(one, lacks(j, i)) for i, one in offers.items() if i != j},
            {i: one.question for i, one in offers.items() if j in chosen[i]},
        )
        for j in offers
    }
    answers = exchange.pass_on(answer_offers, asked if len(offers) > 1 else {})  # D
    sums = {
        i: sum_of([answers[j].of[i] for j in chosen[i] if j in answers], t, len(offers) - 1)
        for i in offers
    }
    return exchange.mean(update_by_answers, sums)  # E


def news_for(offer: Offer, lacking: bool) -> HgNews:
    """The change for owners that hold the older H^g; the whole H^g for those that do not."""
    return replace(offer.news, change={}) if lacking else replace(offer.news, hg={})


def sum_of(answers: list[Parameters], t: int, all_of_them: int) -> AnswerSum:
    """The sum, and the factor that makes up for owners that did not answer."""
    if not answers:
        return AnswerSum(t, {}, 1.0)
    return AnswerSum(t, reduce(combined, answers), all_of_them / len(answers))
