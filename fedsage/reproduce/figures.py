"""Figures for a paper: PNG and SVG by matplotlib, which is an extra (``fedsage[all]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsage.errors import ConfigError

COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#b8860b",
    "#56b4e9",
    "#6a3d9a",
    "#5a6470",
)
MARKERS = "os^Dv<>P"


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: curves, bars or a table of counts, by which of them is there."""

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, Sequence[tuple[float, float, float]]] | None = None  # x, y, spread
    bars: Mapping[str, Sequence[float]] | None = None
    groups: Sequence[str] = ()
    counts: Sequence[Sequence[int]] | None = None
    log_x: bool = False


def save_figure(panels: Sequence[Panel], path: Path) -> list[Path]:
    """Write ``path`` as .png and .svg."""
    try:
        import matplotlib
    except ImportError:
        raise ConfigError(
            "Figures need matplotlib, which is not installed. Install it with "
            "'pip install fedsage[all]'; the tables are written without it."
        ) from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fedsage"  # the same file from the same numbers
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.6 * len(panels), 3.4), layout="constrained", squeeze=False
    )
    for axis, panel in zip(axes[0], panels, strict=True):
        draw(axis, panel)
    written = [path.with_suffix(kind) for kind in (".png", ".svg")]
    figure.savefig(written[0], dpi=200)
    figure.savefig(written[1], metadata={"Date": None})
    pyplot.close(figure)
    return written


def draw(axis: Any, panel: Panel) -> None:
    """One panel on one pair of axes."""
    for k, (name, points) in enumerate((panel.curves or {}).items()):
        x, y, spread = zip(*points, strict=True)
        color, many = COLORS[k % 8], len(x) > 15
        axis.plot(x, y, color=color, marker=None if many else MARKERS[k % 8], label=name)
        low = [a - b for a, b in zip(y, spread, strict=True)]
        high = [a + b for a, b in zip(y, spread, strict=True)]
        axis.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    for k, (name, values) in enumerate((panel.bars or {}).items()):
        width = 0.8 / len(panel.bars or {})
        places = [g - 0.4 + (k + 0.5) * width for g in range(len(values))]
        axis.bar(places, values, width, color=COLORS[k % 8], label=name)
    if panel.bars:
        slanted = {"rotation": 30, "ha": "right"} if max(map(len, panel.groups)) > 5 else {}
        axis.set_xticks(range(len(panel.groups)), panel.groups, **slanted)
    if panel.counts is not None:
        image = axis.imshow(panel.counts, origin="lower", cmap="Blues", aspect="auto")
        axis.figure.colorbar(image, ax=axis, label="nodes")
    if panel.log_x:
        axis.set_xscale("log")
    if panel.curves or panel.bars:
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
