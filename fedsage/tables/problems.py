"""What is wrong with someone's tables: a line for each kind of problem, with its count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int

from fedsage.errors import DataErrors
from fedsage.shapes import Array

if TYPE_CHECKING:
    from fedsage.tables.cells import Cells

ROWS_SHOWN = 3  # rows that a line names
VALUES_SHOWN = 10  # values of one column that have a line of their own


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix, however many cells have it."""

    kind: str
    where: str  # "nodes.csv, line 5, column age", or without the line if it is in several
    what: str  # what is wrong and what was seen
    remedy: str
    count: int = 1
    in_rows: bool = False  # rows are counted; what concerns a whole file comes first

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.remedy}"


@dataclass(slots=True)
class Problems:
    """A list that grows while tables are read, so that all problems are reported at once."""

    place: str  # the folder or file being read
    found: list[Problem] = field(default_factory=list)

    def add(self, kind: str, where: str, what: str, remedy: str) -> None:
        """Note a problem that is in one place."""
        self.found.append(Problem(kind, where, what, remedy))

    def add_rows(
        self,
        kind: str,
        cells: Cells,
        column: str | None,
        rows: Sequence[int],
        what: str,
        remedy: str,
        held: str = "rows are like this",
    ) -> None:
        """Note a problem that some rows share; ``held`` says what counts them."""
        names = [cells.row_name(int(row)) for row in rows[:ROWS_SHOWN]]
        at = "" if column is None else f", column {column}"
        if len(rows) == 1:
            where = f"{cells.file}, {names[0]}{at}"
        else:
            where = f"{cells.file}{at}"
            what = f"{what}; {len(rows):,} {held} ({in_words(names, len(rows))})"
        self.found.append(Problem(kind, where, what, remedy, len(rows), True))

    @property
    def count(self) -> int:
        """How many cells, rows and files have a problem."""
        return sum(problem.count for problem in self.found)

    def lines(self) -> list[str]:
        """A line per problem: whole files first, then the most frequent."""
        ordered = sorted(self.found, key=lambda p: (p.in_rows, -p.count))
        return [str(problem) for problem in ordered]

    def raise_if_any(self) -> None:
        """Refuse the tables if there is anything to fix."""
        if self.found:
            raise DataErrors(self.place, self.lines(), self.count)


def in_words(names: Sequence[str], count: int) -> str:
    """The first of some rows: ``lines 3, 8, 12, …``."""
    unit = names[0].split()[0]
    numbers = ", ".join(name.split()[1] for name in names)
    return f"{unit}s {numbers}{', …' if count > len(names) else ''}"


def note_cells(
    cells: Cells,
    column: str,
    bad: Bool[Array, " rows"],
    kind: str,
    words: Callable[[int], tuple[str, str]],
    problems: Problems,
    alike: Callable[[str], str] = str,
) -> None:
    """Note the bad cells of a column, a line per value.

    Args:
        cells: The table.
        column: One of its columns.
        bad: Which of its cells are wrong.
        kind: The kind of problem, for the values that have no line of their own.
        words: What is wrong in a row, and the remedy.
        problems: Where to note it.
        alike: Values for which it gives the same text share a line.
    """
    rows = np.flatnonzero(bad)
    if not len(rows):
        return
    distinct, codes = distinct_in(cells, column, rows)
    keys: dict[str, int] = {}
    group = np.array([keys.setdefault(alike(text), len(keys)) for text in distinct])[codes]
    counts = np.bincount(group, minlength=len(keys))
    first = np.unique(group, return_index=True)[1]
    order = np.lexsort((first, -counts))
    held = "cells hold it" if alike is str else "cells are like this"
    for one in order[:VALUES_SHOWN].tolist():
        own = rows[group == one]
        problems.add_rows(kind, cells, column, own.tolist(), *words(int(own[0])), held)
    rest = np.isin(group, order[VALUES_SHOWN:])
    if rest.any():
        own = rows[rest]
        what = f"{len(order) - VALUES_SHOWN:,} more values have the same problem, {kind}"
        remedy = words(int(own[0]))[1].split("? ")[-1]
        problems.add_rows(kind, cells, column, own.tolist(), what, remedy, "cells hold them")


def all_alike(text: str) -> str:
    """For values that have nothing to tell one by one, such as ids."""
    return ""


def distinct_in(
    cells: Cells, column: str, rows: Int[Array, " bad"]
) -> tuple[list[str], Int[Array, " bad"]]:
    """The different texts in some rows of a column, and which of them each row holds."""
    coded = cells.columns[column].take(rows).combine_chunks().dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy()
