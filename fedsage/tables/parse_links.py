"""The tables whose rows name nodes, as arrays: links and sparse features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from scipy.sparse import coo_array

from fedsage.shapes import Array, EdgeIndex, SparseMatrix
from fedsage.tables.cells import Cells
from fedsage.tables.parse import (
    check_columns,
    checked_numbers,
    note_cells,
    note_empty,
    note_unknown,
    places,
)
from fedsage.tables.problems import Problems


def nodes_named(
    cells: Cells, column: str, ids: Sequence[str], problems: Problems
) -> Int[Array, " rows"]:
    """The nodes that a column of ids names."""
    found = places(cells.columns[column], ids)

    def words(row: int) -> tuple[str, str]:
        remedy = "Add the node to the table of nodes, or remove this row."
        return f"{cells.seen(row, column)} is not the id of a node", remedy

    note_cells(cells, column, found < 0, "unknown node", words, problems)
    return found


def parse_links(cells: Cells, ids: Sequence[str], problems: Problems) -> EdgeIndex:
    """The table of links: ``source`` and ``target``, both ids of nodes."""
    ends = ("source", "target")
    remedy = "Remove it: a link is a source and a target, without a weight or a kind."
    check_columns(cells, ends, (), remedy, problems)
    if not all(end in cells.columns for end in ends):
        return np.zeros((2, 0), dtype=np.int64)
    return np.stack([nodes_named(cells, end, ids, problems) for end in ends])


def parse_sparse(
    cells: Cells, ids: Sequence[str], names: Sequence[str], problems: Problems
) -> SparseMatrix | None:
    """The table of sparse features: ``id``, ``feature``, ``value``; None if one is missing."""
    check_columns(cells, ("id", "feature", "value"), (), "Remove it from this table.", problems)
    if not all(name in cells.columns for name in ("id", "feature", "value")):
        return None
    row = nodes_named(cells, "id", ids, problems)
    column = places(cells.columns["feature"], names)
    note_unknown(cells, "feature", column < 0, "feature", names, problems)
    values, empty = checked_numbers(cells, "value", problems)
    note_empty(cells, "value", empty, "Fill it in, or remove the row to mean 0.", problems)
    pair = row * np.int64(len(names)) + column
    first = np.zeros(len(pair), dtype=bool)
    first[np.unique(pair, return_index=True)[1]] = True

    def words(at: int) -> tuple[str, str]:
        what = f"node {cells.seen(at, 'id')} has {cells.seen(at, 'feature')} twice"
        return what, "Keep one of the two rows, or merge them into one."

    sound = (row >= 0) & (column >= 0)
    note_cells(cells, "feature", ~first & sound, "feature twice", words, problems)
    entries = values[sound], (row[sound], column[sound])
    return coo_array(entries, shape=(len(ids), len(names))).tocsr()
