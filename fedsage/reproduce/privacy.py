"""The paper's open question: what a proof of privacy costs. Accuracy by ε, beside FedSage+."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from fedsage.presets import Settings
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
from fedsage.reproduce.tables import Table, TableRow, paired_difference

EPSILONS = (1, 4, 8)
OPEN = "none"  # in place of ε: FedSage+ without privacy, on the same owners and splits
WHERE = {"global": "whole graph", "local": "at the owners"}
NOTE = (
    "Everything that leaves a private run is charged, at δ = 1e-5, for the server with a third "
    "of the owners. Test accuracy is measured by whoever simulates all owners: in a federation "
    "nobody would be told."
)


def privacy(options: Options, run: RunCells) -> StudyOutput:
    """Private runs at three ε, M = 3 and 10, paired with FedSage+ `open`."""
    done = run(cells(options))
    groups = {tuple(labels.values()): group for labels, group in grouped(done)}
    rows = [row_of(labels, group) for labels, group in grouped(done)]
    gaps = [
        {"dataset": dataset, "M": owners, "ε": epsilon, "queries": WHERE[queries]}
        | paired_difference(
            accuracies(group, queries), accuracies(groups[dataset, owners, OPEN], queries)
        )
        for (dataset, owners, epsilon), group in groups.items()
        if epsilon != OPEN and (dataset, owners, OPEN) in groups
        for queries in WHERE
    ]
    tables = [
        Table("Accuracy by ε", rows, NOTE),
        Table("Private minus FedSage+ open, paired by seed, with 95% intervals", gaps),
    ]
    return StudyOutput(tables, panels_of(groups))


def cells(options: Options) -> list[Cell]:
    """Private runs, and FedSage+ on the same owners."""
    wanted = []
    for dataset in options.of(*PAPER_DATASETS):
        for owners in [m for m in options.num_owners if m != 5] or options.num_owners:
            for epsilon in (*EPSILONS, OPEN):
                labels: Labels = {"dataset": dataset, "M": owners, "ε": epsilon}
                level: Settings = {"level": "open"}
                if epsilon != OPEN:
                    level = {"level": "private", "epsilon": epsilon}
                wanted += cells_by_seed(
                    options, labels, "fedsage+", dataset, owners, privacy=level
                )
    return wanted


def row_of(labels: Labels, group: Sequence[FinishedCell]) -> TableRow:
    """Means and deviations over seeds."""
    row: TableRow = dict(labels)
    for queries, words in WHERE.items():
        each = list(accuracies(group, queries).values())
        row[words] = mean(each)
        row[f"std, {words}"] = stdev(each) if len(each) > 1 else 0.0
    return row | {
        "seeds": len(group),
        "CPU seconds": mean(float(one.record["cpu_seconds"]) for one in group),
    }


def panels_of(
    groups: Mapping[tuple[str | int | float, ...], Sequence[FinishedCell]],
) -> list[Panel]:
    """Accuracy over ε for each dataset, with the most owners; FedSage+ as a level line."""
    panels = []
    for dataset in dict.fromkeys(str(key[0]) for key in groups):
        most = max(int(str(key[1])) for key in groups if key[0] == dataset)
        curves: dict[str, list[tuple[float, float, float]]] = {}
        for name, where in (("private", EPSILONS), ("FedSage+, open", (OPEN,))):
            for queries, words in WHERE.items():
                found = [
                    point(epsilon, groups[dataset, most, key], queries)
                    for epsilon in EPSILONS
                    for key in [epsilon if where is EPSILONS else OPEN]
                    if (dataset, most, key) in groups
                ]
                if found:
                    curves[f"{name}, {words}"] = found
        title = f"{NAMES[dataset]}, M = {most}"
        panels.append(Panel(title, "ε", "accuracy", curves=curves, log_x=True, at_least=0.05))
    return panels


def point(
    epsilon: float, group: Sequence[FinishedCell], queries: str
) -> tuple[float, float, float]:
    """Mean and deviation at one ε."""
    each = list(accuracies(group, queries).values())
    return epsilon, mean(each), stdev(each) if len(each) > 1 else 0.0
