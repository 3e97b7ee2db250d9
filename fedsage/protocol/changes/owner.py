"""Procedures B and F by changes: a round is sent as how far it moves φ, in integers.

Owners send only what others cannot compute: the change of φ minus what momentum and weight
decay explain. What rounding, clipping and low rank lose stays with the owner, and most of it is
sent in the next round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from fedsage.config import Config
from fedsage.models.optimizer import has_moments, moments_of
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import decode
from fedsage.protocol.changes.check import MOST
from fedsage.protocol.changes.follow import News, Turn, follower, turn_of
from fedsage.protocol.changes.state import (
    FIXED,
    RIGHT,
    ROOTS,
    Change,
    Common,
    first_common,
    ring_of,
)
from fedsage.protocol.changes.step import change_of
from fedsage.protocol.changes.weights import LEFT, REST, SQUARES, sides
from fedsage.protocol.guard import (
    DIVERGED,
    UPDATE,
    all_finite,
    no_hits,
    too_many_hits,
    too_many_in_all,
)
from fedsage.protocol.messages import (
    NO_HITS,
    TRIES,
    Ask,
    Classifier,
    ClassifierUpdate,
    Form,
    Hits,
    Ints,
    OwnerId,
    misfit,
)
from fedsage.protocol.owner import DataOwner, trained_nodes
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Summed, in_whole_numbers, procedure
from fedsage.protocol.wire import encode as to_frame
from fedsage.rng import generator


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


def no_change(common: Common) -> Change:
    """What an owner whose training diverged sends: nothing that moves the others."""
    parts = {
        part: torch.zeros(size, dtype=common.ring(part, common.t).dtype)
        for part, size in sizes_of_parts(common).items()
        if part != ROOTS or common.looks
    }
    return Change(parts, 0, 0, 0, 0)


def form_of_change(plan: Plan) -> dict[str, Form]:
    """Integers, in parts that the plan knows; second moments are not always present."""
    sizes = sizes_of_parts(first_common(plan, 1, 1.0))

    def strange(parts: Mapping[str, Tensor]) -> str | None:
        wanted = {name: Ints(size) for name, size in sizes.items()}
        if ROOTS not in parts:
            wanted.pop(ROOTS, None)
        return misfit(parts, wanted)

    return {"parts": strange}


def strange_change(plan: Plan, owner: OwnerId, turn: Turn, change: Change) -> str | None:
    """Why training cannot give this change, or None: wrong weight or steps, large numbers."""
    weight, steps = change.weight, change.steps
    if not weight and not change.count:
        return DIVERGED
    if change.count != 1 or not 0 < weight < MOST or abs(change.loss) >= MOST:
        return "a change that counts for more or less than one owner"
    if weight != (agreed := round(plan.weights.get(owner, weight / 2**FIXED) * 2**FIXED)):
        return f"weight {weight / 2**FIXED:g}, but {agreed / 2**FIXED:g} was agreed"
    most = 2 * plan.config.classifier.most_epochs * max(plan.nodes)
    if steps % weight or not 1 <= steps // weight <= most:
        return f"{min(steps // weight, MOST)} steps, but only 1 to {most} are possible"
    return strange_parts(plan, turn.t, change.parts)


def strange_parts(plan: Plan, t: int, parts: Mapping[str, Tensor]) -> str | None:
    """Why an honest owner could not send these parts in round ``t``, or None."""
    for part, found in parts.items():
        ring = ring_of(part, t, len(plan.nodes), plan.config.traffic.bits)
        least = 0 if part in (SQUARES, ROOTS) else -ring.most
        if why := ring.strange(found, least):
            return f"{part} with {why}"
    return None


def sizes_of_change(common: Common, turn: object, change: Change) -> dict[str, float]:
    """How far a change would move φ and the rest; scaled down for owners of large weight.

    A light owner's change is small and mostly rounding: it is not scaled up to the others.
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
        f", for large layers in {config.traffic.rank} directions"
        if config.traffic.how == "low-rank"
        else ""
    )
    return (
        f"In each of {config.classifier.rounds_c} rounds: how far training on "
        f"{trained_nodes(config)} moves the classifier's weights, in integers of a few bits"
        f"{few}; now and then the mean squares of gradients by rows and columns; and the mean "
        "training loss."
    )


@lru_cache(maxsize=4)
def full_sizes(plan: Plan) -> tuple[int, int, int]:
    """The bytes of φ in full messages: an update, a broadcast, the first one (no moments)."""
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
    """The full bytes of a broadcast of φ, which has no moments at first, and of its reply."""
    _, later, first = full_sizes(plan)
    return later if news.t else first, len(to_frame(Hits(100, 100, 100, 100)))


@procedure(
    phase="training",
    uses=Summed,
    after=("receive_change",),
    shapes=form_of_change,
    check=strange_change,
    silent=lambda change: not change.count,
    rounds=True,
    sizes=sizes_of_change,
    keeps=follower,
    leaves=words_of_change,
    full=lambda plan, turn: (len(to_frame(Ask(turn.t))), full_sizes(plan)[0]),
    when=in_whole_numbers,
)
def local_change_c(owner: DataOwner, turn: Turn) -> Change:
    """Procedure F, then how far it moved φ, as a message."""
    mine = follower(owner)
    common = mine.held(turn.t)
    mine.begin(common, turn)
    drawn = turn.t + TRIES * turn.again  # another try draws anew
    update = owner.local_update_c(Ask(drawn))
    if not all(map(all_finite, update.phi.values())):
        return no_change(common)
    if common.looks:
        update = replace(update, moments=moments_of(owner.optimizer, owner.model))
    stream = generator(owner.seed, "whole numbers", owner.id, drawn)
    change = change_of(common, update, owner.steps(turn.t), mine.feedback, stream)
    mine.tries[turn.again] = dict(mine.feedback)
    return mine.trust.with_proof(common, change, turn.again)


@procedure(
    phase="training",
    uses=Summed,
    check=too_many_hits,
    check_sum=too_many_in_all,
    alike=turn_of,
    silent=no_hits,
    rounds=True,
    leaves="In each of these rounds: how many of your validation nodes the shared classifier "
    "gets right.",
    full=full_broadcast,
    when=in_whole_numbers,
)
def receive_change(owner: DataOwner, news: News) -> Hits:
    """Procedure B, received: take the step that all take, and score φ on validation nodes.

    φ is scored once a round, and only if it follows from a sum that this owner added to.
    """
    mine = follower(owner)
    mine.take(news)
    owner.foreign = owner.sum_masks is not None and not mine.checked
    if not mine.checked or not news.total.count or news.t <= mine.scored:
        return NO_HITS
    mine.scored = news.t
    return owner.hits(owner.split.val)
