"""The tables whose rows name nodes, as arrays: links and sparse features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int
from scipy.sparse import coo_array

from fedsage.graph.known_links import RemoteLinks
from fedsage.graph.link_values import NO_VALUES, LinkValues
from fedsage.shapes import Array, EdgeIndex, SparseMatrix
from fedsage.tables.cells import Cells
from fedsage.tables.column import column_of
from fedsage.tables.feature import Feature
from fedsage.tables.kinds import kind_of
from fedsage.tables.parse import check_columns
from fedsage.tables.problems import Problems, all_alike
from fedsage.tables.schema import Schema

WHEN = Feature("time", "date", missing="mean")  # a link whose time is not known is kept
OWNER = "owner"  # the column that says whose node the other end of a link is


def nodes_named(
    cells: Cells, name: str, ids: Sequence[str], schema: Schema, problems: Problems
) -> Int[Array, " rows"]:
    """The nodes that a column of ids names."""
    column = column_of(cells, name, problems)
    found = column.places(ids)

    def words(row: int) -> tuple[str, str]:
        remedy = "Add the node to the table of nodes, or remove this row."
        if name in (schema.source, schema.target):
            remedy += ' Another owner\'s node is allowed by links = "known" in the schema.'
        return f"{column.seen(row)} is not the id of a node", remedy

    column.note(found < 0, "unknown node", words, all_alike)
    return found


def parse_links(
    cells: Cells, ids: Sequence[str], schema: Schema, problems: Problems
) -> tuple[EdgeIndex, RemoteLinks | None, LinkValues]:
    """The table of links: both ends, ids of nodes; one of them may be another owner's."""
    ends, known = (schema.source, schema.target), schema.links == "known"
    more = [name for name in (schema.weight, schema.time) if name]
    remedy = "Name it in the schema as weight, as time or in 'ignored_in_edges', or remove it."
    optional = (*schema.ignored_in_edges, *([OWNER] if known else []))
    check_columns(cells, (*ends, *more), optional, remedy, problems)
    if not all(name in cells.columns for name in (*ends, *more)):
        return np.zeros((2, 0), dtype=np.int64), None, NO_VALUES
    values = values_of(cells, schema, problems)
    if known:
        links, remote = links_to_others(cells, ids, ends, problems)
        if values.weights is not None:
            remote = replace(remote, weights=values.weights[(links < 0).sum(axis=0) == 1])
        own = (links >= 0).all(axis=0)
        return links[:, own], remote, values.taken(own)
    links = np.stack([nodes_named(cells, end, ids, schema, problems) for end in ends])
    return links, None, values


def values_of(cells: Cells, schema: Schema, problems: Problems) -> LinkValues:
    """The weights and times of links, as far as the schema names columns of them."""
    weights = times = None
    if schema.weight:
        column = column_of(cells, schema.weight, problems, schema.empty)
        weights = column.checked_numbers()
        column.refuse_empty("Give every link a weight; 1 is an ordinary one.")

        def words(row: int) -> tuple[str, str]:
            return f"{column.seen(row)} is not a weight", "Give a number above 0."

        column.note(~(weights > 0) & np.isfinite(weights), "no weight", words, all_alike)
        weights = np.where(weights > 0, weights, 1.0)
    if schema.time:
        column = column_of(cells, schema.time, problems, schema.empty)
        times = kind_of(WHEN).read(column, WHEN)
    return LinkValues(weights, times)


def links_to_others(
    cells: Cells, ids: Sequence[str], ends: tuple[str, str], problems: Problems
) -> tuple[EdgeIndex, RemoteLinks]:
    """All links, -1 where an end is not here, and those to nodes of other owners."""
    columns = [column_of(cells, end, problems) for end in ends]
    found = np.stack([column.places(ids) for column in columns])
    for column in columns:
        column.refuse_empty("Give the id of a node.")
    nowhere = (found < 0).all(axis=0) & columns[0].filled & columns[1].filled

    def words(row: int) -> tuple[str, str]:
        what = f"neither {columns[0].seen(row)} nor {columns[1].seen(row)} is a node of yours"
        return what, "Add one of them to the table of nodes, or remove this row."

    columns[0].note(nowhere, "link of others", words, all_alike)
    remote = np.flatnonzero((found < 0).sum(axis=0) == 1)
    texts = [np.array(column.texts(), dtype=object)[remote] for column in columns]
    owner = [""] * len(remote)
    if OWNER in cells.columns:
        held = column_of(cells, OWNER, problems).texts()
        owner = [held[row] for row in remote.tolist()]
    away = found[0, remote] < 0  # which end it is
    there = np.where(away, *texts)
    links = RemoteLinks(found[:, remote].max(axis=0), tuple(there.tolist()), tuple(owner))
    return found, links


def parse_sparse(
    cells: Cells, ids: Sequence[str], schema: Schema, problems: Problems
) -> SparseMatrix | None:
    """The table of sparse features: id, ``feature``, ``value``; None if one is missing."""
    names = [feature.name for feature in schema.of_kind("sparse")]
    needed = (schema.id, "feature", "value")
    check_columns(cells, needed, (), "Remove it from this table.", problems)
    if not all(name in cells.columns for name in needed):
        return None
    row = nodes_named(cells, schema.id, ids, schema, problems)
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
