"""``fedsage federation runs`` and ``prune``: what runs leave in a kit."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from fedsage.cli import options, output
from fedsage.cli.options import KitFolder
from fedsage.readable import counted, size

app = typer.Typer()


@app.command()
def runs(kit: KitFolder, json: options.Json = False) -> None:
    """List the runs in the kit of the server or of an owner: size, date and result."""
    from fedsage.federation.kits.kit import open_kit
    from fedsage.federation.kits.old_runs import kept_runs

    opened = open_kit(kit)
    found = kept_runs(opened)
    if json:
        output.print_json([asdict(one) for one in found])
        return
    rows = [
        [one.run, one.result, time.strftime("%Y-%m-%d %H:%M", time.localtime(one.time)),
         size(one.bytes)]
        for one in found
    ]  # fmt: skip
    output.print_table(f"Runs at {opened.name}", ["run", "result", "last change", "size"], rows)


@app.command()
def prune(
    kit: KitFolder,
    keep: Annotated[
        int, typer.Option(metavar="N", min=0, help="how many of the newest runs to keep")
    ],
) -> None:
    """Remove all but the newest runs; the record of what left stays."""
    from fedsage.federation.kits.kit import open_kit
    from fedsage.federation.kits.old_runs import prune as prune_kit

    names, freed = prune_kit(open_kit(kit), keep)
    for name in names:
        print(f"removed {name}")
    print(f"{counted(len(names), 'run')} removed, {size(freed)} freed")
