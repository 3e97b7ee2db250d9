"""Section on runs that began with an earlier one: both classifiers on the same test nodes."""

from __future__ import annotations

from collections.abc import Sequence

from fedsage.report.blocks import Section, Sheet, Table, Value
from fedsage.report.read import Run

WAYS = {"global": "on the whole graph", "local": "on what owners hold"}


def earlier(runs: Sequence[Run]) -> Section | None:
    """A row for each run and graph that is queried: before, after, and the difference."""
    rows, sheet = [], list[list[Value]]()
    for run in runs:
        found, before = run.result, run.result.get("accuracy_before") or {}
        for way, was in before.items():
            now = found["accuracy"][way]
            if was is None or now is None:
                continue
            name = f"{run.method}, seed {found['seed']}"
            told = str(found["started_from"])
            rows.append(
                (name, told, WAYS[way], f"{was:.4f}", f"{now:.4f}", f"{now - was:+.4f}")
            )
            sheet.append([run.method, found["seed"], told, way, was, now])
    if not rows:
        return None
    columns = ("run", "began with", "test nodes", "earlier", "this run", "difference")
    raw = Sheet(("method", "seed", "started_from", "way", "before", "now"), sheet)
    note = (
        "The classifier that each run began with beside the one that it ended with, on the "
        "same test nodes and the same graphs. Nodes of the earlier run keep their split, "
        "unless the tables have one, so neither was trained on these nodes."
    )
    table = Table("Accuracy of the earlier run and of this one", columns, rows, raw)
    return Section("Since the earlier run", note, [table])
