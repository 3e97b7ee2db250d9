"""Curves over rounds, with a band from the lowest to the highest seed."""

from __future__ import annotations

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
    label,
    line,
    text,
    ticks,
    y_axis,
)

SETTLED = 0.25  # of the rounds; what comes before may lie outside a cut axis
WORTH = 0.6  # an axis is cut only if that makes it this much shorter


@dataclass(frozen=True, slots=True)
class Curve:
    """One method over rounds."""

    name: str
    color: str
    x: Sequence[int]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def y_range(curves: Sequence[Curve], cuts: bool = True) -> tuple[float, float, bool]:
    """From where to where the y axis runs, and whether it leaves out the first rounds."""
    low = min(min(one.low) for one in curves)
    high = max(max(one.high) for one in curves)
    later = [slice(int(len(one.x) * SETTLED), None) for one in curves]
    cut_low = min(min(one.low[part]) for one, part in zip(curves, later, strict=True))
    cut_high = max(max(one.high[part]) for one, part in zip(curves, later, strict=True))
    cut = cuts and cut_high - cut_low < WORTH * (high - low)
    low, high = (cut_low, cut_high) if cut else (low, high)
    pad = (high - low or abs(high) or 1) * 0.04
    return max(low - pad, 0.0) if low >= 0 else low - pad, high + pad, cut


def line_chart(
    curves: Sequence[Curve], x_label: str, y_label: str, cuts: bool = True
) -> tuple[Picture, str]:
    """The picture, and a sentence about its axis if that is cut, as it may be over rounds."""
    x_low, x_high = min(min(one.x) for one in curves), max(max(one.x) for one in curves)
    y_low, y_high, cut = y_range(curves, cuts)

    def at(x: float, y: float) -> str:
        across = LEFT + (x - x_low) / ((x_high - x_low) or 1) * (WIDTH - LEFT - RIGHT)
        return f"{across:.1f},{down(y):.1f}"

    def down(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    marks = y_axis(y_label, x_label, [(down(v), label(v)) for v in ticks(y_low, y_high)])
    for value in (one for one in ticks(x_low, x_high, 8) if one == round(one)):
        across = float(at(value, y_low).split(",")[0])
        marks.append(text(across, HEIGHT - BOTTOM + 18, label(value), "middle"))
    drawn = []
    for one in curves:
        if list(one.low) != list(one.high):
            there = [at(x, y) for x, y in zip(one.x, one.high, strict=True)]
            back = [at(x, y) for x, y in zip(one.x, one.low, strict=True)][::-1]
            points = " ".join([*there, *back])
            drawn.append(Mark("polygon", {"class": f"band {one.color}", "points": points}))
        points = " ".join(at(x, y) for x, y in zip(one.x, one.y, strict=True))
        drawn.append(Mark("polyline", {"class": f"line {one.color}", "points": points}))
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    window = {  # a picture of its own, which hides what lies outside a cut axis
        "x": f"{LEFT}", "y": f"{TOP}", "width": f"{width}", "height": f"{height}",
        "viewBox": f"{LEFT} {TOP} {width} {height}", "class": "window",
    }  # fmt: skip
    marks.append(Mark("svg", window, inside=tuple(drawn)))
    marks.append(line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "cursor"))
    hover: dict[str, Value] = {
        "left": LEFT, "right": WIDTH - RIGHT, "low": x_low, "high": x_high, "x": x_label
    }  # fmt: skip
    picture = Picture(WIDTH, HEIGHT, f"{y_label} over {x_label}", marks, hover)
    words = f"The axis is cut to {y_low:.2g}–{y_high:.2g}; the first rounds lie outside it."
    return picture, words if cut else ""


def line_sheet(curves: Sequence[Curve], x_label: str) -> Sheet:
    """The curves as a table: a row for each round, a column for each of them."""
    known = [dict(zip(one.x, one.y, strict=True)) for one in curves]
    rounds = sorted({x for one in curves for x in one.x})
    rows: list[list[Value]] = [[x, *(values.get(x) for values in known)] for x in rounds]
    return Sheet([x_label, *(one.name for one in curves)], rows)
