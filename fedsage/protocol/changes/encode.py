"""What one owner's training adds to the sum of changes, as integers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedsage.errors import ConfigError
from fedsage.models.optimizer import factored
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import decode, encode
from fedsage.protocol.changes.state import FIXED, RIGHT, ROOTS, Change, Common
from fedsage.protocol.changes.step import beyond_q
from fedsage.protocol.changes.weights import LEFT, REST, SQUARES, tall
from fedsage.protocol.messages import ClassifierUpdate
from fedsage.rng import Stream

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
