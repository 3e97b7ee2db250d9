"""Optimizers by name, and their state ("moments") as parameters that can be averaged."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import nn

from fedsage.models.parameters import Parameters

OptimizerName: TypeAlias = Literal["adam", "adamw", "sgd"]


def make_optimizer(
    model: nn.Module, name: OptimizerName, eta: float, weight_decay: float
) -> torch.optim.Optimizer:
    """The optimizer of that name on all weights of ``model``, with learning rate η."""
    weights = list(model.parameters())
    if name == "sgd":
        return torch.optim.SGD(weights, lr=eta, weight_decay=weight_decay)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    fused = weights[0].device.type in ("cpu", "cuda")
    return kind(weights, lr=eta, weight_decay=weight_decay, fused=fused)


def moments_of(optimizer: torch.optim.Optimizer, model: nn.Module) -> Parameters:
    """A copy of what the optimizer remembers of each weight; empty before its first step."""
    return {
        f"{name}.{key}": value.detach().cpu().clone()
        for name, weight in model.named_parameters()
        for key, value in optimizer.state[weight].items()
    }


def load_moments(
    optimizer: torch.optim.Optimizer, model: nn.Module, moments: Parameters
) -> None:
    """Make the optimizer remember ``moments``, copied into what it holds already."""
    found: dict[str, Parameters] = {}
    for key, moment in moments.items():
        name, _, kind = key.rpartition(".")
        found.setdefault(name, {})[kind] = moment
    for name, weight in model.named_parameters():
        held, given = optimizer.state[weight], found.get(name, {})
        optimizer.state[weight] = {
            kind: held[kind].copy_(moment)
            if kind in held
            else moment.to(weight.device, copy=True)
            for kind, moment in given.items()
        }
