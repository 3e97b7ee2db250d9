"""Malformed tables by the dozen: each kind of error has one line, with its count."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsage.errors import DataErrors
from fedsage.tables.tables import read_tables

ROWS, BAD = 40, range(5, 12)  # seven rows of forty are wrong
SCHEMA = """classes = ["ill", "well"]
sparse = ["iron", "zinc"]
[features]
number = { kind = "number" }
count = { kind = "count" }
truth = { kind = "boolean" }
date = { kind = "date" }
word = { kind = "category", categories = ["north", "south"] }
text = { kind = "text" }
"""
GOOD = {"number": "1.5", "count": "3", "truth": "yes", "date": "2024-05-31", "word": "north",
        "text": "some words", "label": "ill", "split": "train"}  # fmt: skip
NODES = {
    "number": {
        **dict.fromkeys(
            ["abc", "5,0", "1_000", "50 kg", "inf", "-inf", "1 000", "0x10", "½", "1.2.3",
             "--3", "€5", "12%", "five"], "is not a number"),
        **dict.fromkeys(["1e39", "1e999"], "is too large"),
        **dict.fromkeys(["", "NA", "NaN", "null"], "is empty"),
    },
    "count": {"-1": "is not a count", "1.5": "is not a count", "many": "is not a number",
              "1e40": "is too large", "": "is empty"},
    "truth": {**dict.fromkeys(["maybe", "2", "jain"], "is neither yes nor no"), "": "is empty"},
    "date": {
        **dict.fromkeys(["2024-13-01", "2024-02-30", "31/12/2024", "yesterday", "24-1-1",
                         "2024", "99.99.2024"], "is not a date"),
        "": "is empty",
    },
    "word": {"nord": "is not a known category", "NORTH": "is not a known category",
             "": "is empty", "none": "is empty"},
    "text": {"": "is empty"},
    "label": {**dict.fromkeys(["il", "ILL", "1"], "is not a known class")},
    "split": dict.fromkeys(["valid", "Train", "dev"], "is not a part of the split"),
    "id": {"": "is empty", "p0": "appears twice, first in line 2"},
}  # fmt: skip
LINKS = {
    "source": {"q": "is not the id of a node", "": "is not the id of a node"},
    "target": {"q": "is not the id of a node", "": "is not the id of a node"},
}
FEATURES = {
    "id": {"q": "is not the id of a node"},
    "feature": {"gold": "is not a known feature", "": "is not a known feature"},
    "value": {"much": "is not a number", "": "is empty", "1e39": "is too large"},
}
CASES = [
    (table, column, cell, says)
    for table, columns in (("nodes", NODES), ("edges", LINKS), ("features", FEATURES))
    for column, cells in columns.items()
    for cell, says in cells.items()
]


def write(folder: Path, table: str, column: str, cell: str) -> None:
    """Fine tables but for seven cells of one column."""
    tables = {
        "nodes": [{"id": f"p{i}", **GOOD} for i in range(ROWS)],
        "edges": [{"source": f"p{20 + i}", "target": f"p{21 + i}"} for i in range(15)],
        "features": [{"id": f"p{20 + i}", "feature": "iron", "value": "1"} for i in range(15)],
    }
    for row in BAD:
        tables[table][row][column] = cell
    (folder / "schema.toml").write_text(SCHEMA)
    for name, rows in tables.items():
        lines = [",".join(rows[0]), *(",".join(f'"{c}"' for c in r.values()) for r in rows)]
        (folder / f"{name}.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")


def test_there_are_sixty_malformed_tables() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize(("table", "column", "cell", "says"), CASES)
def test_a_kind_of_error_has_one_line_with_its_count(
    tmp_path: Path, table: str, column: str, cell: str, says: str
) -> None:
    write(tmp_path, table, column, cell)
    with pytest.raises(DataErrors) as caught:
        read_tables(tmp_path)
    (found,) = caught.value.lines
    assert found.startswith(f"{table}.csv, column {column}: ") and says in found
    assert "; 7 cells " in found and "(lines 7, 8, 9, …). " in found
    assert caught.value.count == 7


def test_different_errors_in_one_column_have_a_line_each(tmp_path: Path) -> None:
    write(tmp_path, "nodes", "number", "abc")
    path = tmp_path / "nodes.csv"
    text = (
        path.read_text().replace("1.5", "x", 1).replace("1.5", "", 3).replace("1.5", "1e39", 1)
    )
    path.write_text(text)
    with pytest.raises(DataErrors) as caught:
        read_tables(tmp_path)
    starts = [found.split(". ")[0] for found in caught.value.lines]
    assert starts == [
        "nodes.csv, column number: 'abc' is not a number; 7 cells are like this "
        "(lines 7, 8, 9, …)",
        "nodes.csv, column number: is empty; 3 cells are like this (lines 3, 4, 5)",
        "nodes.csv, line 2, column number: 'x' is not a number",
        "nodes.csv, line 6, column number: '1e39' is too large",
    ]
    assert caught.value.count == 12
