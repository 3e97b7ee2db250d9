"""Elements that charts share: text, axes, ticks, and the marks of legends.

Colors are CSS classes, so that the page can change them between light and dark: ``m0`` to
``m7`` for methods, the same in every chart; ``q0`` to ``q5`` for everything else; ``truth``
for the truth. No chart needs a library or loads anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedsage.report.blocks import Key, Mark

WIDTH, HEIGHT = 480, 300  # half the width of the page, so that text keeps its size
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 50
COLORS = 8


def method_color(k: int) -> str:
    """The classes of the k-th method on the page."""
    return f"m{k % COLORS} d{k % COLORS}"


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
    if abs(value) < 1e-12:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def text(x: float, y: float, words: str, anchor: str, kind: str = "tick") -> Mark:
    """Text at a position."""
    place = {"class": kind, "x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    return Mark("text", place, words)


def turned(x: float, y: float, words: str, anchor: str, degrees: int, kind: str) -> Mark:
    """Text at an angle."""
    place = f"translate({x:.1f},{y:.1f}) rotate({degrees})"
    return Mark("text", {"class": kind, "text-anchor": anchor, "transform": place}, words)


def rect(
    x: float, y: float, width: float, height: float, color: str, tip: str = "", **more: str
) -> Mark:
    """A filled rectangle that says something when pointed at."""
    place = {"x": x, "y": y, "width": max(width, 0.0), "height": max(height, 0.0)}
    shape = {name: f"{value:.1f}" for name, value in place.items()}
    return Mark("rect", {"class": color} | shape | ({"data-tip": tip} if tip else {}) | more)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Mark:
    """A straight line."""
    place = {"x1": x1, "x2": x2, "y1": y1, "y2": y2}
    return Mark("line", {"class": kind} | {name: f"{v:.1f}" for name, v in place.items()})


def dot(x: float, y: float, radius: float, kind: str, tip: str) -> Mark:
    """A dot that says something when pointed at."""
    place = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{radius:.1f}"}
    return Mark("circle", {"class": kind, "data-tip": tip} | place)


def diamond(x: float, y: float, size: float, tip: str = "") -> Mark:
    """A hollow diamond: the paper's value."""
    corners = f"{x:.1f},{y - size:.1f} {x + size:.1f},{y:.1f} {x:.1f},{y + size:.1f} "
    points = f"{corners}{x - size:.1f},{y:.1f}"
    return Mark(
        "polygon", {"class": "paper", "points": points} | ({"data-tip": tip} if tip else {})
    )


def y_axis(y_label: str, x_label: str, grid: Sequence[tuple[float, str]]) -> list[Mark]:
    """Horizontal grid lines with their values, and the labels of both axes."""
    marks = []
    for y, value in grid:
        marks += [line(LEFT, y, WIDTH - RIGHT, y, "grid"), text(LEFT - 6, y + 4, value, "end")]
    marks.append(turned(15, (TOP + HEIGHT - BOTTOM) / 2, y_label, "middle", -90, "axis"))
    if x_label:
        marks.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle", "axis"))
    return marks


def group_names(names: Sequence[str], room: float) -> tuple[list[Mark], float]:
    """Labels under groups, slanted where they would touch, and the height that this adds."""
    slanted = max(len(name) for name in names) * 7.5 > room
    every = math.ceil(18 / room)  # where there is no room for all of them
    angle = slant(names, room)
    marks = []
    for g, name in enumerate(names):
        if g % every:
            continue
        x, y = LEFT + (g + 0.5) * room, HEIGHT - BOTTOM + 18
        marks.append(
            turned(x + 8, y - 2, name, "end", -angle, "tick")
            if slanted
            else text(x, y, name, "middle")
        )
    tall = 6.8 * max(len(name) for name in names) * math.sin(math.radians(angle))
    return marks, max(tall - 20, 0) if slanted else -20.0


def slant(names: Sequence[str], room: float) -> int:
    """Degrees: 30, or as many as it takes to keep every label in the picture."""
    shares = [
        (LEFT + (g + 0.5) * room) / (6.5 * len(name)) for g, name in enumerate(names) if name
    ]
    return max(30, math.ceil(math.degrees(math.acos(min(*shares, 1.0)))))


def line_key(name: str, color: str) -> Key:
    """A legend's entry for a curve."""
    return Key(name, line(0, 5, 24, 5, f"line {color}"))


def bar_key(name: str, color: str) -> Key:
    """A legend's entry for bars."""
    return Key(name, rect(6, 0, 12, 10, f"bar {color}"))


def dot_key(name: str, kind: str, radius: float) -> Key:
    """A legend's entry for dots."""
    return Key(name, Mark("circle", {"class": kind, "cx": "12", "cy": "5", "r": f"{radius}"}))


def paper_key() -> Key:
    """A legend's entry for the paper's value."""
    return Key("the paper", diamond(12, 5, 4.5))
