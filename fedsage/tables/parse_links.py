"""The tables whose rows name nodes, as arrays: links and sparse features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from scipy.sparse import coo_array

from fedsage.shapes import Array, EdgeIndex, SparseMatrix
from fedsage.tables.cells import Cells
from fedsage.tables.column import column_of
from fedsage.tables.parse import check_columns
from fedsage.tables.problems import Problems, all_alike
from fedsage.tables.schema import Schema


def nodes_named(
    cells: Cells, name: str, ids: Sequence[str], problems: Problems
) -> Int[Array, " rows"]:
    """The nodes that a column of ids names."""
    column = column_of(cells, name, problems)
    found = column.places(ids)

    def words(row: int) -> tuple[str, str]:
        remedy = "Add the node to the table of nodes, or remove this row."
        return f"{column.seen(row)} is not the id of a node", remedy

    column.note(found < 0, "unknown node", words, all_alike)
    return found


def parse_links(
    cells: Cells, ids: Sequence[str], schema: Schema, problems: Problems
) -> EdgeIndex:
    """The table of links: both ends, ids of nodes."""
    ends = (schema.source, schema.target)
    remedy = "Add it to 'ignored_in_edges' in the schema, or remove it: only the ends are used."
    check_columns(cells, ends, schema.ignored_in_edges, remedy, problems)
    if not all(end in cells.columns for end in ends):
        return np.zeros((2, 0), dtype=np.int64)
    return np.stack([nodes_named(cells, end, ids, problems) for end in ends])


def parse_sparse(
    cells: Cells, ids: Sequence[str], schema: Schema, problems: Problems
) -> SparseMatrix | None:
    """The table of sparse features: id, ``feature``, ``value``; None if one is missing."""
    names = [feature.name for feature in schema.of_kind("sparse")]
    needed = (schema.id, "feature", "value")
    check_columns(cells, needed, (), "Remove it from this table.", problems)
    if not all(name in cells.columns for name in needed):
        return None
    row = nodes_named(cells, schema.id, ids, problems)
    held = column_of(cells, "feature", problems)
    column = held.places(names)
    if schema.unlisted_sparse == "refused":
        held.refuse_unknown(column < 0, "feature", names)
    amount = column_of(cells, "value", problems, schema.empty)
    values = amount.checked_numbers()
    amount.refuse_empty("Fill it in, or remove the row to mean 0.")
    pair = row * np.int64(len(names)) + column
    first = np.zeros(len(pair), dtype=bool)
    first[np.unique(pair, return_index=True)[1]] = True

    def words(at: int) -> tuple[str, str]:
        what = f"node {cells.seen(at, schema.id)} has {held.seen(at)} twice"
        return what, "Keep one of the rows, or merge them into one."

    sound = (row >= 0) & (column >= 0)
    held.note(~first & sound, "feature twice", words, all_alike)
    entries = values[sound], (row[sound], column[sound])
    return coo_array(entries, shape=(len(ids), len(names))).tocsr()
