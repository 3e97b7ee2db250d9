"""What an owner's nodes have cost so far, in a file that only grows.

A charge is on disk before the noisy sum that it pays for leaves, so that neither a kill nor a
restart loses one. The ledger adds up over all runs, and refuses what would exceed the owner's
budget or the ε of the run. A sum is paid for once: if the same is asked for again, the same
answer tells nothing new, and another question in its place is refused.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedsage.errors import ConfigError, PrivacyError, StorageError
from fedsage.files import locked
from fedsage.privacy.accountant import Charge, spent

SPENT = "spent.jsonl"


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that may be spent: (ε, δ)."""

    epsilon: float
    delta: float

    def refuses(self, charges: Sequence[Charge]) -> bool:
        """Whether these cost more."""
        return spent(charges, self.delta) > self.epsilon * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class Entry:
    """A charge, the run that asked for it, what it was for, and a checksum of the question."""

    run: str
    what: str
    asked: str
    charge: Charge


class Ledger:
    """All charges of one owner.

    Args:
        path: The file; None to keep them in memory, as in simulations.
        budget: The most that all runs together may cost; None if there is no limit.
    """

    def __init__(self, path: Path | None = None, budget: Budget | None = None) -> None:
        self.path, self.budget = path, budget
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        """All that was charged so far; a damaged file counts as no permission."""
        if self.path is None or not self.path.exists():
            return list(self._entries)
        *lines, _ = self.path.read_text().split("\n")  # the last is empty, or was cut off
        try:
            found = [json.loads(line) for line in lines]
            return [
                Entry(e["run"], e["what"], e["asked"], Charge(**e["charge"])) for e in found
            ]
        except (ValueError, KeyError, TypeError, PrivacyError):
            raise ConfigError(
                f"{self.path.name} in the owner's kit is damaged, so it is not known what its "
                "nodes have cost so far. Restore it from a copy."
            ) from None

    def charge(
        self, run: str, what: str, asked: str, charge: Charge, limit: Budget | None = None
    ) -> None:
        """Write down a charge before its sum leaves; refuses one that exceeds a budget.

        ``asked`` is a checksum of the question; the same one is charged once. ``limit`` is the
        most that this run may cost.
        """
        with nullcontext() if self.path is None else locked(self.path):
            before = self.entries()
            paid = [one.asked for one in before if (one.run, one.what) == (run, what)]
            if asked in paid:
                return
            if paid:
                raise PrivacyError(
                    f"This run's {what} was answered already, and another question was put in "
                    "its place. Nothing was sent."
                )
            self.check([*before, Entry(run, what, asked, charge)], run, limit)
            self.add(Entry(run, what, asked, charge))

    def afford(self, run: str, charges: Sequence[Charge], limit: Budget | None = None) -> None:
        """Refuse a run before it starts if all its charges would exceed a budget.

        What it was charged already, before it was stopped, is among them.
        """
        others = [one for one in self.entries() if one.run != run]
        self.check([*others, *(Entry(run, "", "", one) for one in charges)], run, limit)

    def check(self, entries: Sequence[Entry], run: str, limit: Budget | None) -> None:
        """Refuse charges beyond the budget of the owner or of the run."""
        own = together(one.charge for one in entries if one.run == run)
        if limit is not None and limit.refuses(own):
            raise PrivacyError(
                f"More was asked for than the run's ε = {limit.epsilon:g} pays for. Nothing "
                "was sent. Start a new run."
            )
        everything = together(one.charge for one in entries)
        if self.budget is not None and self.budget.refuses(everything):
            would = spent(everything, self.budget.delta)
            raise PrivacyError(
                f"With this run, all private runs together would cost ε = {would:.2f}, but the "
                f"owner's budget is ε = {self.budget.epsilon:g} (δ = {self.budget.delta:g}). "
                "Nothing was sent. Choose a smaller ε, or ask the owner."
            )

    def add(self, entry: Entry) -> None:
        """Append an entry, on disk when this returns."""
        self._entries.append(entry)
        if self.path is None:
            return
        text = self.path.read_bytes() if self.path.exists() else b""
        whole = text.rfind(b"\n") + 1
        try:
            with self.path.open("ab") as file:
                file.truncate(whole)  # a line that was cut off paid for nothing that left
                file.write((json.dumps(asdict(entry)) + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"{self.path.name} cannot be written ({error.strerror}), so nothing was sent."
            ) from None

    def spent(self, delta: float, run: str | None = None) -> float:
        """The ε of all runs so far, or of one."""
        found = [one.charge for one in self.entries() if run in (None, one.run)]
        return spent(together(found), delta)


def together(charges: Iterable[Charge]) -> list[Charge]:
    """The same charges, those of one kind as one."""
    times: Counter[Charge] = Counter()
    for one in charges:
        times[replace(one, times=1)] += one.times
    return [replace(one, times=count) for one, count in times.items()]
