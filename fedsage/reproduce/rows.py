"""Runs over seeds as one row each: what ``compare --json`` and ``reproduce --json`` print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedsage.evaluation.metrics import mean_and_std
from fedsage.reproduce.cells import FinishedCell, Labels, grouped
from fedsage.reproduce.tables import beside_paper

NAMED = ("dataset", "M", "method")  # labels that have a key of their own in every row


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


def study_rows(
    done: Sequence[FinishedCell], paper: Callable[[Labels], Sequence[float] | None]
) -> list[dict[str, Any]]:
    """One row for every group of a study's runs; the setting that is studied is a key more."""
    rows = []
    for labels, group in grouped(done):
        printed = paper(labels)
        row = as_json(row_of([one.record for one in group], printed[0] if printed else None))
        beside = beside_paper(row["global"]["each"], printed)
        studied = {key: value for key, value in labels.items() if key not in NAMED}
        told = {key: beside[key] for key in ("paper std", "difference", "marked")}
        rows.append(row | studied | told)
    return rows
