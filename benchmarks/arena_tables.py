"""The tables of docs/arena.md, from docs/results/arena.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from fedsage.arena.page import gap, spread_of
from fedsage.readable import counted, size

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- table: arena -->", "<!-- end -->"
COLUMNS = ("method", "state", "seeds", "global", "local", "own model, local",
           "global − fedsage+", "local − fedsage+", "CPU s", "sent")  # fmt: skip


def tables(found: Mapping[str, Any]) -> str:
    """A table for each graph and its owners, and the mean ranks."""
    rings: dict[str, list[Mapping[str, Any]]] = {}
    for row in found["rows"]:
        where = f"{row['dataset']}, {row['owners']} {row['partition']} owners, {row['split']}"
        rings.setdefault(where, []).append(row)
    parts = [f"**{title}**\n\n{markdown(rows)}" for title, rows in rings.items()]
    for measure, each in found["ranks"].items():
        order = sorted((mean(rank for _, rank in held), name) for name, held in each.items())
        told = ", ".join(f"{name} {rank:.1f}" for rank, name in order)
        held = counted(max(map(len, each.values()), default=0), "time")
        parts.append(f"Mean rank by {measure} accuracy where all took part ({held}): {told}.")
    return "\n\n".join(parts)


def markdown(rows: list[Mapping[str, Any]]) -> str:
    """The rows of one ring."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        cells = (
            f"`{row['method']}`", row["moments"], str(len(row["seeds"])),
            spread_of(row["global"]), spread_of(row["local"]), spread_of(row["own"]["local"]),
            gap(row, "global"), gap(row, "local"), f"{row['cpu_seconds']:.1f}",
            size(row["bytes"]) if row["bytes"] else "nothing",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_tables(text: str, found: Mapping[str, Any]) -> str:
    """The page with its tables made anew."""
    place = re.search(f"{BEGIN}\n.*?{END}", text, flags=re.DOTALL)
    if place is None:
        raise SystemExit(f"no place for the tables: {BEGIN}")
    made = f"{BEGIN}\n{tables(found)}\n{END}"
    return text[: place.start()] + made + text[place.end() :]


def main() -> None:
    """Write the tables anew."""
    page = DOCS / "arena.md"
    found = json.loads((DOCS / "results" / "arena.json").read_text())
    page.write_text(with_tables(page.read_text(), found))


if __name__ == "__main__":
    main()
