"""How an owner trains and queries the classifier: plain values, agreed before the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedsage.models.optimizer import OptimizerName

Moments: TypeAlias = Literal["own", "reset", "averaged"]
Weighting: TypeAlias = Literal["owners", "nodes"]
Inference: TypeAlias = Literal["full", "sampled"]
Mix: TypeAlias = Literal["off", "rounds", "epochs"]
Kernel: TypeAlias = Literal["auto", "fused", "torch"]


@dataclass(frozen=True, slots=True)
class Training:
    """The settings of procedure F and of queries."""

    eta: float = 1e-3
    optimizer: OptimizerName = "adam"
    weight_decay: float = 0.0
    batch_size: int = 64
    fanouts: tuple[int, ...] = (5, 5)
    local_epochs: int = 1
    dropout: float = 0.0
    mix: Mix = "rounds"  # train on G_i too where there is a G'_i
    leaves: int = 1  # neighbors a node, where they are copies or drawn by class
    moments: Moments = "averaged"
    weighting: Weighting = "owners"
    inference: Inference = "full"
    device: str = "cpu"
    kernel: Kernel = "auto"
