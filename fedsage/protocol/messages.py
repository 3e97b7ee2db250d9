"""Everything that may cross an owner's boundary. If it is not here, it does not cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fedsage.models.parameters import Parameters

OwnerId: TypeAlias = int


@dataclass(frozen=True, slots=True)
class Classifier:
    """Procedure B, S → every D_i: the shared classifier."""

    phi: Parameters
    moments: Parameters  # of the optimizer; empty unless they are averaged too


@dataclass(frozen=True, slots=True)
class ClassifierUpdate:
    """Procedure F, D_i → S: the classifier after local training."""

    phi: Parameters  # φ_i
    moments: Parameters  # empty unless they are averaged too
    weight: float  # 1, or the number of training nodes if the mean is weighted by them
    loss: float


@dataclass(frozen=True, slots=True)
class Hits:
    """D_i → S: how many of its validation (or test) nodes the classifier gets right."""

    correct: int  # queried on G_i
    mended: int  # queried on G'_i; the same where nothing is mended
    total: int


@dataclass(frozen=True, slots=True)
class Ask:
    """S → D_i: run a procedure; says which round, and nothing else."""

    t: int
