"""NeighGen rows: solve a gradient of the last layer for the rows it pulls towards.

Where sums are hidden, the server must first read an offer, which is sealed. An owner always
gets the sum of the others' gradients for it: *on the sum* are the rows that it can solve for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.errors import ProtocolError
from fedsage.mending.neighgen import feed_forward
from fedsage.mending.offers import Answers, Offer, Offers, fgen_of
from fedsage.mending.sealed_neighgen import sealed_answers
from fedsage.mending.whole_neighgen import answer_offers, moved
from fedsage.models.gen_learner import noise_stream
from fedsage.models.neighgen import Held, Hg, first_held, sample_rows, whole_counts
from fedsage.models.parameters import Parameters, load_parameters
from fedsage.privacy.sums import Whole, decode
from fedsage.protocol.changes.weights import taken_out
from fedsage.protocol.messages import OwnerId, combined
from fedsage.protocol.wire import decode as from_frame
from fedsage.rng import generator
from fedsage.shapes import Array

CLOSE = 0.99  # cosine of a vector that counts as a row
MOST = 2000  # vectors that are combined
SAME = 0.05  # squared distance, on features known in both, of two views of one row
Parts = Float[Array, "found d_x"]
Known = Bool[Array, "found d_x"]
ATTEMPT = Attempt(
    "neighgen-rows",
    "curious server",
    "offers and gradients of NeighGen, which it passes on",
    "rows with cosine > 0.99",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An owner's answer to an offer of another, as the server can read it."""

    asker: OwnerId
    t: int
    z: Tensor
    hg: Parameters
    gradient: Parameters
    rows: int = 1  # that each generated neighbor is drawn to: one of each owner


@attack("neighgen-rows")
def neighgen_rows(case: Case) -> Finding:
    """Rebuild the rows of an owner that are nearest to others' generated neighbors."""
    exchanges = {feed_forward.name, answer_offers.name, sealed_answers.name}
    if not exchanges & {*case.recording.names}:
        return ATTEMPT.not_run("this run mends without NeighGen's exchange")
    if case.plan.config.neighgen.output != "relu":
        return ATTEMPT.not_run("it works only for fGen with ReLU")
    total = sum(rows_in(case, answers_of(case, j), [j]) for j in case.attacked)
    rows = sum(len(case.rows_of(j)) for j in case.attacked)
    if case.masked:
        return ATTEMPT.found(total, 0, total > 0, note=f"of {rows} rows; offers are sealed")
    for_owner = sum(
        rows_in(case, sums_for(case, i), [j for j in everyone(case) if j != i])
        for i in case.attacked
    )
    note = f"of {rows} rows; on the sum: rows of all others that an owner can solve for"
    return ATTEMPT.found(total, 0, total > 0, float(for_owner), note)


def everyone(case: Case) -> range:
    """All owners."""
    return range(len(case.graphs))


def rows_in(case: Case, answers: Iterable[Answer], owners: list[OwnerId]) -> int:
    """How many rows of these owners come out of answers."""
    solved = [values_in(case, one) for one in answers]
    if not solved:
        return 0
    parts = np.concatenate([values for values, _ in solved])[:MOST]
    known = np.concatenate([mask for _, mask in solved])[:MOST]
    cosines = put_together(parts, known) @ np.concatenate(list(map(case.rows_of, owners))).T
    return len(np.unique(cosines.argmax(axis=1)[cosines.max(axis=1) > CLOSE]))


def sums_for(case: Case, asker: OwnerId) -> Iterator[Answer]:
    """What an owner gets: for every offer of its own, the sum of the others' gradients."""
    found = [
        [one for one in answers_of(case, j) if one.asker == asker]
        for j in everyone(case)
        if j != asker
    ]
    for same in zip(*found, strict=False):
        total = reduce(combined, [one.gradient for one in same])
        yield replace(same[0], gradient=total, rows=len(same))


def answers_of(case: Case, owner: OwnerId) -> Iterator[Answer]:
    """Every gradient of an owner for others, with the offer it answers."""
    for offers, reply in asked_and_answered(case, feed_forward.name, owner):
        for i, offer in offers.of.items():
            yield Answer(i, offer.t, offer.z, offer.hg, reply.of[i])
    plan = case.plan
    first = first_held(plan.d_x, plan.config.neighgen, plan.seed)
    held: dict[OwnerId, Held] = {}
    for offers, reply in in_whole_numbers(case, owner):
        for i, news in offers.news.items():
            held[i] = moved(held.get(i, first), i, offers.t, news)
        for i, question in offers.questions.items():
            z = decode(question.z, np.asarray([question.exponent])).float()
            gradient = taken_out(reply.of[i], question.frame, fgen_of(plan))
            yield Answer(i, offers.t, z, held[i].hg, gradient)


def in_whole_numbers(case: Case, owner: OwnerId) -> Iterator[tuple[Offers, Answers]]:
    """Offers in integers, and the answers to them; sealed ones as far as they can be read."""
    yield from asked_and_answered(case, answer_offers.name, owner)
    for asked, answers in asked_and_answered(case, sealed_answers.name, owner):
        found = {i: offer for i, box in asked.boxes.items() if (offer := as_it_is(box))}
        news = {i: offer.news for i, offer in found.items()}
        yield Offers(asked.t, news, {i: one.question for i, one in found.items()}), answers


def as_it_is(box: Whole) -> Offer | None:
    """The offer in a box, if that is not sealed."""
    try:
        return from_frame(Offer, box.numpy().tobytes())
    except ProtocolError:
        return None


def asked_and_answered(case: Case, name: str, owner: OwnerId) -> Iterator[tuple[Any, Any]]:
    """The requests that an owner got, and its replies."""
    find = case.recording.find
    for (_, asked), (_, reply) in zip(
        find(name, "down", owner), find(name, "up", owner), strict=True
    ):
        yield asked, reply


@torch.no_grad()
def values_in(case: Case, answer: Answer) -> tuple[Parts, Known]:
    """For each generated neighbor, the values of its nearest row, where fGen is above zero.

    The gradient of the last layer is HᵀG, and whoever has the offer can compute the hidden
    layer H. Where fGen's output is above zero, G is its distance from the row, times 2 / |Z|.
    """
    plan = case.plan
    hg = Hg(plan.d_x, plan.config.neighgen, generator(0, "overwritten"))
    load_parameters(hg, answer.hg)
    h, generated = hidden_and_rows(hg, answer, noise_stream(plan.seed, answer.asker, answer.t))
    last = len(hg.fgen.bias) - 1
    weights, bias = (answer.gradient[f"fgen.{part}.{last}"] for part in ("theta_f", "bias"))
    hidden = torch.cat([h, torch.ones(len(h), 1)], dim=1).double()
    seen = torch.cat([weights, bias[None]]).double()
    solved = torch.linalg.pinv(hidden.T, rtol=1e-7) @ seen
    known = generated > 0
    values = torch.where(known, answer.rows * generated - solved * len(answer.z) / 2, 0.0)
    return values.numpy().astype(np.float64), known.numpy()


def hidden_and_rows(
    hg: Hg, answer: Answer, stream: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """FGen's last hidden layer and its output, as anyone with the offer can compute them."""
    counts = whole_counts(hg.dgen(answer.z), hg.settings, stream)
    of = sample_rows(counts)
    noise = stream.standard_normal((len(of), answer.z.shape[1]), dtype=np.float32)
    h = answer.z[torch.from_numpy(of)] + torch.from_numpy(noise * hg.settings.noise)
    layers = list(zip(hg.fgen.theta_f, hg.fgen.bias, strict=True))
    for theta_f, bias in layers[:-1]:
        h = torch.relu(torch.addmm(bias, h, theta_f))
    theta_f, bias = layers[-1]
    return h, torch.relu(torch.addmm(bias, h, theta_f)).double()


def put_together(parts: Parts, known: Known) -> Parts:
    """Vectors of length one, each completed from others that agree with it."""
    there, squares = known.astype(np.float64), np.square(parts)
    apart = squares @ there.T + there @ squares.T - 2 * parts @ parts.T
    shared = there @ there.T
    overlap = np.abs(parts) @ np.abs(parts).T
    alike = ((apart < SAME) & (shared > 0) & (overlap > 1)).astype(np.float64)
    np.fill_diagonal(alike, 1)
    count = (alike @ there).clip(1)
    merged = np.where(alike @ there > 0, alike @ parts / count, 0.0)
    return np.asarray(merged / np.linalg.norm(merged, axis=1, keepdims=True).clip(1e-12))
