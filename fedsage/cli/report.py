"""``fedsage report``: one HTML file from the folders of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs, or of a comparison")],
    out: Annotated[
        Path | None, typer.Option(help="the file (default: report.html in the first folder)")
    ] = None,
) -> None:
    """Make one self-contained HTML page of what runs found."""
    from fedsage.files import write_atomically
    from fedsage.report.page import page
    from fedsage.report.read import read_runs

    found = read_runs(runs)
    path = out or runs[0] / "report.html"
    text = page(found).encode()
    write_atomically(path, lambda file: file.write(text))
    print(f"{path}: {len(found)} runs, {len(text) / 1000:.0f} kB")
