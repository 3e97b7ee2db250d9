"""Several methods on the same seeds: means, standard deviations, the paper's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedsage.config import Config
from fedsage.evaluation.metrics import mean_and_std
from fedsage.files import write_json
from fedsage.paper import paper_accuracy
from fedsage.runs.record import RunRecord


@dataclass(frozen=True, slots=True)
class Row:
    """One method over all seeds."""

    method: str
    dataset: str
    owners: int
    partition: str
    preset: str
    seeds: list[int]
    global_: dict[str, Any]  # mean, std, each
    local: dict[str, Any]
    cpu_seconds: float  # of one run, on average
    paper: float | None


def row_of(records: Sequence[Mapping[str, Any]], paper: float | None) -> Row:
    """Records of the same run on several seeds, as they stand in ``result.json``."""
    first = records[0]
    return Row(
        method=first["method"],
        dataset=first["dataset"],
        owners=first["owners"],
        partition=first["partition"],
        preset=first["preset"],
        seeds=[record["seed"] for record in records],
        global_=summary([record["accuracy"]["global"] for record in records]),
        local=summary([record["accuracy"]["local"] for record in records]),
        cpu_seconds=sum(record["cpu_seconds"] for record in records) / len(records),
        paper=paper,
    )


def summary(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean, standard deviation and each value."""
    each = [value for value in values if value is not None]
    if not each:
        return {"mean": None, "std": None, "each": []}
    mean, std = mean_and_std(each)
    return {"mean": mean, "std": std, "each": each}


def as_json(row: Row) -> dict[str, Any]:
    """A row under the names that users rely on."""
    return {key.rstrip("_"): value for key, value in asdict(row).items()}


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
