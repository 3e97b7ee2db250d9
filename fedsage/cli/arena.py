"""``fedsage arena``: methods of ours and of others, on equal terms."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsage.cli import options, output
from fedsage.cli.reproduce import StudyProgress
from fedsage.cli.run import Interrupted
from fedsage.cli.settings import read_assignments
from fedsage.errors import ConfigError, FedSageError
from fedsage.readable import owners_of

if TYPE_CHECKING:
    from fedsage.arena.contest import Contest, Ring
    from fedsage.reproduce.cells import Cell

Levels = Annotated[str | None, typer.Option(metavar="A,B,…")]
SHARES = "several shares, e.g. 0.2,0.5,0.8, for a curve"


def levels_of(words: str) -> Any:
    """An option that takes several shares."""
    return typer.Option(metavar="A,B,…", help=f"{words}: {SHARES}")


def arena(
    datasets: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="graphs (default: cora,citeseer)")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="methods, METHOD@BACKBONE, or your own .py files; others are compared with "
            "the first (default: all)",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="how to cut each graph (default: louvain)"),
    ] = None,
    owners: Annotated[
        str | None, typer.Option(metavar="N,…", help="numbers of owners (default: 10)")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="A/B/C",
            help="percent for training, validation, testing (default: 60/20/20)",
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="how many settings to try for each method (default: 3, or as many as all "
            "have; quick: 1)",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="how many seeds, from 0 on (default: 5; quick: 1)"
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="owners and splits of a paper: fedpub, fedgta, …"),
    ] = None,
    missing_features: Annotated[str | None, levels_of("feature values to remove")] = None,
    missing_links: Annotated[str | None, levels_of("links to remove")] = None,
    few_labels: Annotated[str | None, levels_of("training labels to remove")] = None,
    noisy_labels: Annotated[str | None, levels_of("training labels to falsify")] = None,
    label_skew: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="in place of --partition: a BETA of label:BETA for each; 0.1 is a strong skew",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="two graphs, six methods, one seed, default settings"),
    ] = False,
    assignments: options.Assignments = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="runs at a time (default: all cores)")
    ] = None,
    kept: Annotated[
        bool, typer.Option("--kept", help="start no run: use only finished ones")
    ] = False,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Compare methods on the same owners, splits, seeds and budget of trials.

    Repeat the command to continue one that was interrupted.
    """
    from fedsage.arena.contest import ALL, QUICK, Contest, Ring, entrant, pinned_by, trials
    from fedsage.arena.protocols import protocol as named
    from fedsage.cli.progress import announce_compiling, ensure_here

    names = listed(methods) or (QUICK if quick else ALL)
    chosen = named(protocol) if protocol else None
    if chosen and (partition or split or label_skew):
        raise ConfigError(f"--protocol {protocol} has its own partition and split.")
    cuts = [f"label:{beta}" for beta in listed(label_skew)] or listed(partition) or ["louvain"]
    counts = [int(word) for word in listed(owners) if word.isdecimal()]
    if chosen:
        graphs = listed(datasets)
        rings = [
            ring
            for ring in chosen.rings
            if (not graphs or ring.dataset in graphs) and (not counts or ring.owners in counts)
        ]
    else:
        rings = [
            Ring(graph, count, cut, split or "60/20/20")
            for graph in listed(datasets) or ("cora", "citeseer")
            for cut in cuts
            for count in counts or [10]
        ]
    if not rings:
        raise ConfigError("Nothing is left to compare on. Check --datasets and --owners.")
    turned = {
        "missing_features": missing_features,
        "missing_links": missing_links,
        "few_labels": few_labels,
        "noisy_labels": noisy_labels,
    }
    rings = [
        *rings,
        *(ring for knob, given in turned.items() for ring in worse(rings, knob, given)),
    ]
    entrants = [entrant(name) for name in dict.fromkeys(names)]
    settings = read_assignments(assignments or [])
    usual = 1 if quick else min(
        len(trials(one.found, 3, pinned_by(settings))) for one in entrants
    )  # fmt: skip
    count = seeds or (1 if quick else 5)
    contest = Contest(entrants, rings, range(count), budget or usual, settings)
    for ring in rings:
        ensure_here(ring.dataset)
    announce_compiling()
    folder = out or Path("runs") / f"arena{'-quick' * quick}{f'-{protocol}' * bool(protocol)}"
    at_once = 0 if kept else jobs or os.cpu_count() or 1
    found = held(contest, folder, at_once, chosen)
    if json:
        output.print_json(found)
    else:
        show_rows(found, folder)


def listed(words: str | None) -> list[str]:
    """Words that are separated by commas."""
    return [word.strip() for word in (words or "").split(",") if word.strip()]


def worse(rings: list[Ring], knob: str, given: str | None) -> list[Ring]:
    """The same rings at every level of stress that was asked for."""
    try:
        levels = [float(word) for word in listed(given)]
    except ValueError:
        levels = [-1.0]
    if any(not 0 < level < 1 for level in levels):
        flag = knob.replace("_", "-")
        raise ConfigError(f"--{flag} is '{given}'. Give shares between 0 and 1: 0.2,0.5.")
    return [replace(ring, stress=((knob, level),)) for ring in rings for level in levels]


def held(contest: Contest, folder: Path, jobs: int, protocol: Any) -> dict[str, Any]:
    """Hold the contest, and write its table and its page."""
    from fedsage.arena.hold import MEASURES, hold, ranks, rows_of
    from fedsage.arena.page import arena_page
    from fedsage.arena.protocols import nothing_printed
    from fedsage.files import write_atomically, write_json
    from fedsage.machine import commit, machine, versions

    failed: list[dict[str, Any]] = []

    def note(cell: Cell, failure: FedSageError) -> None:
        where = {"partition": cell.config.data.partition, "seed": cell.config.run.seed}
        failed.append({**cell.labels, **where, "why": str(failure)})

    try:
        standings = hold(contest, folder / "cells", StudyProgress("arena"), jobs, note)
    except KeyboardInterrupt:
        raise Interrupted(
            "Interrupted. Finished runs are kept: repeat the command to continue."
        ) from None
    if failed and not standings:
        raise FedSageError(failed[0]["why"])
    if not standings:
        raise ConfigError(f"{folder} holds no runs of this contest. Leave out --kept.")
    printed = protocol.value if protocol else nothing_printed
    rows = rows_of(standings, printed)
    calm = [one for one in standings if not one.ring.stress]
    made = {"versions": versions(), "commit": commit(), "machine": machine()}
    found = {
        "rows": rows,
        "ranks": {measure: ranks(calm, measure) for measure in MEASURES},
        "protocol": protocol.name if protocol else None,
        "budget": contest.budget,
        "failed": failed,
    }
    write_json(folder / "arena.json", found | made)
    page = arena_page(standings, rows, protocol.note if protocol else "", failed).encode()
    write_atomically(folder / "report.html", lambda file: file.write(page))
    return found


def show_rows(found: dict[str, Any], folder: Path) -> None:
    """A table for each ring on the terminal."""
    from fedsage.arena.page import gap, in_words, spread_of

    titles: dict[str, list[dict[str, Any]]] = {}
    for row in found["rows"]:
        more = "".join(f", {key.replace('_', ' ')} {v:g}" for key, v in row["stress"].items())
        owners = owners_of(row["owners"], row["partition"])
        where = f"{row['dataset']}, {owners}, {row['split']}{more}"
        titles.setdefault(where, []).append(row)
    tried = any(row["trials"] for row in found["rows"])
    columns = ("method", "state", "global", "local", "own, local", "local − first", "CPU time",
               *["chosen"] * tried)  # fmt: skip
    for title, rows in titles.items():
        cells = [
            (row["method"], row["moments"], spread_of(row["global"]), spread_of(row["local"]),
             spread_of(row["own"]["local"]), gap(row, "local"), f"{row['cpu_seconds']:.1f} s",
             *[in_words(row["settings"])] * tried)
            for row in rows
        ]  # fmt: skip
        output.print_table(title, columns, cells)
    for one in found["failed"]:
        print(
            f"Did not end: {one['method']} on {one['dataset']}, {one['M']} {one['partition']} "
            f"owners, state {one['moments']}, seed {one['seed']}. {one['why']}"
        )
    print(f"Written to {folder}: arena.json, report.html", file=sys.stdout)
