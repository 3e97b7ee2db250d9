"""What the page is made of: sections of charts and tables. Templates turn them into HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import TypeAlias

Value: TypeAlias = str | float | int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """One element of an SVG picture."""

    tag: str
    attributes: Mapping[str, str]
    content: str = ""
    inside: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG picture; ``hover`` is where its x axis lies, for curves that can be read off."""

    width: float
    height: float
    title: str
    marks: Sequence[Mark]
    hover: Mapping[str, Value] | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: a mark and what it stands for."""

    name: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Sheet:
    """Numbers to download."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]

    def rounded(self) -> dict[str, object]:
        """For the page, with six digits at most."""
        return {
            "columns": list(self.columns),
            "rows": [[float(f"{v:.6g}") if isinstance(v, float) else v for v in row]
                     for row in self.rows],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, its legend, what it says, and its numbers."""

    caption: str
    picture: Picture
    says: str
    sheet: Sheet
    keys: Sequence[Key] = ()
    kind: str = "figure"


@dataclass(frozen=True, slots=True)
class Grid:
    """Charts in two columns, where there is room."""

    figures: Sequence[Figure]
    kind: str = "grid"


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it is shown; ``sheet`` has plain numbers where cells are more than that."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    sheet: Sheet | None = None
    says: str = ""
    long: bool = False  # scrolls in a box on the screen; printed in full
    text: bool = False  # cells are words, not numbers
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to copy."""

    lines: Sequence[str]
    kind: str = "code"


Block: TypeAlias = Grid | Table | Code


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    title: str
    note: str
    blocks: Sequence[Block] = field(default_factory=tuple)

    @property
    def anchor(self) -> str:
        """What links to it say."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation of the known values."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    more = f" ± {stdev(known):.4f}" if len(known) > 1 else ""
    return f"{mean(known):.4f}{more}"


def average(values: Sequence[float | None]) -> float | None:
    """The mean of the known values."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def deviation(values: Sequence[float | None]) -> float | None:
    """The standard deviation of the known values, where there are several."""
    known = [value for value in values if value is not None]
    return stdev(known) if len(known) > 1 else None


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def short(name: str, most: int = 22) -> str:
    """A class's name that fits beside a chart."""
    name = name.replace("_", " ")
    return name if len(name) <= most else name[: most - 1] + "…"


def titled(words: str) -> str:
    """With a capital, for captions."""
    return words[:1].upper() + words[1:]
