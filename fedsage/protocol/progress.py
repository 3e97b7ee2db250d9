"""Progress of a run: its rounds, and what the server must remember between them."""

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
    loss: float | None  # mean over owners; None in a private run, which does not ask for it
    validation: float | None  # accuracy of the averaged classifier on validation nodes
    classifier: Classifier | None = None  # after this round, if there is one
    terms: dict[str, float] = field(default_factory=dict)  # of the loss, if it has several


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a method has come: everything the server must remember between two rounds."""

    phase: Literal["mending", "training"]
    t: int  # finished rounds of that phase
    kept: Parameters = field(default_factory=dict)  # by a way of mending, from round to round
    classifier: Classifier = NO_CLASSIFIER
    best: Classifier = NO_CLASSIFIER  # if it is another one
    best_round: int = -1
    best_validation: float = -1.0
    best_view: View = "plain"
    top_round: int = -1  # with the best validation, whichever round is kept
    top_validation: float = -1.0


class Journal:
    """Where a method records its progress, and where it starts. This one forgets."""

    start = Progress("mending", 0)

    def keep(self, progress: Progress) -> None:
        """Called after every round."""


OnRound: TypeAlias = Callable[[RoundRecord], None]
FORGET = Journal()


def ignore(record: RoundRecord) -> None:
    """For callers that want no progress."""
