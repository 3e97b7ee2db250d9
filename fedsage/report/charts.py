"""Charts as SVG: the page needs no library, loads nothing, and works in light and dark mode.

Colors are CSS classes (``c0`` …), so that the page can change them. The values of a chart are
also in ``data-`` attributes, from which the page's script makes hover labels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 300  # as wide as half the page, so that text keeps its size
LEFT, RIGHT, TOP, BOTTOM = 74, 14, 14, 50


@dataclass(frozen=True, slots=True)
class Line:
    """One curve, with the band from the lowest to the highest of several runs."""

    name: str
    color: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between ``low`` and ``high``."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def label(value: float) -> str:
    """A number on an axis."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def line_chart(lines: Sequence[Line], x_label: str, y_label: str) -> str:
    """Curves over rounds."""
    x_low, x_high = min(min(one.x) for one in lines), max(max(one.x) for one in lines)
    y_low, y_high = min(min(one.low) for one in lines), max(max(one.high) for one in lines)
    pad = (y_high - y_low or abs(y_high) or 1) * 0.04
    y_low, y_high = y_low - pad, y_high + pad

    def px(x: float) -> float:
        return LEFT + (x - x_low) / ((x_high - x_low) or 1) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [axes(y_label, x_label, [(py(v), label(v)) for v in ticks(y_low, y_high)])]
    for value in ticks(x_low, x_high, 8):
        parts.append(text(px(value), HEIGHT - BOTTOM + 18, label(value), "middle"))
    for one in lines:
        upper = [f"{px(x):.1f},{py(y):.1f}" for x, y in zip(one.x, one.high, strict=True)]
        lower = [f"{px(x):.1f},{py(y):.1f}" for x, y in zip(one.x, one.low, strict=True)]
        if one.low != one.high:
            band = " ".join([*upper, *reversed(lower)])
            parts.append(f'<polygon class="band c{one.color}" points="{band}"/>')
        points = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in zip(one.x, one.y, strict=True))
        parts.append(f'<polyline class="line c{one.color} d{one.color}" points="{points}"/>')
    parts.append(f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    data = {
        "x": x_label,
        "left": LEFT, "right": WIDTH - RIGHT, "low": x_low, "high": x_high,
        "lines": [
            {"name": one.name, "x": list(one.x), "y": [round(v, 5) for v in one.y]}
            for one in lines
        ],
    }  # fmt: skip
    return svg("".join(parts), f"{y_label} over {x_label}", f"data-lines='{attribute(data)}'")


def bar_chart(
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    y_label: str,
    unit: str = "",
    stacked: bool = False,
) -> str:
    """Bars for each of ``groups``, side by side or stacked."""
    columns = list(zip(*(values for _, values in series), strict=True))
    most = max([sum(column) if stacked else max(column) for column in columns] + [1e-12])
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    room = plot_width / max(len(groups), 1)
    width = room * 0.8 / (1 if stacked else len(series))
    slanted = max(len(group) for group in groups) * 7.5 > room
    grid = [(HEIGHT - BOTTOM - v / most * plot_height, label(v)) for v in ticks(0, most)]
    parts = [axes(y_label, "", grid)]
    for g, group in enumerate(groups):
        left, base = LEFT + g * room + room * 0.1, HEIGHT - BOTTOM
        for s, (name, values) in enumerate(series):
            height = values[g] / most * plot_height
            x = left if stacked else left + s * width
            tip = escape(f"{group}, {name}: {label(values[g])} {unit}".strip(), quote=True)
            parts.append(
                f'<rect class="bar c{s % 8}" x="{x:.1f}" y="{base - height:.1f}" '
                f'width="{width:.1f}" height="{max(height, 0):.1f}" data-tip="{tip}"/>'
            )
            base -= height if stacked else 0
        parts.append(group_name(left + room * 0.4, group, slanted))
    title = f"{y_label} by {', '.join(name for name, _ in series)}"
    return svg("".join(parts), title, height=HEIGHT + (46 if slanted else 0))


def group_name(x: float, words: str, slanted: bool) -> str:
    """The label under a group of bars."""
    if not slanted:
        return text(x, HEIGHT - BOTTOM + 18, words, "middle")
    return (
        f'<text class="tick" text-anchor="end" transform="translate({x + 8:.1f},'
        f'{HEIGHT - BOTTOM + 16}) rotate(-30)">{escape(words)}</text>'
    )


def heat_map(
    table: Sequence[Sequence[int]],
    rows: Sequence[str],
    columns: Sequence[str],
    row_label: str,
    column_label: str,
) -> str:
    """A table of counts; each row's shade is the share of that row."""
    size = len(rows)
    cell = min(42.0, 420 / max(size, 1))
    longest = max((len(name) for name in rows), default=1)
    left, top = 24 + 8.8 * longest, 30
    below = 20 + 6.4 * max((len(name) for name in columns), default=1)
    width, height = max(left + cell * len(columns), 300) + 10, top + cell * size + below
    parts = [text(12, 16, f"rows: {row_label}; columns: {column_label}", "start", "axis")]
    for r, row in enumerate(table):
        total = sum(row) or 1
        parts.append(text(left - 6, top + (r + 0.62) * cell, rows[r], "end"))
        for c, count in enumerate(row):
            share = count / total
            tip = f"{rows[r]} → {columns[c]}: {count:,} of {total:,} ({100 * share:.1f}%)"
            x, y = left + c * cell, top + r * cell
            parts.append(
                f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{cell - 1:.1f}" '
                f'height="{cell - 1:.1f}" fill-opacity="{share:.3f}" '
                f'data-tip="{escape(tip, quote=True)}"/>'
            )
            if cell >= 26 and count:
                tone = "on" if share > 0.55 else "number"
                parts.append(
                    text(x + cell / 2 - 0.5, y + cell * 0.62, f"{count:,}", "middle", tone)
                )
    for c, name in enumerate(columns):
        x, y = left + (c + 0.6) * cell, top + size * cell + 8
        parts.append(
            f'<text class="tick" text-anchor="end" '
            f'transform="translate({x:.1f},{y:.1f}) rotate(-45)">{escape(name)}</text>'
        )
    return svg("".join(parts), f"{column_label} against {row_label}", "", width, height)


def axes(y_label: str, x_label: str, grid: Sequence[tuple[float, str]]) -> str:
    """Grid lines with their values, and the labels of the axes."""
    parts = []
    for y, value in grid:
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(text(LEFT - 6, y + 4, value, "end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text class="axis" text-anchor="middle" '
        f'transform="translate(15,{middle:.0f}) rotate(-90)">{escape(y_label)}</text>'
    )
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle", "axis"))
    return "".join(parts)


def text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    """Text at a position."""
    name = f"tick {kind}".strip() if kind != "axis" else "axis"
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def svg(
    inside: str, title: str, more: str = "", width: float = WIDTH, height: float = HEIGHT
) -> str:
    """The picture, with a title for screen readers."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(title, quote=True)}" style="max-width:{width:.0f}px" {more}>'
        f"{inside}</svg>"
    )


def legend(names: Sequence[str], colors: Sequence[int], bars: bool = False) -> str:
    """What each color stands for."""
    marks = [
        f'<rect class="bar c{color}" x="6" width="12" height="10"/>'
        if bars
        else f'<line class="line c{color} d{color}" x1="0" x2="24" y1="5" y2="5"/>'
        for color in colors
    ]
    items = [
        f'<span class="key"><svg viewBox="0 0 24 10" class="swatch">{mark}</svg>'
        f"{escape(name)}</span>"
        for name, mark in zip(names, marks, strict=True)
    ]
    return f'<div class="legend">{"".join(items)}</div>'


def attribute(data: object) -> str:
    """JSON for an attribute in single quotes."""
    return escape(json.dumps(data), quote=True)
