"""``fedsage bench``: speed and memory as ratios against a baseline timed in the same run."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from fedsage.cli import options, show
from fedsage.errors import ConfigError, nearest


def bench(
    suite: Annotated[
        str | None,
        typer.Option(
            help="startup, partition, step, synthetic, run, matching, neighgen (default: all)"
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure this machine: each figure beside its baseline and what we want of it."""
    import torch

    from fedsage.bench.suites import SUITES

    if suite is not None and suite not in SUITES:
        raise ConfigError(f"Unknown suite '{suite}'.{nearest(suite, SUITES)}")
    torch.set_num_threads(1)
    figures = []
    for name in [suite] if suite else SUITES:
        for figure in SUITES[name]():
            print(
                f"{figure.name}: {figure.value:.3g} {figure.unit}", file=sys.stderr, flush=True
            )
            figures.append(figure)
    if json:
        show.print_json({"figures": [asdict(one) | {"met": one.met} for one in figures]})
        return
    rows = [
        (
            figure.name,
            f"{figure.value:.3g} {figure.unit}",
            "" if figure.baseline is None else f"{figure.baseline:.3g} {figure.unit}",
            "" if figure.ratio is None else f"{figure.ratio:.2f}×",
            "" if figure.spread is None else f"{figure.spread[0]:.2f}–{figure.spread[1]:.2f}",
            figure.wanted,
        )
        for figure in figures
    ]
    columns = ("figure", "measured", "baseline", "ratio", "spread", "wanted")
    show.print_table("one thread; ratio = baseline ÷ measured", columns, rows)
