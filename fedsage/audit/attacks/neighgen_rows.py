"""NeighGen rows: solve a gradient of the last layer for the rows it pulls towards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.mending.neighgen import feed_forward
from fedsage.mending.offers import fgen_of
from fedsage.mending.whole_neighgen import answer_offers, moved
from fedsage.models.gen_learner import noise_stream
from fedsage.models.neighgen import Held, Hg, first_held, sample_rows, whole_counts
from fedsage.models.parameters import Parameters, load_parameters
from fedsage.privacy.sums import decode
from fedsage.protocol.changes.weights import taken_out
from fedsage.protocol.messages import OwnerId
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


@attack("neighgen-rows")
def neighgen_rows(case: Case) -> Finding:
    """Rebuild the rows of an owner that are nearest to others' generated neighbors."""
    if case.masked:
        return ATTEMPT.not_run("sums are hidden: such an exchange is refused")
    if not {feed_forward.name, answer_offers.name} & {*case.recording.names}:
        return ATTEMPT.not_run("this run mends without NeighGen's exchange")
    if case.plan.config.neighgen.output != "relu":
        return ATTEMPT.not_run("it works only for fGen with ReLU")
    total, rows = 0, 0
    for j in case.attacked:
        solved = [values_in(case, one) for one in answers_of(case, j)]
        parts = np.concatenate([values for values, _ in solved])[:MOST]
        known = np.concatenate([mask for _, mask in solved])[:MOST]
        truth = case.rows_of(j)
        cosines = put_together(parts, known) @ truth.T
        total += len(np.unique(cosines.argmax(axis=1)[cosines.max(axis=1) > CLOSE]))
        rows += len(truth)
    note = f"of {rows} rows; an owner gets the sum over all others of the same gradients"
    return ATTEMPT.found(total, 0, total > 0, note=note)


def answers_of(case: Case, owner: OwnerId) -> Iterator[Answer]:
    """Every gradient of an owner for others, with the offer it answers."""
    find, plan = case.recording.find, case.plan
    pairs = zip(find(feed_forward.name, "down", owner), find(feed_forward.name, "up", owner),
                strict=True)  # fmt: skip
    for (_, offers), (_, reply) in pairs:
        for i, offer in offers.of.items():
            yield Answer(i, offer.t, offer.z, offer.hg, reply.of[i])
    first = first_held(plan.d_x, plan.config.neighgen, plan.seed)
    held: dict[OwnerId, Held] = {}
    pairs = zip(find(answer_offers.name, "down", owner), find(answer_offers.name, "up", owner),
                strict=True)  # fmt: skip
    for (_, asked), (_, answers) in pairs:
        for i, news in asked.news.items():
            held[i] = moved(held.get(i, first), i, asked.t, news)
        for i, question in asked.questions.items():
            z = decode(question.z, np.asarray([question.exponent])).float()
            gradient = taken_out(answers.of[i], question.frame, fgen_of(plan))
            yield Answer(i, asked.t, z, held[i].hg, gradient)


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
    values = torch.where(known, generated - solved * len(answer.z) / 2, 0.0)
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
