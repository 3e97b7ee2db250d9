"""What is wrong with someone's tables: every problem, where it is and how to fix it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fedsage.errors import DataErrors

AT_MOST = 20  # problems of one kind that are shown; the rest are counted


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix."""

    kind: str  # problems of one kind are counted together
    where: str  # "nodes.csv, line 5, column age"
    what: str  # what is wrong and what was seen
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.remedy}"


@dataclass(slots=True)
class Problems:
    """A list that grows while tables are read, so that all problems are reported at once."""

    place: str  # the folder or file being read
    found: list[Problem] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, kind: str, where: str, what: str, remedy: str) -> None:
        """Note a problem."""
        key = (kind, where.split(",")[0])
        self.counts[key] += 1
        if self.counts[key] <= AT_MOST:
            self.found.append(Problem(kind, where, what, remedy))

    def room(self, kind: str, file: str) -> int:
        """How many more problems of a kind will be shown one by one."""
        return max(AT_MOST - self.counts[kind, file], 0)

    def pass_over(self, kind: str, file: str, count: int) -> None:
        """Count problems that are not shown."""
        self.counts[kind, file] += count

    def lines(self) -> list[str]:
        """A line for each problem shown, and one for each kind of which some are not shown."""
        lines = [str(problem) for problem in self.found]
        shown = Counter((p.kind, p.where.split(",")[0]) for p in self.found)
        for (kind, file), count in self.counts.items():
            if count > shown[kind, file]:
                lines.append(f"{file}: {count - shown[kind, file]:,} more like this: {kind}.")
        return lines

    def raise_if_any(self) -> None:
        """Refuse the tables if there is anything to fix."""
        if self.counts:
            raise DataErrors(self.place, self.lines(), sum(self.counts.values()))
