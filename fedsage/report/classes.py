"""Section on classes where nobody holds the whole graph: counts of owners' own test nodes."""

from __future__ import annotations

from collections.abc import Sequence

from fedsage.report.blocks import Block, Section, Sheet, Table, short, spread
from fedsage.report.read import Groups, Run

HIDDEN = "few"  # a count of so few nodes that it is not told
Count = int | None


def classes(groups: Groups) -> Section | None:
    """Recall and precision of every class, and which class is taken for which."""
    blocks: list[Block] = []
    for method, runs in groups.items():
        known = [
            run
            for run in runs
            if run.result.get("confusion_local") and not run.result["confusion"]
        ]
        if known:
            blocks += [found_of(method, known), taken_for(method, known)]
    note = (
        "Test nodes at their owners, counts added up over owners. In a federation, counts of "
        "a few nodes are not told, and a class with few test nodes has no recall."
    )
    return Section("Classes", note, blocks) if blocks else None


def found_of(method: str, runs: Sequence[Run]) -> Table:
    """How much of each class is found, and how often an answer with it is right."""
    names = [short(name, 60) for name in runs[0].result["class_names"]]
    shares = [run.result["per_class"] for run in runs]
    rows = [
        (
            name,
            spread([one["recall"][c] for one in shares]),
            spread([one["precision"][c] for one in shares]),
        )
        for c, name in enumerate(names)
    ]
    sheet = [
        [name, run.result["seed"], one["recall"][c], one["precision"][c]]
        for run, one in zip(runs, shares, strict=True)
        for c, name in enumerate(names)
    ]
    columns = ("class", "recall", "precision")
    raw = Sheet(("class", "seed", "recall", "precision"), sheet)
    return Table(f"Recall and precision, {method}", columns, rows, raw)


def taken_for(method: str, runs: Sequence[Run]) -> Table:
    """Answers by true class, all seeds together."""
    names = [short(name, 60) for name in runs[0].result["class_names"]]
    tables = [run.result["confusion_local"] for run in runs]
    total = [
        [added(cells) for cells in zip(*rows, strict=True)]
        for rows in zip(*tables, strict=True)
    ]
    rows = [(name, *map(in_words, row)) for name, row in zip(names, total, strict=True)]
    sheet = [[name, *row] for name, row in zip(names, total, strict=True)]
    columns = ("true class", *names)
    return Table(f"Predicted classes, {method}", columns, rows, Sheet(columns, sheet))


def added(counts: Sequence[Count]) -> Count:
    """The sum; None if one of them is not told."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def in_words(count: Count) -> str:
    """A count as it is shown."""
    return HIDDEN if count is None else f"{count:,}"
