"""``fedsage report``: one HTML file from the folders of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsage.readable import counted


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR", help="folders of runs, or of a comparison"),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="the page to write (default: report.html in the first folder)"
        ),
    ] = None,
) -> None:
    """Write one HTML page about one or more runs; it opens without a network."""
    path = out or runs[0] / "report.html"
    many, num_bytes = write_page(runs, path)
    print(f"{path}: {counted(many, 'run')}, {num_bytes / 1000:.0f} kB")


def write_page(runs: list[Path], path: Path) -> tuple[int, int]:
    """Write the page; how many runs are in it, and how many bytes it has."""
    from fedsage.files import write_atomically
    from fedsage.report.page import page
    from fedsage.report.read import read_runs

    found = read_runs(runs)
    text = page(found).encode()
    write_atomically(path, lambda file: file.write(text))
    return len(found), len(text)
