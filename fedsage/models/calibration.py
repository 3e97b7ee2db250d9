"""How sure a classifier may be: its scores become probabilities that come true as often."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedsage.models.parameters import Logits

STEPS = (math.log(2) / 4, 0.5)  # from one temperature, one slope to the next
LOGS = tuple(k * STEPS[0] for k in range(-4, 13))  # of temperatures, from 1/2 to 8
SLOPES = tuple(k * STEPS[1] for k in range(-4, 3))  # from -2 to 1


@dataclass(frozen=True, slots=True)
class Calibration:
    r"""Scores are divided by :math:`T e^{s d}`; d is the doubt, 1 - the largest probability.

    One temperature for all answers lets sure and unsure ones err in opposite directions; the
    slope s makes up for it. No answer changes, because a row's scores have one divisor.
    """

    temperature: float = 1.0  # T
    slope: float = 0.0  # s

    def shares(self, scores: Logits) -> Float[Tensor, "n d_y"]:
        """The probability of each class."""
        return (scores / self.divisors(scores)).softmax(dim=1)

    def divisors(self, scores: Logits) -> Float[Tensor, "n 1"]:
        """What the scores of each row are divided by."""
        doubt = 1 - scores.softmax(dim=1).max(dim=1, keepdim=True).values
        return self.temperature * torch.exp(self.slope * doubt)

    @property
    def usable(self) -> bool:
        """Whether both numbers can be used."""
        return 0 < self.temperature < math.inf and abs(self.slope) < 100


AS_IS = Calibration()
GRID = tuple(Calibration(math.exp(log), slope) for log in LOGS for slope in SLOPES)


def likeliest(losses: Sequence[float]) -> Calibration:
    """The likeliest calibration, from minus the log-likelihood with each one of the grid.

    Slopes are taken to be normal around 0 with deviation 1 beforehand, so that it takes more
    than a few nodes to bend probabilities. The result is where a quadratic through the best
    of the grid and its eight neighbors is lowest, at most one step away. Where no node was
    counted, nothing changes.
    """
    losses = [loss + one.slope**2 / 2 for loss, one in zip(losses, GRID, strict=True)]
    best = min(
        range(len(GRID)),
        key=lambda k: (losses[k], abs(math.log(GRID[k].temperature)), abs(GRID[k].slope)),
    )
    table = np.array(losses, dtype=float).reshape(len(LOGS), len(SLOPES))
    row, column = divmod(best, len(SLOPES))
    around = np.pad(table, 1, mode="reflect")[row : row + 3, column : column + 3]
    log, slope = lowest(around)
    return Calibration(math.exp(LOGS[row] + log * STEPS[0]), SLOPES[column] + slope * STEPS[1])


def lowest(around: Float[np.ndarray, "3 3"]) -> tuple[float, float]:
    """Where the quadratic through nine values is lowest, in steps from the one in the middle.

    Beyond the edge of a grid its values are mirrored, so that the edge is not crossed.
    """
    up, down = around[2, 1] - around[1, 1], around[0, 1] - around[1, 1]
    right, left = around[1, 2] - around[1, 1], around[1, 0] - around[1, 1]
    slope_a, slope_b = (up - down) / 2, (right - left) / 2
    bend_a, bend_b = up + down, right + left
    cross = (around[2, 2] - around[2, 0] - around[0, 2] + around[0, 0]) / 4
    area = bend_a * bend_b - cross * cross
    if bend_a <= 0 or area <= 0:
        return 0.0, 0.0
    a = (cross * slope_b - bend_b * slope_a) / area
    b = (cross * slope_a - bend_a * slope_b) / area
    return float(np.clip(a, -1, 1)), float(np.clip(b, -1, 1))


def calibrations_of(card: Mapping[str, Any], count: int) -> list[Calibration]:
    """How sure each model on a card may be; an older card has no slopes."""
    warm, slopes = card.get("temperatures", [1.0] * count), card.get("slopes", [0.0] * count)
    sure = [Calibration(float(t), float(s)) for t, s in zip(warm, slopes, strict=True)]
    if len(sure) != count or not all(one.usable for one in sure):
        raise ValueError(f"temperatures {warm} and slopes {slopes} for {count} models")
    return sure
