"""After training: how sure the classifier may be, and what it gets wrong, as sums over owners.

Every owner counts on its own graphs, in the view that the run has chosen. All numbers are
whole, so that they can be added up where sums are hidden. Each question is answered once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from fedsage.models.calibration import AS_IS, GRID, Calibration, likeliest
from fedsage.models.parameters import Logits, load_parameters, parameters_of
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.guard import too_many_hits, too_many_in_all
from fedsage.protocol.messages import NO_HITS, Ask, Hits, Ints, OwnerId, View, added, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Summed, begins_with_another, procedure
from fedsage.shapes import NodeIds

BINS = 10  # of probabilities, equally wide
UNIT = 1 << 16  # a likelihood or a probability of 1, as a whole number
AFTER = ("receive_classifier", "receive_change")


@message
class Query:
    """S → D_i: measure the classifier in that view, as sure as that calibration makes it."""

    view: str  # plain, mended or both
    temperature: float = 1.0
    slope: float = 0.0

    @property
    def calibration(self) -> Calibration:
        """The one that is asked for; one that cannot be used means scores as they are."""
        asked = Calibration(self.temperature, self.slope)
        return asked if asked.usable else AS_IS


@message
class Likelihoods:
    """D_i → S: minus the log-likelihood of its validation labels with each calibration."""

    loss: dict[str, int]  # by the number of the calibration
    total: int  # validation nodes


@message
class AnswerCounts:
    """D_i → S: how many of its test nodes of each class got each class, and how surely."""

    confusion: Int[Tensor, "d_y d_y"]
    count: dict[str, int]  # answers whose probability is in each bin
    right: dict[str, int]  # of these, right ones
    confidence: dict[str, int]  # the sum of their probabilities


def view_in(query: Query) -> View:
    """The view that is asked for; any other word means the plain graph."""
    views: dict[str, View] = {"mended": "mended", "both": "both"}
    return views.get(query.view, "plain")


def scores(owner: DataOwner, view: View, nodes: NodeIds) -> Logits:
    """The logarithm of each class's probability; of both graphs, their mean."""
    if owner.mended is None or view == "plain":
        return owner.answers(owner.graph, nodes)
    mended = owner.answers(owner.mended, nodes)
    return mended if view == "mended" else (owner.answers(owner.graph, nodes) + mended) / 2


def nodes_for(owner: DataOwner, question: str, nodes: NodeIds) -> NodeIds:
    """The nodes to answer about: none if few, or asked before, or φ may be anybody's."""
    told, few = question in owner.measured, len(nodes) < owner.fewest
    owner.measured.add(question)
    return nodes[:0] if told or few or owner.foreign else nodes


def strange_likelihoods(
    plan: Plan, owner: OwnerId, query: Query, reply: Likelihoods
) -> str | None:
    """Refuse likelihoods with other calibrations, or of more nodes than there are."""
    most = plan.nodes_of.get(owner, reply.total)
    return wrong_likelihoods(reply, most)


def wrong_likelihoods(reply: Likelihoods, most: int) -> str | None:
    """What is wrong with likelihoods of at most so many nodes."""
    if set(reply.loss) != {str(k) for k in range(len(GRID))}:
        return "likelihoods with other calibrations than agreed"
    if not 0 <= reply.total <= most or min(reply.loss.values()) < 0:
        return f"likelihoods of {reply.total} nodes, but it has {most}"
    return None


def strange_counts(plan: Plan, owner: OwnerId, query: Query, reply: AnswerCounts) -> str | None:
    """Refuse negative counts, or more answers than nodes."""
    return wrong_counts(reply, plan.nodes_of.get(owner, plan.num_nodes))


def wrong_counts(reply: AnswerCounts, most: int) -> str | None:
    """What is wrong with counts over at most so many nodes."""
    bins = {str(b) for b in range(BINS)}
    if any(set(one) != bins for one in (reply.count, reply.right, reply.confidence)):
        return "counts in other bins than agreed"
    total = int(reply.confusion.sum())
    fits = all(0 <= reply.right[b] <= reply.count[b] for b in bins)
    if int(reply.confusion.min()) < 0 or not fits or not total <= most:
        return f"counts of {total} answers, but it has {most} nodes"
    return None if sum(reply.count.values()) == total else "counts that do not add up"


@procedure(
    phase="evaluation",
    uses=Summed,
    after=AFTER,
    check=strange_likelihoods,
    silent=lambda reply: not reply.total,
    check_sum=lambda plan, total, owners: wrong_likelihoods(total, plan.num_nodes),
    leaves="At the end: how likely the classifier finds the classes of your validation nodes, "
    f"in all, if it were less or more sure ({len(GRID)} numbers).",
)
def likelihoods(owner: DataOwner, query: Query) -> Likelihoods:
    """How well each calibration fits the owner's validation nodes."""
    nodes = nodes_for(owner, "likelihoods", owner.split.val)
    found, y = scores(owner, view_in(query), nodes), torch.from_numpy(owner.graph.y[nodes])
    losses = {
        str(k): round(float(loss_with(one, found, y)) * UNIT) for k, one in enumerate(GRID)
    }
    return Likelihoods(losses, len(nodes))


def loss_with(calibration: Calibration, found: Logits, y: Int[Tensor, " n"]) -> Tensor:
    """Minus the log-likelihood of labels, added up."""
    return F.cross_entropy(found / calibration.divisors(found), y, reduction="sum").double()


@procedure(
    phase="evaluation",
    uses=Summed,
    after=AFTER,
    shapes=lambda plan: {"confusion": Ints((plan.d_y, plan.d_y))},
    check=strange_counts,
    silent=lambda reply: not reply.confusion.any(),
    check_sum=lambda plan, total, owners: wrong_counts(total, plan.num_nodes),
    leaves="At the end: how many of your test nodes of each class are given each class, and "
    f"how many answers are how sure and right, in {BINS} steps.",
)
def count_answers(owner: DataOwner, query: Query) -> AnswerCounts:
    """What the classifier answers for the owner's test nodes."""
    nodes = nodes_for(owner, "answers", owner.split.test)
    found = scores(owner, view_in(query), nodes)
    sure, best = query.calibration.shares(found).max(dim=1)
    y, d_y = owner.graph.y[nodes], owner.graph.num_classes
    pairs = np.bincount(y * d_y + best.numpy(), minlength=d_y * d_y).astype(np.int32)
    step = np.minimum((sure.double().numpy() * BINS).astype(np.int64), BINS - 1)
    right, units = best.numpy() == y, np.rint(sure.double().numpy() * UNIT)

    def by_bin(weights: np.ndarray) -> dict[str, int]:
        summed = np.bincount(step, weights=weights, minlength=BINS)
        return {str(b): int(value) for b, value in enumerate(summed)}

    return AnswerCounts(
        torch.from_numpy(pairs.reshape(d_y, d_y)),
        by_bin(np.ones(len(nodes))),
        by_bin(right.astype(float)),
        by_bin(units),
    )


@procedure(
    phase="evaluation",
    uses=Summed,
    after=AFTER,
    check=too_many_hits,
    check_sum=too_many_in_all,
    when=begins_with_another,
    leaves="At the end: how many of your test nodes the earlier classifier, with which this "
    "run began, gets right.",
)
def test_start(owner: DataOwner, ask: Ask) -> Hits:
    """How many of the owner's test nodes the first φ gets right; answered only once.

    The first φ is no choice of the server: the owner has it from a run that it took part in.
    """
    nodes = nodes_for(owner, "start", owner.split.test)
    if owner.plan.start is None or not len(nodes):
        return NO_HITS
    held = parameters_of(owner.model)
    try:
        load_parameters(owner.model, owner.plan.phi.phi)
        return owner.hits(nodes)
    finally:
        load_parameters(owner.model, held)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """How sure a classifier may be, and what it answers for all owners' test nodes."""

    calibration: Calibration
    confusion: Int[np.ndarray, "d_y d_y"]
    reliability: list[dict[str, float]]  # by bin: count, mean probability, share right

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error: mean distance of probability and share right."""
        total = sum(one["count"] for one in self.reliability)
        gaps = [
            one["count"] * abs(one["probability"] - one["right"]) for one in self.reliability
        ]
        return sum(gaps) / total if total else None

    @property
    def error_by_chance(self) -> float | None:
        """The error to expect of probabilities that are all true, on so many answers."""
        total = sum(one["count"] for one in self.reliability)
        gaps = [
            mean_deviation(int(one["count"]), one["probability"]) for one in self.reliability
        ]
        return sum(gaps) / total if total else None


def mean_deviation(n: int, p: float) -> float:
    r"""How far a binomial number is from its mean, on average.

    :math:`E|X - np| = 2k \binom{n}{k} p^k (1-p)^{n-k+1}` with
    :math:`k = \lfloor np \rfloor + 1` (De Moivre; see Diaconis and Zabell, 1991).
    """
    k = math.floor(n * p) + 1
    if not 0 < p < 1 or k > n:
        return 0.0
    logs = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return 2 * k * math.exp(logs + k * math.log(p) + (n - k + 1) * math.log1p(-p))


def measure(exchange: Exchange, view: View) -> Measured:
    """Fit the calibration on validation nodes, then count the answers for test nodes."""
    known = exchange.sum(likelihoods, Query(view))
    fitted = likeliest([known.loss[str(k)] / UNIT for k in range(len(GRID))])
    query = Query(view, fitted.temperature, fitted.slope)
    return added_up([exchange.sum(count_answers, query)], fitted)


def added_up(parts: Sequence[AnswerCounts], calibration: Calibration) -> Measured:
    """What counts of one or more owners say together."""
    counts = reduce(added, parts)
    bins = []
    for b in (str(b) for b in range(BINS)):
        count = counts.count[b]
        sure, right = counts.confidence[b] / UNIT, counts.right[b]
        share = max(count, 1)
        bins.append({"count": count, "probability": sure / share, "right": right / share})
    return Measured(calibration, counts.confusion.numpy().astype(np.int64), bins)
