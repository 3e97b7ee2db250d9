"""Figures for a paper: PNG and SVG with matplotlib, which is an extra (``fedsage[plots]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
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
DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: curves, bars or a table of counts, whichever is given."""

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, Sequence[tuple[float, float, float]]] | None = None  # x, y, spread
    bars: Mapping[str, Sequence[float]] | None = None
    groups: Sequence[str] = ()
    counts: Sequence[Sequence[int]] | None = None
    log_x: bool = False
    at_least: float = 0.0  # minimum height of the y axis, so that noise does not fill it
    from_zero: bool = False

    @property
    def names(self) -> list[str]:
        """What the legend lists."""
        return list(self.curves or self.bars or {})


def need_matplotlib() -> None:
    """Say how to install what figures are drawn with."""
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "Figures need matplotlib, which is not installed. Install it with: "
            "pip install 'fedsage[plots]'"
        )


def save_figure(panels: Sequence[Panel], path: Path) -> list[Path]:
    """Write ``path`` as .png and .svg."""
    need_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fedsage"  # the same numbers give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.6 * len(panels), 3.4), layout="constrained", squeeze=False
    )
    for axis, panel in zip(axes[0], panels, strict=True):
        draw(axis, panel)
    add_legends(figure, axes[0], panels)
    written = [path.with_suffix(kind) for kind in (".png", ".svg")]
    figure.savefig(written[0], dpi=200)
    figure.savefig(written[1], metadata={"Date": None})
    pyplot.close(figure)
    return written


def draw(axis: Any, panel: Panel) -> None:
    """One panel on one pair of axes."""
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axis.set_axisbelow(True)
    if panel.curves:
        draw_curves(axis, panel.curves, panel.log_x)
        low, high = axis.get_ylim()
        room = max(panel.at_least - (high - low), 0.0) / 2
        axis.set_ylim(low - room, high + room)
    if panel.bars:
        draw_bars(axis, panel.bars, panel.groups)
    if panel.counts is not None:
        draw_counts(axis, panel.counts)
    if panel.from_zero:
        axis.set_ylim(bottom=0)


def draw_curves(
    axis: Any, curves: Mapping[str, Sequence[tuple[float, float, float]]], log_x: bool
) -> None:
    """Means with a band of one standard deviation."""
    for k, (name, points) in enumerate(curves.items()):
        x, y, spread = zip(*points, strict=True)
        color, many = COLORS[k % 8], len(x) > 15
        axis.plot(
            x, y, color=color, marker=None if many else MARKERS[k % 8], markersize=5,
            linestyle=DASHES[k % 4] if many else "-", label=name,
        )  # fmt: skip
        low = [a - b for a, b in zip(y, spread, strict=True)]
        high = [a + b for a, b in zip(y, spread, strict=True)]
        axis.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    axis.grid(alpha=0.3)
    if log_x:
        every = sorted({point[0] for points in curves.values() for point in points})
        axis.set_xscale("log")
        axis.set_xticks(every, [f"{value:g}" for value in every])
        axis.minorticks_off()


def draw_bars(axis: Any, bars: Mapping[str, Sequence[float]], groups: Sequence[str]) -> None:
    """Bars side by side in each group."""
    width = 0.8 / len(bars)
    for k, (name, values) in enumerate(bars.items()):
        places = [g - 0.4 + (k + 0.5) * width for g in range(len(values))]
        axis.bar(places, values, width, color=COLORS[k % 8], label=name)
    slanted = {"rotation": 30, "ha": "right", "fontsize": "small"}
    axis.set_xticks(range(len(groups)), groups, **slanted if max(map(len, groups)) > 5 else {})
    axis.grid(axis="y", alpha=0.3)


def draw_counts(axis: Any, counts: Sequence[Sequence[int]]) -> None:
    """Shades for counts, on a logarithmic scale; empty cells stay white."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    rows = max((r for r, row in enumerate(counts) if any(row)), default=0) + 2
    columns = max((c for row in counts for c, n in enumerate(row) if n), default=0) + 2
    shown = [[count or float("nan") for count in row[:columns]] for row in counts[:rows]]
    most = max((count for row in counts for count in row), default=1)
    scale = LogNorm(1, max(most, 10))
    image = axis.imshow(shown, origin="lower", cmap="Blues", aspect="auto", norm=scale)
    axis.figure.colorbar(image, ax=axis, label="nodes")
    for one in (axis.xaxis, axis.yaxis):
        one.set_major_locator(MaxNLocator(integer=True))


def columns_for(names: Sequence[str], panels: int) -> int:
    """How many names fit side by side under panels; a panel has room for 60 characters."""
    handle = 6  # characters that a line and the space around it take
    return max(1, 60 * panels // (max(map(len, names)) + handle))


def add_legends(figure: Any, axes: Sequence[Any], panels: Sequence[Panel]) -> None:
    """One legend under all panels if they show the same names, else one in each."""
    names = panels[0].names
    if names and all(panel.names == names for panel in panels):
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center",
            ncols=min(len(names), columns_for(names, len(panels))), frameon=False,
            fontsize="small",
            columnspacing=1.2,
        )  # fmt: skip
        return
    for axis, panel in zip(axes, panels, strict=True):
        if panel.names:
            axis.legend(fontsize="small")
