"""A schema guessed from one owner's tables: a first draft for all owners to agree on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsage.errors import DataError, nearest
from fedsage.readable import natural
from fedsage.tables.cells import Cells, find_table, read_cells
from fedsage.tables.parse import NOTHING, checked_numbers
from fedsage.tables.problems import Problems
from fedsage.tables.schema import RESERVED, Feature, Schema

MOST_CATEGORIES = 50  # a column with more different words is text, not a category
FEW = 10  # whole numbers with at most this many values may be codes
CODES = "a category, if these numbers are codes"


@dataclass(frozen=True, slots=True)
class Guess:
    """A schema, and what was seen in the columns it was guessed from.

    ``seen`` is only for the owner; ``notes`` go into the file that all owners read.
    """

    schema: Schema
    seen: dict[str, str]
    notes: dict[str, str]


def guess_schema(folder: Path | str, label: str | None = None) -> Guess:
    """A schema for the tables in ``folder``; classes come from the column ``label``."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder. Give the folder that holds nodes.csv.")
    problems = Problems(str(folder))
    paths = [
        find_table(folder, "nodes", problems),
        find_table(folder, "features", problems, False),
    ]
    nodes, features = (read_cells(path, problems) if path else None for path in paths)
    problems.raise_if_any()
    assert nodes is not None  # or there was a problem
    return guess_from(nodes, features, label)


def guess_from(nodes: Cells, features: Cells | None, label: str | None = None) -> Guess:
    """A schema for tables as cells of text."""
    if label is not None and label not in nodes.columns:
        known = nearest(label, nodes.columns)
        raise DataError(f"{nodes.file} has no column '{label}' to take classes from.{known}")
    label = label or "label"
    found: list[Feature] = []
    ignored: list[str] = []
    seen: dict[str, str] = {}
    notes: dict[str, str] = {}
    for name in nodes.columns:
        if name in (*RESERVED, label):
            continue
        feature, seen[name] = guess_feature(nodes, name)
        if feature is None:
            ignored.append(name)
            continue
        found.append(feature)
        if feature.kind == "category":
            notes[name] = "add the other owners' categories"
        elif seen[name].endswith(CODES):
            notes[name] = CODES
    if features is not None and "feature" in features.columns:
        found += [Feature(name, "sparse") for name in distinct_texts(features, "feature")]
    if not found:
        raise DataError(
            f"{nodes.file} has no column that could be a feature; its columns are "
            f"{', '.join(nodes.columns)}. Add columns of numbers or categories."
        )
    classes = distinct_texts(nodes, label) if label in nodes.columns else []
    return Guess(Schema(tuple(found), tuple(classes), label, tuple(ignored)), seen, notes)


def guess_feature(cells: Cells, name: str) -> tuple[Feature | None, str]:
    """What a column seems to be, and what was seen in it; None for free text."""
    column = cells.columns[name]
    lower = pc.utf8_lower(column)
    nothing = pc.or_(
        pc.equal(column, ""), pc.is_in(lower, value_set=pa.array(sorted(NOTHING), pa.string()))
    )
    num_empty = int(pc.sum(nothing).as_py() or 0)
    num_values = int(pc.count_distinct(column.filter(pc.not_equal(column, ""))).as_py())
    empty = f", {num_empty:,} empty" if num_empty else ""
    kept = Cells(cells.file, {name: column.filter(pc.invert(nothing))}, 0, cells.row_name)
    trouble = Problems("guess")
    numbers = checked_numbers(kept, name, trouble)[0]
    if not trouble.counts and len(numbers):
        seen = f"{numbers.min():g} to {numbers.max():g}{empty}"
        if 2 < num_values <= FEW and (numbers == np.round(numbers)).all():
            seen += f"; {CODES}"
        return Feature(name, "number", missing="mean" if num_empty else "refused"), seen
    if 0 < num_values <= MOST_CATEGORIES and num_values < cells.num_rows:
        categories = tuple(distinct_texts(cells, name))
        return Feature(name, "category", categories=categories), f"{num_values} words{empty}"
    return None, f"{num_values:,} different texts"


def distinct_texts(cells: Cells, name: str) -> list[str]:
    """The different texts in a column, except the empty one."""
    return sorted(set(pc.unique(cells.columns[name]).to_pylist()) - {""}, key=natural)
