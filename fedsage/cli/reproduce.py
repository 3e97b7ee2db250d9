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

from fedsage.cli import options, output
from fedsage.cli.run import Interrupted
from fedsage.readable import counted

if TYPE_CHECKING:
    from fedsage.reproduce.cells import Cell
    from fedsage.reproduce.make import FinishedStudy


def names_for_the_shell(incomplete: str) -> list[str]:
    """What the shell offers for the name of a study."""
    from fedsage.reproduce.make import STUDIES

    return options.among("list", "all", *STUDIES)(incomplete)


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="list, all, or a name from the list",
            autocompletion=names_for_the_shell,
        ),
    ],
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="how many seeds, from 0 on")
    ] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="one seed, few rounds, Cora only: just to try it")
    ] = False,
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="paper, or best",
            autocompletion=options.among(*options.PRESETS),
        ),
    ] = "paper",
    datasets: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="only these, e.g. cora,citeseer")
    ] = None,
    out: options.Out = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="runs at the same time (default: one per core)"),
    ] = None,
    kept: Annotated[
        bool, typer.Option("--kept", help="start no run: use only finished ones")
    ] = False,
    json: options.Json = False,
) -> None:
    """Reproduce a table or figure of the paper; finished runs are not repeated."""
    from fedsage.cli.progress import announce_compiling, ensure_here
    from fedsage.reproduce.figures import need_matplotlib
    from fedsage.reproduce.make import DRAWN, STUDIES, make, study_named, write_contents
    from fedsage.reproduce.studies import PAPER_DATASETS, Options

    if name == "list":
        rows = [(key, study.place) for key, study in STUDIES.items()]
        output.print_table("fedsage reproduce NAME", ("name", "in the paper"), rows)
        return
    names = list(STUDIES) if name == "all" else [name]
    for one in names:
        study_named(one)
    if DRAWN & set(names):
        need_matplotlib()
    chosen = tuple(datasets.split(",")) if datasets else PAPER_DATASETS
    asked = Options(preset, seeds, quick, chosen)
    for dataset in asked.of(*chosen):
        ensure_here(dataset)
    announce_compiling()
    folder = out or Path("runs") / f"reproduce-{preset}{'-quick' if quick else ''}"
    at_once = 0 if kept else jobs or os.cpu_count() or 1
    made = []
    for one in names:
        try:
            found = make(one, asked, folder, StudyProgress(one), at_once)
        except KeyboardInterrupt:
            raise Interrupted(
                "Interrupted. Finished runs are kept: repeat the command to continue."
            ) from None
        made.append(found)
        print(f"{one}: written to {folder / one}.md", file=sys.stderr, flush=True)
        if not json:
            for table in found.tables:
                columns = list(table.rows[0]) if table.rows else []
                cells = [[cell(row[c]) for c in columns] for row in table.rows]
                output.print_table(table.title, columns, cells)
    if name == "all":
        write_contents(folder, names)
    if json:
        output.print_json(all_rows(made))
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
        self.started = self.shown = self.last = time.monotonic()

    def __call__(self, done: int, total: int, cell: Cell) -> None:
        """One cell has finished."""
        now = time.monotonic()
        if done == 1:  # of a study, or of its next part
            self.started = self.last
        self.last = now
        if done == total or now - self.shown >= 5:
            self.shown = now
            left = (now - self.started) / done * (total - done)
            where = ", ".join(str(value) for value in cell.labels.values())
            of = f"{done} of {counted(total, 'run')}"
            words = f"{self.name}: {of} ({where}), {left:.0f} s left"
            print(words, file=sys.stderr, flush=True)
