"""Optimizers by name, and their state ("moments") as parameters that can be averaged."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from fedsage.config import OptimizerName
from fedsage.errors import ProtocolError
from fedsage.models.parameters import Parameters

MOMENTS = {"step", "exp_avg", "exp_avg_sq"}  # Adam's state of a weight


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
