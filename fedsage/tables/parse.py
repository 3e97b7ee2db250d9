"""The table of nodes as arrays: ids, numbers, categories, classes; every problem is noted.

Whole columns are read at once; only bad cells are looked at one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from fedsage.errors import nearest
from fedsage.shapes import Array
from fedsage.tables.cells import Cells
from fedsage.tables.problems import Problems
from fedsage.tables.schema import PARTS, Feature, Schema

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LARGEST = float(np.finfo(np.float32).max)
NOTHING = {"na", "nan", "n/a", "null", "none", "nil", "?", "-", "."}  # meant as an empty cell


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The table of nodes as arrays, with stand-ins where something is wrong."""

    ids: tuple[str, ...]
    numbers: Float[Array, "V numbers"]  # as in the table; NaN where a cell is empty
    codes: Int[Array, "V categories"]  # which category
    y: Int[Array, " V"]
    parts: Int[Array, " V"] | None  # 0 train, 1 val, 2 test, -1 none of them


def note_cells(
    cells: Cells,
    column: str,
    bad: Bool[Array, " rows"],
    kind: str,
    words: Callable[[int], tuple[str, str]],
    problems: Problems,
) -> None:
    """Note the bad cells of a column; ``words`` gives what is wrong in a row and the remedy."""
    rows = np.flatnonzero(bad).tolist()
    shown = rows[: problems.room(kind, cells.file)]
    for row in shown:
        problems.add(kind, cells.where(row, column), *words(row))
    if len(rows) > len(shown):
        problems.pass_over(kind, cells.file, len(rows) - len(shown))


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
            advice = f"It has {seen}. Add it, or rename one; columns are separated by commas."
            problems.add("no column", cells.file, f"has no column '{name}'", advice)
    known = (*needed, *optional)
    for name in cells.columns:
        if name and name not in known:
            hint = nearest(name, known).strip()
            advice = f"{hint} {remedy}" if hint.startswith("Did you") else remedy
            where = f"{cells.file}, column {name}"
            problems.add("unknown column", where, "is not in the schema", advice)


def parse_nodes(cells: Cells, schema: Schema, problems: Problems) -> Nodes:
    """The table of nodes: ``id``, features, and optionally the class and the split."""
    needed = ["id", *(feature.name for feature in schema.columns)]
    optional = [schema.label, "split", *schema.ignored]
    remedy = "Add it to [features] or to 'ignored' in the schema, or remove it."
    check_columns(cells, needed, optional, remedy, problems)
    if not cells.num_rows:
        problems.add("no rows", cells.file, "has no rows", "Add at least one node.")
    y = classes_of(cells, schema, problems)
    return Nodes(
        ids=ids_of(cells, problems) if "id" in cells.columns else (),
        numbers=stacked(
            [numbers_of(cells, f, problems) for f in schema.of_kind("number")],
            np.zeros((cells.num_rows, 0)),
        ),
        codes=stacked(
            [codes_of(cells, f, problems) for f in schema.of_kind("category")],
            np.zeros((cells.num_rows, 0), dtype=np.int64),
        ),
        y=y,
        parts=parts_of(cells, y, schema.label, problems),
    )


def stacked(columns: Sequence[Array], none: Array) -> Array:
    """Columns side by side; ``none`` if there are no columns."""
    return np.stack(columns, axis=1) if columns else none


def is_empty(column: pa.ChunkedArray) -> Bool[Array, " rows"]:
    """Which cells are empty."""
    return np.asarray(pc.equal(column, "").to_numpy(), dtype=bool)


def places(column: pa.ChunkedArray, names: Sequence[str]) -> Int[Array, " rows"]:
    """The position of each cell in ``names``; -1 if it is not one of them."""
    found = pc.index_in(column, value_set=pa.array(names, pa.string()))
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


def ids_of(cells: Cells, problems: Problems) -> tuple[str, ...]:
    """The ids: any text, but each only once."""
    column = cells.columns["id"]
    empty = is_empty(column)
    note_empty(cells, "id", empty, "Give every node an id of its own.", problems)
    codes = column.combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.unique(codes, return_index=True)[1][codes]

    def words(row: int) -> tuple[str, str]:
        before = cells.row_name(int(first[row]))
        remedy = "Keep one of the two rows, or give one of them another id."
        return f"{cells.seen(row, 'id')} appears twice, first in {before}", remedy

    note_cells(
        cells, "id", (first < np.arange(len(first))) & ~empty, "id twice", words, problems
    )
    return tuple(column.to_pylist())


def note_empty(
    cells: Cells, column: str, empty: Bool[Array, " rows"], remedy: str, problems: Problems
) -> None:
    """Note the cells that must not be empty but are."""
    note_cells(cells, column, empty, "empty cell", lambda _: ("is empty", remedy), problems)


def numbers_of(cells: Cells, feature: Feature, problems: Problems) -> Float[Array, " rows"]:
    """A column of numbers; NaN where a cell is empty."""
    if feature.name not in cells.columns:
        return np.zeros(cells.num_rows)
    values, empty = checked_numbers(cells, feature.name, problems)
    if feature.missing == "refused":
        remedy = 'Fill it in, or give the feature missing = "mean" in the schema.'
        note_empty(cells, feature.name, empty, remedy, problems)
    return values


def checked_numbers(
    cells: Cells, name: str, problems: Problems
) -> tuple[Float[Array, " rows"], Bool[Array, " rows"]]:
    """The numbers in a column and which of its cells are empty; notes what is not a number."""
    column = cells.columns[name]
    empty = is_empty(column)
    try:
        filled = pc.if_else(pc.equal(column, ""), None, column)
        values = pc.cast(filled, pa.float64()).to_numpy().astype(np.float64)
    except pa.ArrowInvalid:
        values = np.array([number_in(text) for text in column.to_pylist()])

    def not_one(row: int) -> tuple[str, str]:
        if column[row].as_py().lower() in NOTHING:
            remedy = 'Leave the cell empty, and give the feature missing = "mean".'
        else:
            remedy = (
                "Write a number like -1.5 or 2e3: a decimal point, no unit, no thousands "
                "separator."
            )
        return f"{cells.seen(row, name)} is not a number", remedy

    def too_large(row: int) -> tuple[str, str]:
        return f"{cells.seen(row, name)} is too large", "Give it in a larger unit."

    huge = np.abs(np.nan_to_num(values)) > LARGEST
    written = np.array([bool(NUMBER.fullmatch(t.as_py())) for t in column.filter(huge)], bool)
    huge[huge] = written  # "inf" is a word, "1e999" a number
    note_cells(cells, name, ~np.isfinite(values) & ~empty & ~huge, "number", not_one, problems)
    note_cells(cells, name, huge, "large number", too_large, problems)
    return values, empty


def number_in(text: str) -> float:
    """The number in a text, else NaN; stricter than ``float``, which accepts 1_000."""
    return float(text) if NUMBER.fullmatch(text) else float("nan")


def codes_of(cells: Cells, feature: Feature, problems: Problems) -> Int[Array, " rows"]:
    """A column of categories, as their numbers."""
    if feature.name not in cells.columns:
        return np.zeros(cells.num_rows, dtype=np.int64)
    codes = places(cells.columns[feature.name], feature.categories)
    empty = is_empty(cells.columns[feature.name])
    remedy = "Fill it in; a category such as 'unknown' must be in the schema."
    note_empty(cells, feature.name, empty, remedy, problems)
    note_unknown(
        cells, feature.name, (codes < 0) & ~empty, "category", feature.categories, problems
    )
    return codes


def note_unknown(
    cells: Cells,
    column: str,
    bad: Bool[Array, " rows"],
    kind: str,
    known: Sequence[str],
    problems: Problems,
) -> None:
    """Note the cells whose words are not in the schema."""

    def words(row: int) -> tuple[str, str]:
        hint = nearest(cells.columns[column][row].as_py(), known[:1000]).strip()
        remedy = f"{hint} Correct it, or add it to every owner's schema."
        return f"{cells.seen(row, column)} is not a known {kind}", remedy

    note_cells(cells, column, bad, f"unknown {kind}", words, problems)


def classes_of(cells: Cells, schema: Schema, problems: Problems) -> Int[Array, " rows"]:
    """The classes; -1 if the cell is empty or there is no such column."""
    if schema.label not in cells.columns:
        return np.full(cells.num_rows, -1)
    column = cells.columns[schema.label]
    y = places(column, schema.class_names)
    unknown = (y < 0) & ~is_empty(column)
    note_unknown(cells, schema.label, unknown, "class", schema.class_names, problems)
    return y


def parts_of(
    cells: Cells, y: Int[Array, " rows"], label: str, problems: Problems
) -> Int[Array, " rows"] | None:
    """The part of the split that each node is in; None if no node is in any."""
    if "split" not in cells.columns:
        return None
    column = cells.columns["split"]
    parts = places(column, PARTS)

    def words(row: int) -> tuple[str, str]:
        remedy = "Write train, val or test, or leave the cell empty."
        return f"{cells.seen(row, 'split')} is not a part of the split", remedy

    def unlabelled(row: int) -> tuple[str, str]:
        remedy = "Leave its split empty, or give it a class."
        return f"is {cells.seen(row, 'split')}, but the node has no {label}", remedy

    note_cells(
        cells, "split", (parts < 0) & ~is_empty(column), "unknown split", words, problems
    )
    without = (parts >= 0) & (y < 0)
    if label in cells.columns:  # an unknown class was noted already
        without &= is_empty(cells.columns[label])
    note_cells(cells, "split", without, "split without class", unlabelled, problems)
    return parts if (parts >= 0).any() else None
