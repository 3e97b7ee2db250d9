"""The tables of docs/arena.md, from docs/results/arena.json and arena-tuned.json.

In the first every method has its usual settings; in the second, those of its best trial.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from fedsage.arena.page import gap, in_words, spread_of
from fedsage.evaluation.paired import paired_difference
from fedsage.readable import counted, size

DOCS = Path(__file__).parents[1] / "docs"
FILES = ("arena-tuned.json", "arena.json")
BEGIN, END = "<!-- table: arena -->", "<!-- end -->"
COLUMNS = ("method", "state", "seeds", "chosen", "global", "local", "own model, local",
           "global − fedsage+", "local − fedsage+", "CPU s", "sent")  # fmt: skip


def together(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several contests as one: all rows, and the ranks of all rings by method.

    No graph with its owners may be in two of them.
    """
    rings = [{(row["dataset"], row["partition"]) for row in found["rows"]} for found in every]
    if len(set().union(*rings)) < sum(map(len, rings)):
        raise SystemExit("Two files have the same graph and owners. Leave it out of one.")
    ranks: dict[str, dict[str, list[Any]]] = {}
    for found in every:
        for measure, each in found["ranks"].items():
            held = ranks.setdefault(measure, {})
            for name, ranked in each.items():
                held.setdefault(name, []).extend(ranked)
    return {"rows": [row for found in every for row in found["rows"]], "ranks": ranks}


def tables(found: Mapping[str, Any]) -> str:
    """A table for each graph and its owners, and mean ranks of those who were everywhere."""
    rings: dict[str, list[Mapping[str, Any]]] = {}
    for row in found["rows"]:
        where = f"{row['dataset']}, {row['owners']} {row['partition']} owners, {row['split']}"
        rings.setdefault(where, []).append(row)
    parts = [f"**All together**\n\n{pooled(found['rows'])}"]
    parts += [f"**{title}**\n\n{markdown(rows)}" for title, rows in rings.items()]
    for measure, each in found["ranks"].items():
        most = max(map(len, each.values()), default=0)
        everywhere = {name: held for name, held in each.items() if len(held) == most}
        order = sorted((mean(rank for _, rank in held), n) for n, held in everywhere.items())
        told = ", ".join(f"{name} {rank:.1f}" for rank, name in order)
        held = counted(most, "time")
        parts.append(f"Mean rank by {measure} accuracy where all took part ({held}): {told}.")
    return "\n\n".join(parts)


def pooled(rows: list[Mapping[str, Any]]) -> str:
    """Paired differences over all graphs, owners and seeds that both sides have."""
    names = list(dict.fromkeys(row["method"] for row in rows))
    columns = ("method", "pairs", f"global − {names[0]}", f"local − {names[0]}",
               "local, state own − averaged")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    one = {measure: known(rows, measure) for measure in ("global", "local")}
    for name in names:
        state = "averaged" if (name, "averaged") in one["local"] else "own"
        gaps = [
            difference(held[name, state], held[names[0], "averaged"]) for held in one.values()
        ]
        mine, other = one["local"][name, state], one["local"][name, "own"]
        cells = (f"`{name}`", str(len(mine)), *gaps, difference(other, mine))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def known(
    rows: list[Mapping[str, Any]], measure: str
) -> dict[tuple[str, str], dict[tuple[str, str, int], float]]:
    """Accuracy by method and state, for each graph, kind of owners and seed."""
    found: dict[tuple[str, str], dict[tuple[str, str, int], float]] = {}
    for row in rows:
        held = found.setdefault((row["method"], row["moments"]), {})
        if each := row[measure]["each"]:
            for seed, value in zip(row["seeds"], each, strict=True):
                held[row["dataset"], row["partition"], seed] = value
    return found


def difference(one: Mapping[Any, float], base: Mapping[Any, float]) -> str:
    """The mean difference in points where both are known; bold if its interval is beyond 0."""
    both = [key for key in one if key in base]
    if one is base or len(both) < 2:
        return "–"
    held = paired_difference([one[key] for key in both], [base[key] for key in both])
    assert held.low is not None and held.high is not None
    words = f"{100 * held.mean:+.1f} [{100 * held.low:+.1f}, {100 * held.high:+.1f}]"
    return f"**{words}**" if held.clear else words


def markdown(rows: list[Mapping[str, Any]]) -> str:
    """The rows of one ring."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        cells = (
            f"`{row['method']}`", row["moments"], str(len(row["seeds"])),
            in_words(row["settings"]) if row["trials"] else "usual",
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
    every = [json.loads((DOCS / "results" / name).read_text()) for name in FILES]
    page.write_text(with_tables(page.read_text(), together(every)))


if __name__ == "__main__":
    main()
