"""The tables of the arena's page."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.arena_tables import pooled, together


def row(method: str, moments: str, seeds: list[int], local: list[float]) -> dict[str, Any]:
    return {
        "method": method, "moments": moments, "dataset": "cora", "partition": "random",
        "seeds": seeds, "global": {"each": []}, "local": {"each": local},
    }  # fmt: skip


def test_differences_are_of_seeds_that_both_have_and_bold_beyond_noise() -> None:
    rows = [
        row("fedsage+", "averaged", [0, 1, 2], [0.8, 0.7, 0.9]),
        row("fedsage+", "own", [0, 1], [0.7, 0.7]),
        row("moon", "averaged", [2, 1], [0.85, 0.65]),
        row("moon", "own", [1], [0.6]),
    ]
    lines = pooled(rows).splitlines()[2:]
    assert lines == [
        "| `fedsage+` | 3 | – | – | -5.0 [-68.5, +58.5] |",
        "| `moon` | 2 | – | **-5.0 [-5.0, -5.0]** | – |",
    ]


def test_several_contests_are_one_table() -> None:
    def on(*graphs: str) -> list[dict[str, str]]:
        return [{"dataset": graph, "partition": "random"} for graph in graphs]

    one = {
        "rows": on("cora"),
        "ranks": {"local": {"fedsage": [("a", 1.0)], "moon": [("a", 2.0)]}},
    }
    two = {"rows": on("pubmed", "citeseer"), "ranks": {"local": {"fedsage": [("b", 1.0)]}}}
    assert together([one, two]) == {
        "rows": on("cora", "pubmed", "citeseer"),
        "ranks": {"local": {"fedsage": [("a", 1.0), ("b", 1.0)], "moon": [("a", 2.0)]}},
    }
    with pytest.raises(SystemExit, match="the same graph and owners"):
        together([one, {"rows": on("pubmed", "cora"), "ranks": {}}])
