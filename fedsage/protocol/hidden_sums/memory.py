"""What an owner must remember, even after a restart, so that hidden sums stay hidden.

Two sums over the same numbers but other owners would show, by their difference, what one owner
added. And whoever is handed a state must know that owners computed it from their sums.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedsage.errors import PrivacyError
from fedsage.files import write_json
from fedsage.protocol.messages import OwnerId

FILE = "sums.json"
AGAIN = ", try "  # in the name of a sum that is another try of a round


@dataclass(slots=True)
class Remembered:
    """Who was in which sum, and the checksums of states that this owner knows to be right.

    Args:
        path: Where it is kept; None if it lasts only as long as the process.
    """

    path: Path | None = None
    sums: dict[str, list[OwnerId]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path and self.path.exists():
            kept = json.loads(self.path.read_text())
            self.sums, self.states = kept["sums"], kept["states"]

    def check_sum(self, question: str, owners: Sequence[OwnerId]) -> None:
        """Refuse to open a sum that differs from an earlier one only in who is in it."""
        before = self.sums.get(question)
        if sorted(owners) in self.tries_besides(question):
            raise PrivacyError(
                f"A sum over owners {sorted(owners)} was to be opened again ({question}): many "
                "tries without the same owner would show what it adds. Nothing was sent."
            )
        if before is not None and before != sorted(owners):
            raise PrivacyError(
                f"A sum over owners {sorted(owners)} was to be opened ({question}), but the "
                f"same was already added up over {before}: the difference would show what one "
                "owner added. Nothing was sent. Start a new run, or wait until the same owners "
                "are there."
            )
        if before is None:
            self.sums[question] = sorted(owners)
            self.save()

    def tries_besides(self, question: str) -> list[list[OwnerId]]:
        """Who was in other tries of the same round, if this is another try."""
        first, again, _ = question.partition(AGAIN)
        same = [one for one in self.sums if one.startswith(f"{first}{AGAIN}")] if again else []
        return [self.sums[one] for one in same if one != question]

    @property
    def tried_again(self) -> set[str]:
        """The rounds that had more than one try."""
        return {one.partition(AGAIN)[0] for one in self.sums if AGAIN in one}

    def know(self, state: str, checksum: str) -> None:
        """Remember that this owner computed a state from sums that it could check."""
        if self.states.get(state) != checksum:
            self.states[state] = checksum
            self.save()

    def save(self) -> None:
        """Write it down before anything leaves."""
        if self.path is not None:
            write_json(self.path, {"sums": self.sums, "states": self.states})
