"""The table of nodes as arrays: ids, features, classes, split; every problem is noted.

Whole columns are read at once, each as its kind says; only bad cells are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from fedsage.errors import nearest
from fedsage.shapes import Array
from fedsage.tables.cells import Cells
from fedsage.tables.column import column_of
from fedsage.tables.feature import OTHER, Feature
from fedsage.tables.kinds import kind_of
from fedsage.tables.problems import Problems, all_alike
from fedsage.tables.schema import PARTS, SOURCE, SPLIT, Schema


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The table of nodes as arrays, with stand-ins where something is wrong."""

    ids: tuple[str, ...]
    numbers: Float[Array, "V numbers"]  # NaN where a cell is empty
    codes: Int[Array, "V categories"]  # which category
    texts: Array | None
    y: Int[Array, " V"]
    parts: Int[Array, " V"] | None  # 0 train, 1 val, 2 test, -1 none of them


def check_columns(
    cells: Cells,
    needed: Sequence[str],
    optional: Sequence[str],
    remedy: str,
    problems: Problems,
) -> None:
    """Note the columns that are missing and those that the schema does not know."""
    for name in needed:
        if name not in cells.columns:
            seen = ", ".join(list(cells.columns)[:8]) or "no columns"
            advice = f"It has {seen}. Add it, or rename one."
            if len(cells.columns) == 1:
                advice += f" If cells are separated by another sign, name it in {SOURCE}."
            problems.add("no column", cells.file, f"has no column '{name}'", advice)
    known = (*needed, *optional)
    for name in cells.columns:
        if name and name not in known:
            hint = nearest(name, known).strip()
            advice = f"{hint} {remedy}" if hint.startswith("Did you") else remedy
            where = f"{cells.file}, column {name}"
            problems.add("unknown column", where, "is not in the schema", advice)


def parse_nodes(cells: Cells, schema: Schema, problems: Problems) -> Nodes:
    """The table of nodes: the id, features, and optionally the class and the split."""
    needed = [schema.id, *(feature.name for feature in schema.columns)]
    optional = [schema.label, SPLIT, *schema.ignored]
    remedy = "Add it to [features] or to 'ignored' in the schema, or remove it."
    check_columns(cells, needed, optional, remedy, problems)
    if not cells.num_rows:
        problems.add("no rows", cells.file, "has no rows", "Add at least one node.")
    y = classes_of(cells, schema, problems)
    rows = cells.num_rows
    numbers, codes, texts = (
        [read(cells, feature, schema, problems) for feature in schema.held_as(where)]
        for where in ("numbers", "codes", "texts")
    )
    return Nodes(
        ids=ids_of(cells, schema.id, problems) if schema.id in cells.columns else (),
        numbers=stacked(numbers, np.zeros((rows, 0))),
        codes=stacked(codes, np.zeros((rows, 0), dtype=np.int64)),
        texts=np.stack(texts, axis=1) if texts else None,
        y=y,
        parts=parts_of(cells, y, schema, problems),
    )


def read(cells: Cells, feature: Feature, schema: Schema, problems: Problems) -> Array:
    """The column of a feature; zeros if there is none, which was noted already."""
    if feature.name not in cells.columns:
        return np.zeros(cells.num_rows, dtype=np.int64)
    column = column_of(cells, feature.name, problems, schema.empty, feature.categories)
    return kind_of(feature).read(column, feature)


def stacked(columns: Sequence[Array], none: Array) -> Array:
    """Columns side by side; ``none`` if there are no columns."""
    return np.stack(columns, axis=1) if columns else none


def ids_of(cells: Cells, name: str, problems: Problems) -> tuple[str, ...]:
    """The ids: any text, but each only once."""
    column = column_of(cells, name, problems)
    column.refuse_empty("Give every node an id of its own.")
    codes = column.text.combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.unique(codes, return_index=True)[1][codes]

    def words(row: int) -> tuple[str, str]:
        before = cells.row_name(int(first[row]))
        remedy = "Keep one of the rows, or give the others another id."
        return f"{column.seen(row)} appears twice, first in {before}", remedy

    again = (first < np.arange(len(first))) & column.filled
    column.note(again, "id twice", words, all_alike)
    return tuple(column.text.to_pylist())


def classes_of(cells: Cells, schema: Schema, problems: Problems) -> Int[Array, " rows"]:
    """The classes; -1 if the cell is empty or there is no such column."""
    if schema.label not in cells.columns:
        return np.full(cells.num_rows, -1)
    names = schema.class_names
    column = column_of(cells, schema.label, problems, schema.empty, names)
    y = column.places(names)
    unknown = (y < 0) & column.filled
    if schema.unlisted_classes == "other":
        y[unknown] = names.index(OTHER)
    else:
        column.refuse_unknown(unknown, "class", names)
    return y


def parts_of(
    cells: Cells, y: Int[Array, " rows"], schema: Schema, problems: Problems
) -> Int[Array, " rows"] | None:
    """The part of the split that each node is in; None if no node is in any."""
    if SPLIT not in cells.columns:
        return None
    column = column_of(cells, SPLIT, problems, schema.empty)
    parts = column.places(PARTS)

    def words(row: int) -> tuple[str, str]:
        remedy = "Write train, val or test, or leave the cell empty."
        return f"{column.seen(row)} is not a part of the split", remedy

    def unlabelled(row: int) -> tuple[str, str]:
        remedy = "Leave its split empty, or give it a class."
        return f"is {column.seen(row)}, but the node has no {schema.label}", remedy

    column.note((parts < 0) & column.filled, "unknown split", words)
    without = (parts >= 0) & (y < 0)
    if schema.label in cells.columns:  # an unknown class was noted already
        without &= column_of(
            cells, schema.label, problems, schema.empty, schema.class_names
        ).empty
    column.note(without, "split without class", unlabelled, all_alike)
    return parts if (parts >= 0).any() else None
