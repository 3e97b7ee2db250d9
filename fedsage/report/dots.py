"""One row of dots for each method, on an axis that shows the differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedsage.report.blocks import Key, Mark, Picture, listed
from fedsage.report.marks import diamond, dot, dot_key, label, line, paper_key, text, ticks

WIDTH, RIGHT, TOP, BOTTOM, ROW = 480, 18, 10, 46, 34
FAR = 0.45  # who alone makes the axis this much longer is shown at its edge instead,
MOST_OFF = 4  # but only one, or one in so many

Across: TypeAlias = Callable[[float], float]  # from a value to its place on the axis


@dataclass(frozen=True, slots=True)
class Dots:
    """One method: each value, and where they all lie."""

    name: str
    color: str
    each: Sequence[tuple[str, float]]  # what a value is of, and the value
    middle: float
    interval: tuple[float, float] | None = None
    paper: float | None = None

    @property
    def span(self) -> list[float]:
        """All that should be on the axis."""
        ends = [*(self.interval or ()), *([] if self.paper is None else [self.paper])]
        return [self.middle, *(value for _, value in self.each), *ends]


def in_focus(rows: Sequence[Dots], always: Sequence[float] = ()) -> list[Dots]:
    """The rows that fit on an axis on which their differences can be seen."""
    kept, least = list(rows), len(rows) - max(1, len(rows) // MOST_OFF)
    while len(kept) > max(2, least):
        whole = extent(kept, always)
        without = [[one for one in kept if one is not far] for far in kept]
        best = min(without, key=lambda rest: extent(rest, always))
        if extent(best, always) > FAR * whole:
            break
        kept = best
    return kept


def extent(rows: Sequence[Dots], always: Sequence[float]) -> float:
    """How long an axis must be that shows all of ``rows``."""
    each = [value for one in rows for value in one.span] + list(always)
    return max(each) - min(each)


def dot_chart(
    rows: Sequence[Dots], x_label: str, zero: bool = False, signed: bool = False
) -> tuple[Picture, str]:
    """The picture, and a sentence about its axis if that is cut."""
    always = [0.0] if zero else []
    shown = in_focus(rows, always)
    each = [value for one in shown for value in one.span] + always
    pad = (max(each) - min(each) or 0.02) * 0.07
    low, high = min(each) - pad, max(each) + pad
    left = 20 + 7.6 * max(len(one.name) for one in rows)
    bottom = TOP + ROW * len(rows)
    sign = "+" if signed else ""

    def across(x: float) -> float:
        return left + (x - low) / (high - low) * (WIDTH - RIGHT - left)

    marks = [text((left + WIDTH - RIGHT) / 2, bottom + 38, x_label, "middle", "axis")]
    for value in ticks(low, high, 5):
        marks.append(line(across(value), TOP, across(value), bottom, "grid"))
        marks.append(text(across(value), bottom + 17, label(value), "middle"))
    if zero:
        marks.append(line(across(0), TOP, across(0), bottom, "zero"))
    for r, one in enumerate(rows):
        y = TOP + (r + 0.5) * ROW
        marks.append(text(left - 10, y + 4, one.name, "end", "axis"))
        if one in shown:
            marks += row_marks(one, y, across, sign)
        else:
            marks += beyond(one, y, left + 4, WIDTH - RIGHT - 4, one.middle < low, sign)
    picture = Picture(WIDTH, bottom + BOTTOM, x_label, marks)
    return picture, about_axis(low, high, [one for one in rows if one not in shown], zero)


def row_marks(one: Dots, y: float, across: Across, sign: str) -> list[Mark]:
    """The dots of one method, with its interval and the paper's value."""
    marks = []
    if one.interval:
        marks.append(
            line(across(one.interval[0]), y, across(one.interval[1]), y, f"range {one.color}")
        )
    for what, value in one.each if len(one.each) > 1 else ():
        tip = f"{one.name}, {what}: {value:{sign}.4f}"
        marks.append(dot(across(value), y, 4, f"dot faint {one.color}", tip))
    if one.paper is not None:
        marks.append(diamond(across(one.paper), y, 6, f"the paper: {one.paper:{sign}.4f}"))
    tip = f"{one.name}, mean: {one.middle:{sign}.4f}"
    return [*marks, dot(across(one.middle), y, 6, f"dot {one.color}", tip)]


def beyond(
    one: Dots, y: float, left: float, right: float, lower: bool, sign: str
) -> list[Mark]:
    """An arrow at the edge, and the value that lies beyond it."""
    x, turn = (left, 1) if lower else (right, -1)
    tip = f"{one.name}, mean: {one.middle:{sign}.4f}"
    points = f"{x:.1f},{y:.1f} {x + turn * 10:.1f},{y - 5:.1f} {x + turn * 10:.1f},{y + 5:.1f}"
    arrow = Mark("polygon", {"class": f"dot {one.color}", "points": points, "data-tip": tip})
    words = f"{one.middle:{sign}.4f}, off the axis"
    return [arrow, text(x + turn * 15, y + 4, words, "start" if lower else "end")]


def about_axis(low: float, high: float, off: Sequence[Dots], zero: bool) -> str:
    """That the axis is cut, and who lies beyond it."""
    missing = f" Off the axis: {listed([one.name for one in off])}." if off else ""
    if zero:
        return missing.strip()
    return f"The axis is cut: it runs from {low:.3g} to {high:.3g}.{missing}"


def dot_keys(rows: Sequence[Dots], one: str, interval: str = "") -> list[Key]:
    """What the marks stand for."""
    if any(len(row.each) > 1 for row in rows):
        keys = [dot_key("mean", "dot neutral", 5), dot_key(one, "dot faint neutral", 3.5)]
    else:
        keys = [dot_key(one, "dot neutral", 5)]
    if interval and any(row.interval for row in rows):
        keys.append(Key(interval, line(0, 5, 24, 5, "range neutral")))
    if any(row.paper is not None for row in rows):
        keys.append(paper_key())
    return keys
