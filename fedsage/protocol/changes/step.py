"""A round in changes: what an owner adds to the sum, and the step from there that all take.

The sum is of integers. The guide is what the server adds to a sum: where the next round's
changes are likely to lie, and the part of this one that few directions miss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from fedsage.errors import ConfigError
from fedsage.models import optimizer
from fedsage.models.optimizer import Pace, factored
from fedsage.models.parameters import Parameters, sha256_of, under
from fedsage.privacy.sums import Exponents, Ring, as_sum, decode, encode, exponents_for
from fedsage.protocol.changes.state import FIXED, RIGHT, ROOTS, Change, Common, room
from fedsage.protocol.changes.weights import (
    LEFT,
    REST,
    SPREAD,
    SQUARES,
    as_weight,
    rounded,
    shapes_of,
    tall,
    weights_in,
)
from fedsage.protocol.messages import ClassifierUpdate
from fedsage.rng import Stream
from fedsage.shapes import Array

CLIP = 1.5  # times as far as usual; honest owners go 1.4 times as far, rarely 1.8


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
    if (within := clipped(common, values, share)) < 1:
        changes = {name: change * within for name, change in changes.items()}
        values = {part: value * within for part, value in values.items()}
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


def clipped(common: Common, values: Parameters, share: float) -> float:
    """The factor that keeps an owner from moving much further than owners usually do."""
    sent = [one for part, one in values.items() if not part.startswith(RIGHT)]
    far = math.hypot(*(float(torch.linalg.vector_norm(one)) for one in sent))
    most = CLIP * common.usual * max(1.0, share)
    return most / far if far > most else 1.0


def products(common: Common, name: str, change: Tensor) -> Parameters:
    """What is sent of a change: Δ·Q and Δᵀ·P of a large weight, and the rest as it is."""
    if name == REST:
        return {REST: change}
    matrix, (q, p) = tall(change), common.multiplied[name]
    return {LEFT + name: matrix @ q, RIGHT + name: matrix.T @ p}


def mean_squares(common: Common, part: str, values: Tensor) -> Tensor:
    """How large the numbers of a part are: by column, or by small weight."""
    if part != REST:
        return values.square().mean(dim=0)
    sizes = [common.phi[name].numel() for name in common.small]
    return torch.stack([one.square().mean() for one in torch.split(values, sizes)])


def less(
    change: Tensor, common: Common, name: str, parts: Mapping[str, Tensor], share: float
) -> Tensor:
    """What remains of a change after subtracting the integers that were sent."""
    if name == REST:
        sent = decode(parts[REST], common.units[REST]).float()
        return change.sub_(sent, alpha=1 / share)
    left = decode(parts[LEFT + name], common.units[LEFT + name]).float()
    q, _ = common.multiplied[name]
    right = decode(parts[RIGHT + name], common.units[RIGHT + name])
    beyond = beyond_q(common, name, left, right).float()
    matrix = tall(change).addmm_(left, q.T, alpha=-1 / share)
    matrix.addmm_(common.partners[name].float(), beyond.T, alpha=-1 / share)
    return change


def roots(common: Common, update: ClassifierUpdate) -> Tensor:
    """The roots of second moments, by rows and columns, of all weights."""
    found: Parameters = {}
    for name in update.phi:
        if f"{name}.exp_avg_sq" not in update.moments:
            raise ConfigError(
                f"The optimizer keeps no second moments of {name}, as Adam does. Use "
                "--set classifier.moments=own, or --set traffic.how=full."
            )
        steps = float(update.moments[f"{name}.step"])
        found |= factored(name, update.moments[f"{name}.exp_avg_sq"], steps)
    return torch.cat([found[root] for root in common.root_sizes])


NEXT, BEYOND, UNITS = "next/", "beyond/", "units/"  # parts of the server's guide
GUIDE = Ring(16, 1)  # of the server's guide


def next_state(common: Common, total: Change, guide: Parameters) -> Common:
    """One round later: the step that everybody takes.

    Owners in one process compute it once and share the result.
    """
    numbers = total.weight, total.steps, total.count
    what = f"{sha256_of(total.parts | guide)} {numbers}"
    with common.stepping:
        found = common.next.get(what) or moved_by(common, total, guide)
        common.next[what] = found
        return found


def moved_by(common: Common, total: Change, guide: Parameters) -> Common:
    """One round later."""
    share = common.weight / (total.weight / 2**FIXED)
    new = changes_in(common, total.parts, guide, share)
    pace = common.pace.after(total.steps / total.weight)
    second = common.second | roots_in(common, total.parts, share)
    return Common(
        common.config,
        common.owners,
        common.weight,
        common.t + 1,
        pace,
        {name: weight + new[name] for name, weight in common.unmoved.items()},
        {name: next_first(common, name, new[name], second, pace) for name in common.first},
        second,
        under("next", guide),
        under("left", total.parts),
        next_exponents(common, total),
        next_usual(common, total),
        accord_of(common, total),
    )


def changes_in(
    common: Common, parts: Mapping[str, Tensor], guide: Mapping[str, Tensor], share: float
) -> Parameters:
    """The changes of weights that the integers stand for, times ``share``."""
    shapes = shapes_of(common.phi)
    found = weights_in(parts, common.bases, common.units, shapes)
    found = {name: weight * share for name, weight in found.items()}
    for name in [name for name in common.bases if BEYOND + name in guide]:
        beyond = decode(guide[BEYOND + name], guide[UNITS + name].numpy())
        more = common.partners[name].double() @ beyond.T
        found[name] = found[name] + as_weight(more, shapes[name])
    return {name: weight.float().contiguous() for name, weight in found.items()}


def next_first(
    common: Common, name: str, new: Tensor, second: Parameters, pace: Pace
) -> Tensor:
    """The first moment of a weight after a round."""
    weight, how = common.phi[name], common.config.classifier.at(common.t)
    root = optimizer.root_of(name, second, weight.shape)
    assert root is not None  # second moments exist after the first round
    return optimizer.next_first(common.first[name], new, weight, root, pace, how)


def roots_in(common: Common, parts: Mapping[str, Tensor], share: float) -> Parameters:
    """The roots of second moments in a sum, never zero, since they are divided by."""
    if ROOTS not in parts:
        return {}
    least = torch.from_numpy(np.ldexp(0.25, common.units[ROOTS]))
    means = torch.maximum(decode(parts[ROOTS], common.units[ROOTS]) * share, least).float()
    sizes = common.root_sizes
    return dict(zip(sizes, torch.split(means, list(sizes.values())), strict=True))


def next_exponents(common: Common, total: Change) -> dict[str, Exponents]:
    """Units for the next round, from this round's mean squares."""
    found = {}
    for part, squares in mean_squares_in(common, total):
        largest, before = np.sqrt(squares) * room(part), common.exponents[part]
        finest = exponents_for(largest, common.ring(part, common.t + 1), before)
        found[part] = np.maximum(finest, finest.max() - SPREAD)
    return found


def next_usual(common: Common, total: Change) -> float:
    """How far an owner's change went in this round: the root of the mean square."""
    by_part = mean_squares_in(common, total)
    squares = sum(float(ms @ common.heights(part)) for part, ms in by_part)
    return math.sqrt(max(0.0, squares))  # of a spoiled sum, they may be below zero


def mean_squares_in(common: Common, total: Change) -> Iterator[tuple[str, Array]]:
    """The mean squares that a sum holds, by part."""
    mean = decode(total.parts[SQUARES], common.units[SQUARES]).numpy() / total.count
    ends = np.cumsum([len(before) for before in common.exponents.values()])
    return zip(common.exponents, np.split(mean, ends[:-1]), strict=True)


def accord_of(common: Common, total: Change) -> float:
    """The mean cosine between two owners' changes, as far as they are alike in size."""
    if total.count < 2:
        return 0.0
    declared = next_usual(common, total) ** 2 * total.count
    found = math.fsum(one for part in moves(common) for one in squares(common, part, total))
    return (found / declared - 1) / (total.count - 1) if declared else 0.0


def moves(common: Common) -> list[str]:
    """The parts of a change that move φ."""
    return [part for part in common.exponents if part == REST or part.startswith(LEFT)]


def squares(common: Common, part: str, total: Change) -> list[float]:
    """The summed squares of a part, exact for numbers of the same unit."""
    values = decode(total.parts[part], common.units[part]).square()
    if part != REST:
        return [float(one) for one in values.sum(dim=0)]
    sizes = [common.phi[name].numel() for name in common.small]
    return [float(one.sum()) for one in torch.split(values, sizes)]


def guide_of(common: Common, total: Change) -> Parameters:
    """The server's own contribution: the next Q, and the part of Δ along P that Q misses.

    That part is small, and exact once it is in integers, which every machine multiplies the
    same way.
    """
    found: Parameters = {}
    for name in common.bases:
        left, right = (
            decode(total.parts[side + name], common.units[side + name])
            for side in (LEFT, RIGHT)
        )
        found[NEXT + name] = rounded(right)
        share = common.weight / (total.weight / 2**FIXED)
        missed = beyond_q(common, name, left, right) * share
        units = exponents_for(missed.abs().amax(dim=0).numpy(), GUIDE)
        units = np.maximum(units, units.max() - SPREAD // 2)
        found[BEYOND + name] = as_sum(missed, units, GUIDE)
        found[UNITS + name] = torch.from_numpy(units).to(torch.int16)
    return found


def beyond_q(common: Common, name: str, left: Tensor, right: Tensor) -> Tensor:
    """What Δᵀ·P knows of Δ beyond Δ·Q: a matrix whose product with P is to be added."""
    (q, p), inverse = common.multiplied[name], common.inverses[name]
    beyond = right - (q @ (left.to(q).T @ p)).to(right)
    lengths = common.partners[name].double().norm(dim=0).clamp_min(1e-12)
    return beyond.double() @ inverse / lengths
