"""Procedures B and F by changes: a round is sent as how far it takes φ, in whole numbers.

Owners send what the others cannot know: the change of φ less what momentum and weight decay
explain. What is lost in rounding, clipping and few directions stays with the owner, and most of
it is sent the next time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from torch import Tensor

from fedsage.config import Config
from fedsage.errors import ProtocolError
from fedsage.models.derived import has_moments
from fedsage.models.low_rank import sides
from fedsage.models.optimizer import load_moments, moments_of
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import decode
from fedsage.protocol.common import (
    FIXED,
    RIGHT,
    ROOTS,
    SQUARES,
    Change,
    Common,
    ring_of,
)
from fedsage.protocol.frames import LEFT, REST
from fedsage.protocol.guard import DIVERGED, UPDATE, all_finite
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
from fedsage.protocol.own_change import change_of
from fedsage.protocol.owner import DataOwner, too_many_hits
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Summed, in_whole_numbers, procedure
from fedsage.protocol.wire import encode as to_frame
from fedsage.rng import generator

MOST = 2**60  # of a number that is added up: far from what a float can hold


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
            self.owner.take_over(news.phi or self.recalled(news.t), {})
            return
        self.common = common
        self.owner.take_over(common.phi, common.moments)

    def recalled(self, t: int) -> Parameters:
        """The φ that was kept as the best so far."""
        after, phi = self.kept
        if after != t:
            raise ProtocolError(f"it did not keep the classifier of round {t - 1}")
        return phi

    def held(self, t: int) -> Common:
        """What this owner holds at the start of round ``t``."""
        if self.common is None or self.common.t != t:
            raise ProtocolError(f"it does not hold the classifier that round {t} starts from")
        return self.common


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


def strange_change(plan: Plan, owner: OwnerId, turn: Turn, change: Change) -> str | None:
    """What no training leads to: another weight than agreed, no steps, too large numbers."""
    weight, steps = change.weight, change.steps
    if not weight and not change.count:
        return DIVERGED
    if change.count != 1 or not 0 < weight < MOST or abs(change.loss) >= MOST:
        return "a change that counts for more or less than one owner"
    if weight != (agreed := round(plan.weights.get(owner, weight / 2**FIXED) * 2**FIXED)):
        return f"weight {weight / 2**FIXED:g}, where {agreed / 2**FIXED:g} was agreed"
    most = 2 * plan.config.classifier.local_epochs * max(plan.nodes)
    if steps % weight or not 1 <= steps // weight <= most:
        return f"{min(steps // weight, MOST)} steps, where 1 to {most} are possible"
    return strange_parts(plan, turn.t, change.parts)


def strange_parts(plan: Plan, t: int, parts: Mapping[str, Tensor]) -> str | None:
    """A part with numbers that an honest owner could not send in round ``t``."""
    for part, found in parts.items():
        ring = ring_of(part, t, len(plan.nodes), plan.config.traffic.bits)
        least = 0 if part in (SQUARES, ROOTS) else -ring.most
        if why := ring.strange(found, least):
            return f"{part} with {why}"
    return None


def sizes_of_change(common: Common, turn: object, change: Change) -> dict[str, float]:
    """How far a change would take φ, and what else it moves; of a weight above usual, a share.

    What a light owner adds is small, and mostly rounded: it is not held up to the others' size.
    """
    share = max(1.0, change.weight / 2**FIXED / common.weight)
    sizes = {p: decode(n, common.units[p]).abs() / share for p, n in change.parts.items()}
    norms = {part: float(size.norm()) for part, size in sizes.items()}
    moves = [norm for part, norm in norms.items() if part == REST or part.startswith(LEFT)]
    beyond = [norm for part, norm in norms.items() if part.startswith(RIGHT)]
    found = {
        UPDATE: math.hypot(*moves),
        "products": math.hypot(*beyond),
        "root mean squares": float((sizes[SQUARES] / share).sum().sqrt()),
    }
    return found | ({"second moments": norms[ROOTS]} if ROOTS in norms else {})


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


def full_broadcast(plan: Plan, news: News) -> tuple[int, int]:
    """The same for the broadcast of φ, which has no moments at first, and its reply."""
    _, later, first = full_sizes(plan)
    return later if news.t else first, len(to_frame(Hits(100, 100, 100, 100)))


@procedure(
    phase="training",
    uses=Summed,
    after=("receive_change",),
    shapes=form_of_change,
    check=strange_change,
    sizes=sizes_of_change,
    keeps=follower,
    leaves=words_of_change,
    full=lambda plan, turn: (len(to_frame(Ask(turn.t))), full_sizes(plan)[0]),
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
    if common.looks:
        update = replace(update, moments=moments_of(owner.optimizer, owner.model))
    stream = generator(owner.seed, "whole numbers", owner.id, turn.t)
    return change_of(common, update, owner.steps(turn.t), mine.feedback, stream)


@procedure(
    phase="training",
    uses=Summed,
    check=too_many_hits,
    leaves="In each of these rounds: how many of your validation nodes the classifier of all "
    "owners gets right.",
    full=full_broadcast,
    when=in_whole_numbers,
)
def receive_change(owner: DataOwner, news: News) -> Hits:
    """Procedure B, received: take the step that all take, and judge φ on validation nodes."""
    follower(owner).take(news)
    return owner.hits(owner.split.val)
