"""Bars from zero, and dots by class where differences are small."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedsage.report.blocks import Mark, Picture, Sheet, Value
from fedsage.report.marks import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    dot,
    group_names,
    label,
    line,
    rect,
    text,
    ticks,
    turned,
    y_axis,
)


@dataclass(frozen=True, slots=True)
class Series:
    """One value for each group, in one color."""

    name: str
    color: str
    values: Sequence[float]


def bar_chart(
    groups: Sequence[str],
    series: Sequence[Series],
    y_label: str,
    unit: str = "",
    stacked: bool = False,
) -> Picture:
    """Bars for each of ``groups``, side by side or stacked."""
    columns = list(zip(*(one.values for one in series), strict=True))
    most = max([sum(column) if stacked else max(column) for column in columns] + [1e-12])
    height = HEIGHT - TOP - BOTTOM
    room = (WIDTH - LEFT - RIGHT) / max(len(groups), 1)
    wide = min(room * 0.8, 72.0) if stacked else room * 0.8
    width = wide / (1 if stacked else len(series))
    grid = [(HEIGHT - BOTTOM - v / most * height, label(v)) for v in ticks(0, most)]
    marks = y_axis(y_label, "", grid)
    for g, group in enumerate(groups):
        left, base = LEFT + (g + 0.5) * room - wide / 2, float(HEIGHT - BOTTOM)
        for s, one in enumerate(series):
            tall = one.values[g] / most * height
            tip = f"{group}, {one.name}: {label(one.values[g])} {unit}".strip()
            x = left if stacked else left + s * width
            marks.append(rect(x, base - tall, width, tall, f"bar {one.color}", tip))
            base -= tall if stacked else 0
    names, more = group_names(groups, room)
    title = f"{y_label}: {', '.join(one.name for one in series)}"
    return Picture(WIDTH, HEIGHT + more, title, [*marks, *names])


def dot_columns(
    groups: Sequence[str], series: Sequence[Series], y_label: str
) -> tuple[Picture, str]:
    """A dot for each series above each group, and a sentence about the axis if it is cut."""
    each = [value for one in series for value in one.values]
    pad = (max(each) - min(each) or 0.1) * 0.06
    low, high = max(min(each) - pad, 0.0), max(each) + pad
    cut = low > 0
    room = (WIDTH - LEFT - RIGHT) / max(len(groups), 1)

    def down(y: float) -> float:
        return HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    marks = y_axis(y_label, "", [(down(v), label(v)) for v in ticks(low, high)])
    for g in range(1, len(groups)):
        marks.append(line(LEFT + g * room, TOP, LEFT + g * room, HEIGHT - BOTTOM, "grid"))
    step = room * 0.7 / max(len(series), 1)
    for g, group in enumerate(groups):
        for s, one in enumerate(series):
            x = LEFT + (g + 0.5) * room + (s - (len(series) - 1) / 2) * step
            tip = f"{group}, {one.name}: {one.values[g]:.3f}"
            marks.append(dot(x, down(one.values[g]), 5, f"dot {one.color}", tip))
    names, more = group_names(groups, room)
    title = f"{y_label}: {', '.join(one.name for one in series)}"
    picture = Picture(WIDTH, HEIGHT + more, title, [*marks, *names])
    return picture, f"The axis is cut: it starts at {low:.2g}." if cut else ""


def bar_sheet(what: str, groups: Sequence[str], series: Sequence[Series]) -> Sheet:
    """The bars as a table: a row for each group, a column for each series."""
    rows: list[list[Value]] = [
        [group, *(one.values[g] for one in series)] for g, group in enumerate(groups)
    ]
    return Sheet([what, *(one.name for one in series)], rows)


def heat_map(
    table: Sequence[Sequence[int]],
    rows: Sequence[str],
    columns: Sequence[str],
    row_label: str,
    column_label: str,
    color: str,
    row_height: float = 42.0,
    relative: bool = False,
) -> Picture:
    """A table of counts, shaded by the share of the row.

    With ``relative`` the largest of all shares is the darkest, else a share of one.
    """
    longest = max((len(name) for name in rows), default=1)
    left, top = 24 + 7.4 * longest, 30
    cell = min(42.0, max(WIDTH - 10 - left, 200) / max(len(columns), 1))
    tall = min(row_height, cell if len(rows) == len(columns) else 42.0, 400 / max(len(rows), 1))
    below = 18 + 5.2 * max((len(name) for name in columns), default=1)
    width = max(left + cell * len(columns), 300) + 10
    marks: list[Mark] = [
        text(12, 16, f"rows: {row_label}; columns: {column_label}", "start", "axis")
    ]
    shares = [count / (sum(row) or 1) for row in table for count in row]
    peak = (max(shares, default=1.0) if relative else 1.0) or 1.0
    for r, row in enumerate(table):
        total = sum(row) or 1
        if r % math.ceil(12 / tall) == 0:  # as many names as there is room for
            marks.append(text(left - 6, top + (r + 0.5) * tall + 4, rows[r], "end"))
        for c, count in enumerate(row):
            share, x, y = count / total, left + c * cell, top + r * tall
            tip = f"{rows[r]}, {columns[c]}: {count:,} of {total:,} ({100 * share:.1f}%)"
            shade = {"fill-opacity": f"{share / peak * 0.95:.3f}"}
            marks.append(rect(x, y, cell - 1, tall - 1, f"cell {color}", tip, **shade))
            if cell >= 26 and tall >= 14 and count:
                tone = "tick on" if share / peak > 0.6 else "tick number"
                place = (x + cell / 2 - 0.5, y + tall / 2 + 4)
                marks.append(text(*place, f"{count:,}", "middle", tone))
    fits = max((len(name) for name in columns), default=1) * 7 < cell
    for c, name in enumerate(columns):
        x, y = left + (c + 0.6) * cell, top + len(rows) * tall + 8
        marks.append(
            text(x - 0.1 * cell, y + 8, name, "middle")
            if fits
            else turned(x, y, name, "end", -45, "tick")
        )
    height = top + tall * len(rows) + below
    return Picture(width, height, f"{column_label} against {row_label}", marks)


def heat_sheet(
    table: Sequence[Sequence[int]], rows: Sequence[str], columns: Sequence[str], corner: str
) -> Sheet:
    """The counts as a table."""
    return Sheet([corner, *columns], [[rows[r], *row] for r, row in enumerate(table)])
