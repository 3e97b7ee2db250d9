"""``fedsage bench``: speed and memory as ratios against a baseline timed in the same run."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fedsage.cli import options, output
from fedsage.errors import ConfigError, nearest

if TYPE_CHECKING:
    from fedsage.bench.figure import Figure


def bench(
    suite: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="startup, partition, step, synthetic, run, matching, neighgen, bytes, scale, "
            "several of these with commas between them, or all",
        ),
    ] = "all",
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="repeat each measurement N times (default: as the suite says)",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure speed, memory and bytes, each beside a baseline from the same run."""
    import torch

    from fedsage.bench.suites import SUITES
    from fedsage.machine import commit, machine, versions

    names = list(SUITES) if suite == "all" else [name.strip() for name in suite.split(",")]
    for name in names:
        if name not in SUITES:
            raise ConfigError(f"Unknown suite '{name}'.{nearest(name, SUITES)}")
    torch.set_num_threads(1)
    figures = []
    for name in names:
        for figure in SUITES[name](repeats) if repeats else SUITES[name]():
            words = f"{figure.name}: {measured(figure)}"
            print(words, file=sys.stderr, flush=True)
            figures.append((name, figure))
    if json:
        made = {"machine": machine(), "versions": versions(), "commit": commit()}
        found = [{"suite": name} | asdict(one) | {"met": one.met} for name, one in figures]
        output.print_json(made | {"figures": found})
        return
    rows = [(figure.name, measured(figure), *against(figure)) for _, figure in figures]
    columns = ("figure", "measured", "baseline", "ratio", "spread", "wanted")
    title = "one thread; medians, lowest – highest; ratio = baseline ÷ measured"
    output.print_table(title, columns, rows)


def measured(figure: Figure) -> str:
    """The median, with the lowest and highest value if there are several."""
    words = f"{three_digits(figure.value)} {figure.unit}".strip()
    if figure.among is None or figure.repeats < 2:
        return words
    return f"{words} ({three_digits(figure.among[0])}–{three_digits(figure.among[1])})"


def against(figure: Figure) -> tuple[str, str, str, str]:
    """The baseline, the ratio to it with its spread, and the target."""
    base = "" if figure.baseline is None else f"{three_digits(figure.baseline)} {figure.unit}"
    ratio = "" if figure.ratio is None else f"{three_digits(figure.ratio)}×"
    low, high = figure.spread or (0.0, 0.0)
    return (
        base,
        ratio,
        f"{three_digits(low)}–{three_digits(high)}" if high > low else "",
        figure.wanted,
    )


def three_digits(value: float) -> str:
    """Three digits, and no powers of ten for large numbers."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
