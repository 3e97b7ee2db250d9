"""Runs over seeds as one row each: what ``compare --json`` and ``reproduce --json`` print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedsage.reproduce.cells import FinishedCell, Labels, grouped
from fedsage.reproduce.tables import beside_paper
from fedsage.runs.comparison import as_json, row_of

NAMED = ("dataset", "M", "method")  # labels that have their own key in every row


def study_rows(
    done: Sequence[FinishedCell], paper: Callable[[Labels], Sequence[float] | None]
) -> list[dict[str, Any]]:
    """One row for every group of a study's runs; the studied setting is an extra key."""
    rows = []
    for labels, group in grouped(done):
        printed = paper(labels)
        row = as_json(row_of([one.record for one in group], printed[0] if printed else None))
        beside = beside_paper(row["global"]["each"], printed)
        studied = {key: value for key, value in labels.items() if key not in NAMED}
        told = {key: beside[key] for key in ("paper std", "difference", "marked")}
        rows.append(row | studied | told)
    return rows
