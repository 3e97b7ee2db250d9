"""Optimizers by name, and their state ("moments"), averaged or derived from changes.

Moments that nobody sends are derived from changes that all have seen. Adam's first moment
follows from the changes of all rounds; its second is kept as the means of rows and columns. So
everybody knows, before a round, how far momentum and weight decay alone will move φ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from fedsage.config import ClassifierConfig, OptimizerName
from fedsage.errors import ProtocolError
from fedsage.models.parameters import Parameters

MOMENTS = {"step", "exp_avg", "exp_avg_sq"}  # Adam's state of a weight
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's, as in torch
ROWS, COLUMNS = "rows/", "columns/"


def bare(step: Any) -> Any:
    """A step without torch's guard and profiler, which take a fifth of it."""
    plain: Any = torch.no_grad()(unwrap(step))
    plain.hooked = True  # unless set, torch wraps its profiler around
    return plain


class Quick:
    """Methods without torch's guards, which would load torch's compiler just to exclude them.

    That would cost every process a second or more, and nothing of ours is compiled by it.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)


class Adam(Quick, torch.optim.Adam):
    """torch's Adam, without the guards."""

    step = bare(torch.optim.Adam.step)


class AdamW(Quick, torch.optim.AdamW):
    """torch's AdamW, without the guards."""

    step = bare(torch.optim.AdamW.step)


class SGD(Quick, torch.optim.SGD):
    """torch's SGD, without the guards."""

    step = bare(torch.optim.SGD.step)


def make_optimizer(
    model: nn.Module, name: OptimizerName, eta: float, weight_decay: float
) -> torch.optim.Optimizer:
    """The optimizer of that name on all weights of ``model``, with learning rate η."""
    weights = list(model.parameters())
    if name == "sgd":
        return SGD(weights, lr=eta, weight_decay=weight_decay)
    kind = Adam if name == "adam" else AdamW
    fused = weights[0].device.type in ("cpu", "cuda")
    return kind(weights, lr=eta, weight_decay=weight_decay, fused=fused)


def name_of(optimizer: torch.optim.Optimizer) -> str:
    """The name of an optimizer in settings; its class if it has none."""
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
    found = (name for name, kind in kinds.items() if isinstance(optimizer, kind))
    return next(found, type(optimizer).__name__)  # AdamW is an Adam in some versions of torch


def moments_of(optimizer: torch.optim.Optimizer, model: nn.Module) -> Parameters:
    """A copy of the optimizer's state of each weight; empty before its first step."""
    return {
        f"{name}.{key}": value.detach().cpu().clone()
        for name, weight in model.named_parameters()
        for key, value in optimizer.state[weight].items()
    }


def load_moments(
    optimizer: torch.optim.Optimizer, model: nn.Module, moments: Parameters
) -> None:
    """Copy ``moments`` into the optimizer's state."""
    weights = dict(model.named_parameters())
    shapes = {name: weight.shape for name, weight in weights.items()}
    if why := strange_moments(moments, shapes):
        raise ProtocolError(f"An optimizer cannot continue with {why}. Start a new run.")
    found: dict[str, Parameters] = {}
    for key, moment in moments.items():
        name, _, kind = key.rpartition(".")
        found.setdefault(name, {})[kind] = moment
    for name, weight in weights.items():
        held, given = optimizer.state[weight], found.get(name, {})
        optimizer.state[weight] = {
            kind: held[kind].copy_(moment)
            if kind in held
            else moment.to(weight.device, copy=True)
            for kind, moment in given.items()
        }


def strange_moments(
    moments: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]
) -> str | None:
    """Why these cannot be an optimizer's moments of weights of such shapes, or None.

    For each weight, it has all moments or none.
    """
    for key, moment in moments.items():
        name, _, kind = key.rpartition(".")
        wanted = torch.Size() if kind == "step" else shapes.get(name)
        if name not in shapes or kind not in MOMENTS or moment.shape != wanted:
            return f"moment {key} of shape {tuple(moment.shape)}"
        if moment.dtype != torch.float32:
            return f"moment {key} of type {moment.dtype}"
        if missing := sorted(one for one in MOMENTS if f"{name}.{one}" not in moments):
            return f"moment {key} but no {name}.{missing[0]}"
    return None


@dataclass(frozen=True, slots=True)
class Pace:
    """How many steps the optimizer has taken: in total, and in the last round."""

    steps: float
    last: float

    def after(self, more: float) -> Pace:
        """The pace one round later."""
        return Pace(self.steps + more, more)

    def carried(self, ahead: float) -> float:
        """How far Adam moves in ``ahead`` steps, in steps along its first moment."""
        start = self.steps
        return sum(BETA_1**k / (1 - BETA_1 ** (start + k)) for k in whole(ahead))

    def pulled(self, ahead: float) -> float:
        """How far Adam moves in ``ahead`` steps, in steps along a constant gradient."""
        start = self.steps
        return sum((1 - BETA_1**k) / (1 - BETA_1 ** (start + k)) for k in whole(ahead))


def whole(steps: float) -> range:
    """The steps of a round as whole numbers; ``steps`` is a mean over owners."""
    return range(1, 1 + max(1, round(steps)))


def has_moments(how: ClassifierConfig) -> bool:
    """Whether moments are shared, and so have to be derived."""
    return how.moments == "averaged" and how.optimizer != "sgd"


def expected_change(
    weight: Tensor,
    first: Tensor | None,
    root: Tensor | None,
    pace: Pace,
    how: ClassifierConfig,
) -> Tensor:
    r"""How far momentum and weight decay move a weight in a round, whatever the data.

    Args:
        weight: The common value before the round.
        first: The first moment, if moments are shared.
        root: :math:`\sqrt{\hat v}`, if known.
        pace: Of the optimizer; the next round is assumed to be like the last.
        how: Its settings.
    """
    if first is None or root is None:
        return torch.zeros_like(weight)
    change = first / (root + EPSILON) * (-how.eta * pace.carried(pace.last))
    if how.optimizer == "adamw":
        return change - weight * (how.eta * how.weight_decay * pace.last)
    pull = (weight * how.weight_decay / (root + EPSILON)).clamp(-1, 1)  # no step is longer
    return change - pull * (how.eta * pace.pulled(pace.last))


def next_first(
    first: Tensor, new: Tensor, weight: Tensor, root: Tensor, pace: Pace, how: ClassifierConfig
) -> Tensor:
    r"""The first moment after a round, as a constant gradient would have left it.

    In K steps with gradient g, apart from momentum, Adam makes a change of
    :math:`-\eta g / \sqrt{\hat v}` times the steps that ``pulled`` counts.

    Args:
        first: Before the round.
        new: How far the round moved the weight beyond what was expected.
        weight: Before the round.
        root: :math:`\sqrt{\hat v}` after it.
        pace: After it.
        how: The settings of the optimizer.
    """
    before = Pace(pace.steps - pace.last, pace.last)
    kept = BETA_1**pace.last
    gradient = new * (root + EPSILON) * (-1 / (how.eta * before.pulled(pace.last)))
    if how.optimizer == "adam":
        gradient = gradient + weight * how.weight_decay
    return first * kept + gradient * (1 - kept)


def moments_for(name: str, first: Tensor, root: Tensor, pace: Pace) -> Parameters:
    """Adam's moments of a weight, as torch stores them."""
    return {
        f"{name}.step": torch.tensor(pace.steps, dtype=torch.float32),
        f"{name}.exp_avg": first,
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
    """How many roots each factor of the second moments has."""
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
