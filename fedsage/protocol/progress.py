"""How far a run has come: rounds as they end, and what the server remembers between two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import Classifier, View

NO_CLASSIFIER = Classifier({}, {})


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One finished round, for progress lines and learning curves."""

    phase: Literal["mending", "training"]
    t: int
    loss: float  # mean over owners
    validation: float | None  # accuracy of the averaged classifier on validation nodes
    classifier: Classifier | None = None  # after it, where there is one
    terms: dict[str, float] = field(default_factory=dict)  # of the loss, where it has several


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a method has come: all that the server must remember between two rounds."""

    phase: Literal["mending", "training"]
    t: int  # rounds of that phase that are over
    kept: Parameters = field(default_factory=dict)  # by a way of mending, from round to round
    classifier: Classifier = NO_CLASSIFIER
    best: Classifier = NO_CLASSIFIER  # if another one
    best_round: int = -1
    best_validation: float = -1.0
    best_view: View = "plain"


class Journal:
    """Where a method writes how far it has come, and where it starts. This one forgets."""

    start = Progress("mending", 0)

    def keep(self, progress: Progress) -> None:
        """Called after every round."""


OnRound: TypeAlias = Callable[[RoundRecord], None]
FORGET = Journal()


def ignore(record: RoundRecord) -> None:
    """For callers that want no progress."""
