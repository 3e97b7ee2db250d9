"""An optimizer's memory without sending it: what follows from changes that all have seen.

Adam's first moment follows from the mean change of the last round, its second is kept as the
means of rows and columns. So everybody knows, before a round, how far momentum and weight decay
alone will take φ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsage.config import ClassifierConfig
from fedsage.models.parameters import Parameters

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's, as torch has them
ROWS, COLUMNS = "rows/", "columns/"


@dataclass(frozen=True, slots=True)
class Pace:
    """How many steps the optimizer has taken: in all, and in the last round."""

    steps: float
    last: float

    def after(self, more: float) -> Pace:
        """One round later."""
        return Pace(self.steps + more, more)

    @property
    def carried(self) -> float:
        """The share of the last change that momentum repeats in a round like it."""
        ahead = range(1, 1 + max(1, round(self.last)))
        kept = 1 - BETA_1**self.steps
        return sum(BETA_1**k * kept / (1 - BETA_1 ** (self.steps + k)) for k in ahead) / max(
            self.last, 1
        )

    @property
    def pulled(self) -> float:
        """How many whole steps a constant gradient makes in a round like the last."""
        ahead = range(1, 1 + max(1, round(self.last)))
        return sum((1 - BETA_1**k) / (1 - BETA_1 ** (self.steps + k)) for k in ahead)


def has_moments(how: ClassifierConfig) -> bool:
    """Whether moments are shared, and so have to follow from something."""
    return how.moments == "averaged" and how.optimizer != "sgd"


def expected_change(
    weight: Tensor,
    moved: Tensor | None,
    root: Tensor | None,
    pace: Pace,
    how: ClassifierConfig,
) -> Tensor:
    r"""How far momentum and weight decay take a weight in a round, whatever the data.

    Args:
        weight: As all have it before the round.
        moved: How far the last round took it, where moments are shared.
        root: :math:`\sqrt{\hat v}`, where it is known.
        pace: Of the optimizer.
        how: Its settings.
    """
    if moved is None:
        return torch.zeros_like(weight)
    change = moved * pace.carried
    if not how.weight_decay or pace.last == 0:
        return change
    if how.optimizer == "adamw":
        return change - weight * (how.eta * how.weight_decay * pace.last)
    if root is None:
        return change
    pull = (weight * how.weight_decay / (root + EPSILON)).clamp(-1, 1)  # no step is longer
    return change - pull * (how.eta * pace.pulled)


def moments_for(
    name: str, moved: Tensor, root: Tensor, pace: Pace, how: ClassifierConfig
) -> Parameters:
    r"""Adam's memory of a weight: :math:`m = -\frac{\Delta}{\eta K} \sqrt{\hat v}`, and v."""
    first = -(1 - BETA_1**pace.steps) / (how.eta * max(pace.last, 1))
    return {
        f"{name}.step": torch.tensor(pace.steps, dtype=torch.float32),
        f"{name}.exp_avg": moved * (root + EPSILON) * first,
        f"{name}.exp_avg_sq": root.square() * (1 - BETA_2**pace.steps),
    }


def factored(name: str, second: Tensor, steps: float) -> Parameters:
    r"""The roots of the means of :math:`\hat v`, over its rows and over its columns."""
    corrected = second.flatten(1) if second.ndim > 1 else second.reshape(-1, 1)
    corrected = corrected / (1 - BETA_2**steps)
    rows = {ROWS + name: corrected.mean(dim=1).sqrt()}
    if second.ndim < 2:
        return rows
    return rows | {COLUMNS + name: corrected.mean(dim=0).sqrt()}


def root_sizes(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """How many roots there are in each factor of all second moments."""
    sizes: dict[str, int] = {}
    for name, weight in weights.items():
        sizes[ROWS + name] = len(weight) if weight.ndim else 1
        if weight.ndim > 1:
            sizes[COLUMNS + name] = weight[0].numel()
    return sizes


def root_of(name: str, factors: Mapping[str, Tensor], shape: torch.Size) -> Tensor | None:
    r""":math:`\sqrt{\hat v}` from its factors; None before they are known.

    The mean is summed exactly, so that it is the same on every machine.
    """
    rows, columns = factors.get(ROWS + name), factors.get(COLUMNS + name)
    if rows is None:
        return None
    if columns is None:
        return rows.reshape(shape)
    mean = math.sqrt(math.fsum(rows.double().square().tolist()) / len(rows))
    return (rows[:, None] * (columns / mean)[None, :]).reshape(shape)
