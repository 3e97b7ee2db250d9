"""Procedures B and F by changes: a round is sent as how far it takes φ, in whole numbers.

Owners send what the others cannot know: the change of φ less what momentum and weight decay
explain. What is lost in rounding, clipping and few directions stays with the owner, and most of
it is sent the next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from fedsage.config import Config
from fedsage.errors import ProtocolError
from fedsage.models.derived import factored, has_moments
from fedsage.models.low_rank import sides, tall
from fedsage.models.optimizer import load_moments, moments_of
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import Ring, as_sum, decode, encode
from fedsage.protocol.common import (
    FIXED,
    LEFT,
    NO_CHANGE,
    REST,
    RIGHT,
    ROOTS,
    SQUARES,
    Change,
    Common,
    first_common,
    packed,
    unpacked,
)
from fedsage.protocol.exchange import Exchange, add_up
from fedsage.protocol.guard import all_finite
from fedsage.protocol.messages import (
    Ask,
    Classifier,
    ClassifierUpdate,
    Form,
    Hits,
    Ints,
    OwnerId,
    message,
    misfit,
)
from fedsage.protocol.owner import DataOwner, too_many_hits
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Summed, in_whole_numbers, procedure
from fedsage.protocol.server import Rule, average
from fedsage.protocol.wire import encode as to_frame
from fedsage.rng import Stream, generator


@message
class Turn:
    """S → D_i: train for round ``t``; ``keep`` says that the φ you hold is the best so far."""

    t: int
    keep: bool


@message
class News:
    """Procedure B, S → every D_i: what it takes to hold what all hold after ``t`` rounds.

    At the start that follows from the plan. Then it is the sum of changes and the next Q, and
    for who was away all of it. Without any of these it is the φ that was kept.
    """

    t: int
    owners: int
    weight: float
    phi: Parameters
    memory: Parameters
    total: Change
    bases: Parameters


@dataclass(frozen=True, slots=True)
class FollowerState:
    """What a round leaves with an owner alone."""

    feedback: Parameters
    moments: Parameters  # where nobody shares them


@dataclass(slots=True)
class Follower:
    """How an owner follows φ: what all hold, and what it could not send so far."""

    owner: DataOwner
    feedback: Parameters = field(default_factory=dict)
    common: Common | None = None
    kept: tuple[int, Parameters] = (-1, {})  # the best φ so far, and after how many rounds

    def state(self) -> FollowerState:
        """What the server cannot give back."""
        own = self.owner.config.classifier.moments == "own"
        moments = moments_of(self.owner.optimizer, self.owner.model) if own else {}
        return FollowerState(self.feedback, moments)

    def restore(self, state: FollowerState) -> None:
        """Go on from there."""
        self.feedback = dict(state.feedback)
        if state.moments:
            load_moments(self.owner.optimizer, self.owner.model, state.moments)

    def take(self, news: News) -> None:
        """Hold what the others hold."""
        plan = self.owner.plan
        if news.total.count:
            common = self.held(news.t - 1).after(news.total, news.bases)
        elif news.memory:
            common = unpacked(plan.config, Classifier(news.phi, news.memory))
        elif news.t == 0:
            common = first_common(plan, news.owners, news.weight)
        else:  # the end: φ alone, to be queried
            phi = news.phi or (self.kept[1] if self.kept[0] == news.t else {})
            self.owner.take_over(phi, {})
            return
        self.common = common
        self.owner.take_over(common.phi, common.moments)

    def held(self, t: int) -> Common:
        """What this owner holds after ``t`` rounds."""
        if self.common is None or self.common.t != t:
            raise ProtocolError(f"it does not hold the classifier after {t} rounds")
        return self.common

    def change(self, update: ClassifierUpdate, steps: int, stream: Stream) -> Change:
        """What this owner's update adds to the sum; the rest is kept for the next time."""
        assert self.common is not None
        common, share = self.common, update.weight / self.common.weight
        moved = {name: phi - common.unmoved[name] for name, phi in update.phi.items()}
        changes = {name: moved[name] for name in common.bases}
        changes[REST] = torch.cat([moved[name].flatten() for name in common.small])
        for name, kept in self.feedback.items():
            changes[name].add_(kept, alpha=self.owner.config.traffic.feedback)
        values = {
            part: value * share
            for name, change in changes.items()
            for part, value in products(common, name, change).items()
        }
        squares = [mean_squares(common, part, values[part]) for part in common.exponents]
        values[SQUARES] = torch.cat(squares)
        if common.looks:
            values[ROOTS] = roots(common, update) * share
        parts = {
            part: encode(value, common.units[part], common.ring(part, common.t), stream)
            for part, value in values.items()
        }
        for name, change in changes.items():
            self.feedback[name] = less(change, common, name, parts, share)
        weight = round(update.weight * 2**FIXED)
        return Change(parts, weight, steps * weight, round(update.loss * 2**FIXED), 1)


def products(common: Common, name: str, change: Tensor) -> Parameters:
    """What is sent of a change: Δ·Q and Δᵀ·P of a large weight, and the rest as it is."""
    if name == REST:
        return {REST: change}
    matrix, (q, p) = tall(change), common.multiplied[name]
    return {LEFT + name: matrix @ q, RIGHT + name: matrix.T @ p}


def mean_squares(common: Common, part: str, values: Tensor) -> Tensor:
    """How large the numbers of a part are: of every column, or of every small weight."""
    if part != REST:
        return values.square().mean(dim=0)
    sizes = [common.phi[name].numel() for name in common.small]
    return torch.stack([one.square().mean() for one in torch.split(values, sizes)])


def less(
    change: Tensor, common: Common, name: str, parts: Mapping[str, Tensor], share: float
) -> Tensor:
    """What is left of a change once the whole numbers that were sent are taken off."""
    if name == REST:
        sent = decode(parts[REST], common.units[REST]).float()
        return change.sub_(sent, alpha=1 / share)
    left = decode(parts[LEFT + name], common.units[LEFT + name]).float()
    q, _ = common.multiplied[name]
    tall(change).addmm_(left, q.T, alpha=-1 / share)
    return change


def roots(common: Common, update: ClassifierUpdate) -> Tensor:
    """The roots of second moments, by rows and columns, of all weights."""
    found: Parameters = {}
    for name in update.phi:
        steps = float(update.moments[f"{name}.step"])
        found |= factored(name, update.moments[f"{name}.exp_avg_sq"], steps)
    return torch.cat([found[root] for root in common.root_sizes])


def follower(owner: DataOwner) -> Follower:
    """This owner's."""
    return owner.part("changes", lambda: Follower(owner))


def sizes_of_parts(plan: Plan) -> dict[str, tuple[int, ...]]:
    """The sizes of all parts that a change may have."""
    common = first_common(plan, 1, 1.0)
    sizes: dict[str, tuple[int, ...]] = {REST: (len(common.units[REST]),)}
    for name, basis in common.bases.items():
        long, short = sides(common.phi[name].shape)
        rank = basis.shape[1]
        sizes |= {LEFT + name: (long, rank), RIGHT + name: (short, rank)}
    if common.root_sizes:
        sizes[ROOTS] = (sum(common.root_sizes.values()),)
    return sizes | {SQUARES: (len(common.units[SQUARES]),)}


def form_of_change(plan: Plan) -> dict[str, Form]:
    """Whole numbers, in parts that the plan knows; second moments are not always there."""
    sizes = sizes_of_parts(plan)

    def strange(parts: Mapping[str, Tensor]) -> str | None:
        wanted = {name: Ints(size) for name, size in sizes.items()}
        if ROOTS not in parts:
            wanted.pop(ROOTS, None)
        return misfit(parts, wanted)

    return {"parts": strange}


def strange_change(plan: Plan, owner: OwnerId, turn: object, change: Change) -> str | None:
    """A weight that was not agreed on, or numbers beyond an owner's share of the ring."""
    weight = change.weight / 2**FIXED
    if change.count != 1 or not weight > 0:
        return "training diverged there: lower classifier.eta, or check the scale of features"
    if weight != (agreed := plan.weights.get(owner, weight)):
        return f"weight {weight:g}, where {agreed:g} was agreed"
    for part, found in change.parts.items():
        most = Ring(8 * found.element_size(), len(plan.nodes)).most
        if found.numel() and max(int(found.max()), -int(found.min())) > most:
            return f"{part} with numbers beyond {most}, an owner's share"
    return None


def words_of_change(config: Config) -> str:
    """What leaves in a round."""
    few = (
        f", of large layers in {config.traffic.rank} directions"
        if config.traffic.how == "low-rank"
        else ""
    )
    return (
        f"In each of {config.classifier.rounds_c} rounds: how far training on your nodes moves "
        f"the weights of the classifier, in whole numbers of few bits{few}; now and then the "
        "mean squares of gradients by rows and columns; and the mean training loss."
    )


@lru_cache(maxsize=4)
def full_sizes(plan: Plan) -> tuple[int, int, int]:
    """The bytes of φ in full messages: an update, a broadcast, the first (no moments)."""
    phi = plan.phi.phi
    moments: Parameters = {}
    if has_moments(plan.config.classifier):
        for name, weight in phi.items():
            moments |= {f"{name}.step": torch.zeros(()), f"{name}.exp_avg": weight}
            moments |= {f"{name}.exp_avg_sq": weight}
    update = ClassifierUpdate(phi, moments, 1.0, 1.0)
    broadcasts = Classifier(phi, moments), Classifier(phi, {})
    return len(to_frame(update)), len(to_frame(broadcasts[0])), len(to_frame(broadcasts[1]))


@procedure(
    phase="training",
    uses=Summed,
    after=("receive_change",),
    shapes=form_of_change,
    check=strange_change,
    keeps=follower,
    leaves=words_of_change,
    full=lambda plan: (len(to_frame(Ask(0))), full_sizes(plan)[0]),
    when=in_whole_numbers,
)
def local_change_c(owner: DataOwner, turn: Turn) -> Change:
    """Procedure F, then what it takes to know how far it moved φ."""
    mine = follower(owner)
    common = mine.held(turn.t)
    if turn.keep:
        mine.kept = common.t, common.phi
    update = owner.local_update_c(Ask(turn.t))
    if not all(map(all_finite, update.phi.values())):
        sizes = sizes_of_parts(owner.plan).items()
        nothing = {part: torch.zeros(size, dtype=torch.int8) for part, size in sizes}
        return Change(nothing, 0, 0, 0, 0)
    stream = generator(owner.seed, "whole numbers", owner.id, turn.t)
    return mine.change(update, owner.steps(turn.t), stream)


@procedure(
    phase="training",
    uses=Summed,
    check=too_many_hits,
    leaves="In each of these rounds: how many of your validation nodes the classifier of all "
    "owners gets right.",
    full=lambda plan: (full_sizes(plan)[1], len(to_frame(Hits(100, 100, 100, 100)))),
    when=in_whole_numbers,
)
def receive_change(owner: DataOwner, news: News) -> Hits:
    """Procedure B, received: take the step that all take, and judge φ on validation nodes."""
    follower(owner).take(news)
    return owner.hits(owner.split.val)


class ByChanges:
    """The server's side: it adds up, takes the step itself, and hands out the sum."""

    def __init__(self, exchange: Exchange, rule: Rule) -> None:
        self.exchange, self.rule = exchange, rule
        self.kept: Sequence[OwnerId] = ()  # who kept the best φ so far

    def start(self, classifier: Classifier) -> None:
        """All hold what there was when the run was stopped, or what the plan says."""
        plan, owners = self.exchange.plan, len(self.exchange.owners)
        if classifier.moments:
            self.common = unpacked(plan.config, classifier)
            news = everything(self.common)
        else:
            weight = sum(plan.nodes) / len(plan.nodes) * plan.config.data.train
            weighted = plan.config.classifier.weighting == "nodes"
            self.common = first_common(plan, owners, weight if weighted else 1.0)
            news = news_of(self.common)
        self.exchange.sum(receive_change, news)
        if not classifier.moments:
            _, later, first = full_sizes(plan)
            self.exchange.engine.traffic["training"].full_down -= owners * (later - first)

    def round(self, t: int, keep: bool) -> tuple[Classifier, float, Hits]:
        """Procedure B: φ after this round, the owners' mean loss, their hits."""
        exchange, common = self.exchange, self.common
        holding = exchange.answered[receive_change.name]
        combine = add_up if self.rule is average else partial(ruled, self.rule, common)
        total = exchange.sum(local_change_c, Turn(t, keep), combine)
        if keep:
            self.kept = exchange.answered[local_change_c.name]
        bases = common.next_bases(total)
        needed = {p: n for p, n in total.parts.items() if not p.startswith(RIGHT)}
        told = replace(total, parts=needed)
        self.common = common.after(told, bases)
        step = news_of(self.common, told, bases)
        news = {i: step if i in holding else everything(self.common) for i in exchange.owners}
        hits = exchange.sum(receive_change, news)
        return packed(self.common), total.loss / total.count / 2**FIXED, hits

    def end(self, best: Classifier, t: int, last: int) -> None:
        """All hold the best φ, of round ``t``: who kept it takes it out again."""
        current = t == last
        has = self.exchange.answered[receive_change.name] if current else self.kept
        if current and len(has) == len(self.exchange.owners):
            return
        whole = News(t + 1, 0, 0.0, best.phi, {}, NO_CHANGE, {})
        again = News(t + 1, 0, 0.0, {}, {}, NO_CHANGE, {})
        asked = {i: again if i in has and not current else whole for i in self.exchange.owners}
        self.exchange.sum(receive_change, asked)


def news_of(common: Common, total: Change = NO_CHANGE, bases: Parameters | None = None) -> News:
    """What it takes to go on for who holds what came before."""
    return News(common.t, common.owners, common.weight, {}, {}, total, bases or {})


def everything(common: Common) -> News:
    """For who does not."""
    all_of_it = packed(common)
    return News(
        common.t, common.owners, common.weight, all_of_it.phi, all_of_it.moments, NO_CHANGE, {}
    )


def ruled(rule: Rule, common: Common, changes: Sequence[Change]) -> Change:
    """One change of many, by a rule that looks at each, in the same whole numbers."""
    weights = [change.weight / 2**FIXED for change in changes]
    decoded = [
        {p: decode(n, common.units[p]) * (common.weight / weight) for p, n in one.parts.items()}
        for one, weight in zip(changes, weights, strict=True)
    ]
    chosen, back = rule(decoded, weights), sum(weights) / common.weight
    total = add_up(changes)
    parts = {
        part: as_sum(values * back, common.units[part], common.ring(part, common.t))
        for part, values in chosen.items()
    }
    return replace(total, parts=parts)
