"""Procedures B and F by changes: a round is sent as how far it takes φ, in whole numbers.

Owners send what the others cannot know: the change of φ less what momentum and weight decay
explain. What is lost in rounding, clipping and few directions stays with the owner, and most of
it is sent the next time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from fedsage.config import Config
from fedsage.errors import ProtocolError
from fedsage.models.derived import factored, has_moments
from fedsage.models.low_rank import sides, tall
from fedsage.models.optimizer import load_moments, moments_of
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import Ring, decode, encode
from fedsage.protocol.common import (
    FIXED,
    LEFT,
    REST,
    RIGHT,
    ROOTS,
    SQUARES,
    Change,
    Common,
)
from fedsage.protocol.guard import DIVERGED, all_finite
from fedsage.protocol.holding import first_common, unpacked
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

    At the start that follows from the plan. Then it is the sum of changes with the server's
    guide to it, and for who was away all of it. Without any of these it is the φ that was kept.
    """

    t: int
    owners: int
    weight: float
    phi: Parameters
    memory: Parameters
    total: Change
    guide: Parameters


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
            common = self.held(news.t - 1).after(news.total, news.guide)
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


def change_of(
    common: Common, update: ClassifierUpdate, steps: int, feedback: Parameters, stream: Stream
) -> Change:
    """What an owner's update adds to the sum; the rest is left in ``feedback``."""
    share = update.weight / common.weight
    moved = {name: phi - common.unmoved[name] for name, phi in update.phi.items()}
    changes = {name: moved[name] for name in common.bases}
    changes[REST] = torch.cat([moved[name].flatten() for name in common.small])
    for name, kept in feedback.items():
        changes[name].add_(kept, alpha=common.config.traffic.feedback)
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
        feedback[name] = less(change, common, name, parts, share)
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
    right = decode(parts[RIGHT + name], common.units[RIGHT + name])
    beyond = common.missed(name, left, right).float()
    matrix = tall(change).addmm_(left, q.T, alpha=-1 / share)
    matrix.addmm_(common.partners[name].float(), beyond.T, alpha=-1 / share)
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


def sizes_of_parts(common: Common) -> dict[str, tuple[int, ...]]:
    """The sizes of all parts that a change may have."""
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
    sizes = sizes_of_parts(first_common(plan, 1, 1.0))

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
        return DIVERGED
    if weight != (agreed := plan.weights.get(owner, weight)):
        return f"weight {weight:g}, where {agreed:g} was agreed"
    return beyond_share(change.parts, len(plan.nodes))


def beyond_share(parts: Mapping[str, Tensor], owners: int) -> str | None:
    """A part with numbers that an honest owner of so many could not send."""
    for part, found in parts.items():
        most = Ring(8 * found.element_size(), owners).most
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
        sizes = sizes_of_parts(common).items()
        nothing = {part: torch.zeros(size, dtype=torch.int8) for part, size in sizes}
        return Change(nothing, 0, 0, 0, 0)
    stream = generator(owner.seed, "whole numbers", owner.id, turn.t)
    return change_of(common, update, owner.steps(turn.t), mine.feedback, stream)


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
