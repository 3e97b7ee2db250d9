"""``fedsage reproduce``: the paper's tables and figures, with its own values beside ours."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsage.cli import options, show

if TYPE_CHECKING:
    from fedsage.reproduce.cells import Cell
    from fedsage.reproduce.make import FinishedStudy


def reproduce(
    name: Annotated[str, typer.Argument(help="'list', 'all', or a name from the list")],
    seeds: Annotated[int, typer.Option(min=1, help="number of seeds, from 0 on")] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="one seed, few rounds, Cora only: just a test")
    ] = False,
    preset: Annotated[str, typer.Option(help="paper, or best")] = "paper",
    datasets: Annotated[
        str | None, typer.Option(help="some of them, e.g. cora,citeseer")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder (default: under runs/)")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="runs at a time (default: one per core)")
    ] = None,
    kept: Annotated[
        bool, typer.Option("--kept", help="run nothing: use only what is finished")
    ] = False,
    json: options.Json = False,
) -> None:
    """Make a table or figure of the paper; finished runs are not repeated."""
    from fedsage.cli.progress import announce_compiling, ensure_here
    from fedsage.reproduce.make import STUDIES, make, study_named, write_contents
    from fedsage.reproduce.studies import PAPER_DATASETS, Options

    if name == "list":
        rows = [(key, study.place) for key, study in STUDIES.items()]
        show.print_table("fedsage reproduce NAME", ("name", "in the paper"), rows)
        return
    names = list(STUDIES) if name == "all" else [name]
    for one in names:
        study_named(one)
    chosen = tuple(datasets.split(",")) if datasets else PAPER_DATASETS
    asked = Options(preset, seeds, quick, chosen)
    for dataset in asked.of(*chosen):
        ensure_here(dataset)
    announce_compiling()
    folder = out or Path("runs") / f"reproduce-{preset}{'-quick' if quick else ''}"
    made = []
    for one in names:
        found = make(
            one, asked, folder, StudyProgress(one), 0 if kept else jobs or os.cpu_count() or 1
        )
        made.append(found)
        print(f"{one}: written to {folder / one}.md", file=sys.stderr, flush=True)
        if not json:
            for table in found.tables:
                columns = list(table.rows[0]) if table.rows else []
                cells = [[cell(row[c]) for c in columns] for row in table.rows]
                show.print_table(table.title, columns, cells)
    if name == "all":
        write_contents(folder, names)
    if json:
        show.print_json(all_rows(made))
    elif quick:
        print("This was a quick test with one seed and few rounds: do not quote its numbers.")


def all_rows(made: Sequence[FinishedStudy]) -> dict[str, Any]:
    """The object of ``reproduce --json``: rows as in ``compare``, and the tables as shown."""
    rows = [{"study": found.name} | row for found in made for row in found.rows]
    tables = [{"study": f.name} | asdict(table) for f in made for table in f.tables]
    return {"rows": rows, "tables": tables}


def cell(value: object) -> str:
    """A number in a table on the terminal."""
    if value is None:
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


class StudyProgress:
    """A progress line every few seconds, with the time left."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = self.shown = time.monotonic()

    def __call__(self, done: int, total: int, cell: Cell) -> None:
        """One cell has finished."""
        now = time.monotonic()
        if done == total or now - self.shown >= 5:
            self.shown = now
            left = (now - self.started) / done * (total - done)
            where = ", ".join(str(value) for value in cell.labels.values())
            words = f"{self.name}: {done}/{total} runs ({where}), {left:.0f} s left"
            print(words, file=sys.stderr, flush=True)
