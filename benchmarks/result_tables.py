"""Tables of docs/reproduction.md from ``reproduce table-main``.

    python benchmarks/result_tables.py

Reads ``docs/results/reproduce/{best,paper}/table-main.json``, which ``fedsage reproduce
table-main --preset PRESET`` wrote, and replaces what stands between marks such as
``<!-- paired -->`` and ``<!-- /paired -->``. Those of README.md are by ``accuracy.py``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsage.errors import DataError
from fedsage.paper import paper_values

ROOT = Path(__file__).parent.parent
OURS = {"locsage": "LocSage", "locsage+": "LocSage+", "fedsage": "FedSage",
        "fedsage+": "FedSage+", "globsage": "GlobSage"}  # fmt: skip
NAMES = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "msacademic": "MSAcademic"}
THEIRS = ("fedsage", "fedsage+", "globsage")
Row = Mapping[str, Any]


def read_study(path: Path) -> dict[str, Any]:
    """What a study's JSON file holds; a quick one is no result."""
    if not path.exists():
        raise DataError(
            f"{path} is not there. Run 'fedsage reproduce {path.stem}' and copy its files."
        )
    found: dict[str, Any] = json.loads(path.read_text())
    if found["quick"]:
        raise DataError(
            f"{path} is of a quick run, which is no result. Run it without --quick."
        )
    return found


def cells_of(rows: Sequence[Row]) -> dict[tuple[str, int], dict[str, Row]]:
    """Rows of Table 2 by dataset and M, then by method."""
    cells: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        cells.setdefault((row["dataset"], row["M"]), {})[row["method"]] = row
    return cells


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def spread(row: Row | None) -> str:
    """Our mean ± standard deviation, where there is such a cell."""
    return "" if row is None else f"{row['ours']:.4f} ± {row['std']:.4f}"


def printed(row: Row | None) -> str:
    """The paper's value; both where it prints two."""
    if row is None or row["paper"] is None:
        return ""
    place = (row["dataset"], row["M"], row["method"])
    also = [
        f" / {one['accuracy']:.4f}"
        for one in paper_values()["table-main"]["also"]
        if (one["dataset"], one["owners"], one["method"]) == place
    ]
    return f"{row['paper']:.4f}{''.join(also)}"


def summary(study: Mapping[str, Any]) -> Iterator[str]:
    """All methods beside the paper's, queried on the whole graph."""
    names = [OURS[method] for method in THEIRS]
    columns = ["dataset", "M", *OURS.values(), f"the paper: {names[0]}", *names[1:]]
    rows = []
    for (dataset, owners), methods in cells_of(study["tables"][0]["rows"]).items():
        ours = [spread(methods.get(method)) for method in OURS]
        theirs = [printed(methods.get(method)) for method in THEIRS]
        rows.append([dataset, str(owners), *ours, *theirs])
    yield from markdown(columns, rows)


def beside(study: Mapping[str, Any]) -> Iterator[str]:
    """Every cell of Table 2 with its difference from the paper, in points of accuracy."""
    columns = ("dataset", "M", "method", "ours", "the paper", "difference", "marked", "local",
               "seeds")  # fmt: skip
    rows = []
    for row in study["tables"][0]["rows"]:
        if row["paper"] is None:
            continue
        theirs = f"{printed(row)} ± {row['paper std']:.4f}"
        rows.append((
            row["dataset"], str(row["M"]), OURS[row["method"]], spread(row), theirs,
            f"{100 * row['difference']:+.1f}", row["marked"], f"{row['local']:.4f}",
            str(row["seeds"]),
        ))  # fmt: skip
    yield from markdown(columns, rows)


def paired(studies: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """FedSage+ and the oracle against FedSage on the same seeds, for every preset."""
    for preset, study in studies.items():
        gaps: dict[tuple[str, int], dict[str, str]] = {}
        for row in study["tables"][1]["rows"]:
            name = f"{row['what']}, {row['queries']}"
            gaps.setdefault((row["dataset"], row["M"]), {})[name] = interval(row)
        columns = list(dict.fromkeys(name for found in gaps.values() for name in found))
        rows = [
            (dataset, str(owners), *(found.get(name, "") for name in columns))
            for (dataset, owners), found in gaps.items()
        ]
        yield f"Preset `{preset}`:\n"
        yield from markdown(("dataset", "M", *columns), rows)
        yield ""


def interval(row: Row) -> str:
    """A difference in points with its 95% interval; bold where zero is outside."""
    if row["difference"] is None:
        return ""
    middle = f"{100 * row['difference']:+.2f}"
    if row["from"] is None:
        return middle
    words = f"{middle} [{100 * row['from']:+.2f}, {100 * row['to']:+.2f}]"
    return f"**{words}**" if row["from"] > 0 or row["to"] < 0 else words


def between_marks(text: str, mark: str, lines: Iterator[str]) -> str:
    """``text`` with ``lines`` between ``<!-- mark -->`` and ``<!-- /mark -->``."""
    start, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise DataError(f"There is no {start.strip()} … {end} to write to. Put the marks back.")
    body = "\n".join(lines).rstrip("\n")
    return f"{before}{start}{body}\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="of the source tree")
    root = parser.parse_args().root
    folder = root / "docs" / "results" / "reproduce"
    studies = {
        preset: read_study(folder / preset / "table-main.json") for preset in ("paper", "best")
    }
    best, page = studies["best"], root / "docs" / "reproduction.md"
    text = between_marks(page.read_text(), "table-main", beside(studies["paper"]))
    text = between_marks(text, "table-best", summary(best))
    page.write_text(between_marks(text, "paired", paired(studies)))


if __name__ == "__main__":
    main()
