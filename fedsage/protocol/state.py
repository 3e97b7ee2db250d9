"""What an owner keeps on its own disk between rounds; none of it is a message."""

from __future__ import annotations

from dataclasses import dataclass

from fedsage.models.gen_learner import GenState as GenState
from fedsage.models.parameters import Parameters


@dataclass(frozen=True, slots=True)
class ClassifierState:
    """After procedure F, where an owner keeps its optimizer's memory to itself."""

    moments: Parameters


@dataclass(frozen=True, slots=True)
class Sketched:
    """Which sketches of its features an owner was asked for, and whether it gave them."""

    columns: int  # of all of them together
    answered: dict[str, bool]  # by the checksum of the basis
