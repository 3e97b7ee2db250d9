"""If owners do know links to each other: FedSage+ by links beside no links and the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import TypeAlias

from fedsage.reproduce.cells import Cell, FinishedCell, Labels, grouped
from fedsage.reproduce.figures import Panel
from fedsage.reproduce.studies import (
    NAMES,
    PAPER_DATASETS,
    Options,
    RunCells,
    StudyOutput,
    accuracies,
    cells_by_seed,
)
from fedsage.reproduce.tables import Table, TableRow

OWNERS = 10
BASE, ORACLE, LINKS = "fedsage", "oracle", "fedsage+links"
METHODS = (BASE, "fedsage+copy", "fedsage+", LINKS, ORACLE)
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the links between owners
KINDS = ("global", "local")
NOTE = (
    "Ten random owners. Differences to FedSage are paired by seed, in points, with their "
    "standard error. The last but one column is the difference at owners as a share of the "
    "oracle's."
)
Groups: TypeAlias = Mapping[tuple[str, str, float], Sequence[FinishedCell]]


def links(options: Options, run: RunCells) -> StudyOutput:
    """Five methods with ten random owners, and accuracy over the share of known links."""
    done = grouped(run(cells(options)))
    groups = {
        (str(labels["dataset"]), str(labels["method"]), float(labels["known"])): group
        for labels, group in done
    }
    rows = [row_of(groups, *key) for key in groups if (key[0], BASE, 0.0) in groups]
    return StudyOutput([Table("Links that owners know", rows, NOTE)], panels_of(groups))


def cells(options: Options) -> list[Cell]:
    """Every method on every dataset; known links also with a smaller share of them known."""
    wanted = []
    for dataset in options.of(*PAPER_DATASETS):
        for method in METHODS:
            for share in SHARES if method == LINKS else (float(method == ORACLE),):
                labels: Labels = {"dataset": dataset, "method": method, "known": share}
                sections = {"links": {"share": share}} if method == LINKS else {}
                data = {"partition": "random"}
                wanted += cells_by_seed(
                    options, labels, method, dataset, OWNERS, data=data, **sections
                )
    return wanted


def row_of(groups: Groups, dataset: str, method: str, known: float) -> TableRow:
    """Means with deviations over seeds, and what is gained over FedSage."""
    key, best = (dataset, method, known), gains(groups, (dataset, ORACLE, 1.0), "local")
    row: TableRow = {"dataset": dataset, "method": method, "known": f"{known:g}"}
    for kind in KINDS:
        each = list(accuracies(groups[key], kind).values())
        found = [] if method == BASE else gains(groups, key, kind)
        spread = f" ± {stdev(each):.4f}" if len(each) > 1 else ""
        row[kind] = f"{mean(each):.4f}{spread}"
        row[f"gain, {kind}"] = gain(found)
    share = ""
    if method not in (BASE, ORACLE) and best and mean(best):
        share = f"{mean(gains(groups, key, 'local')) / mean(best):.0%}"
    return row | {"of the oracle's": share, "seeds": len(groups[key])}


def gain(found: Sequence[float]) -> str:
    """A mean difference with its standard error."""
    if len(found) < 2:
        return f"{found[0]:+.2f}" if found else ""
    return f"{mean(found):+.2f} ± {stdev(found) / sqrt(len(found)):.2f}"


def gains(groups: Groups, key: tuple[str, str, float], kind: str) -> list[float]:
    """How far a method is above FedSage, seed by seed, in points."""
    ours = accuracies(groups.get(key, ()), kind)
    base = accuracies(groups.get((key[0], BASE, 0.0), ()), kind)
    return [100 * (ours[seed] - base[seed]) for seed in sorted(set(ours) & set(base))]


def panels_of(groups: Groups) -> list[Panel]:
    """Accuracy at owners over the share of known links; the oracle as a level line."""
    panels = []
    for dataset in dict.fromkeys(key[0] for key in groups):
        curve = {0.0: (dataset, BASE, 0.0)} | {one: (dataset, LINKS, one) for one in SHARES}
        level = {share: (dataset, ORACLE, 1.0) for share in curve}
        lines = {"FedSage+ by links": curve, "oracle: all true neighbors": level}
        curves = {
            name: [
                (share, mean(each), stdev(each) if len(each) > 1 else 0.0)
                for share, key in line.items()
                if (each := list(accuracies(groups.get(key, ()), "local").values()))
            ]
            for name, line in lines.items()
        }
        title = f"{NAMES[dataset]}, {OWNERS} random owners"
        label = "share of links between owners that are known"
        drawn = {name: points for name, points in curves.items() if points}
        panels.append(Panel(title, label, "accuracy at owners", curves=drawn, at_least=0.02))
    return panels
