"""Several methods on the same graph, owners and seeds: means, spreads, the paper's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsage.config import Config
from fedsage.evaluation.results import RunRecord, write_json
from fedsage.reproduce.paper import paper_accuracy
from fedsage.reproduce.rows import Row, as_json, row_of


def compare(
    config: Config,
    methods: Sequence[str],
    seeds: Sequence[int],
    run_one: Callable[[Config], RunRecord],
) -> list[Row]:
    """Run every method on every seed; all methods on one seed see the same owners and nodes."""
    records: dict[str, list[RunRecord]] = {method: [] for method in methods}
    for seed in seeds:
        for method in methods:
            chosen = config.run.model_copy(update={"method": method, "seed": seed})
            records[method].append(run_one(config.model_copy(update={"run": chosen})))
    return [compared(records[method]) for method in methods]


def compared(records: Sequence[RunRecord]) -> Row:
    """One method over all seeds, beside Table 2 of the paper."""
    first = records[0]
    paper = paper_accuracy(first.method, first.dataset, first.owners, first.partition)
    return row_of([asdict(record) for record in records], paper)


def comparison_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The object of ``compare --json``."""
    return {"rows": [as_json(row) for row in rows]}


def write_rows(folder: Path, rows: Sequence[Row]) -> None:
    """Keep the comparison beside its runs."""
    write_json(folder / "compare.json", comparison_json(rows))
