"""New rows for an owner's tables: those that can be used, and why others cannot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from fedsage.errors import DataErrors
from fedsage.graph.known_links import NO_REMOTE, RemoteLinks
from fedsage.shapes import Array, EdgeIndex, LinksInto, NodeIds
from fedsage.tables.cells import Cells
from fedsage.tables.column import column_of
from fedsage.tables.problems import Problems
from fedsage.tables.schema import Schema
from fedsage.tables.source import read_folder
from fedsage.tables.tables import Tables, tables_from


@dataclass(frozen=True, slots=True, eq=False)
class NewRows:
    """New nodes with their links, and the rows that were left out."""

    tables: Tables  # of the new nodes, without links
    among: EdgeIndex  # links among them
    into: LinksInto  # from them (first row) to nodes that the owner already has
    skipped: tuple[str, ...]  # a line for each row that cannot be used
    remote: RemoteLinks = NO_REMOTE  # from them to nodes of other owners
    weights: Float[Array, " links"] | None = None  # of ``among``, then of ``into``


def read_new(folder: Path, schema: Schema, known: Mapping[str, int]) -> NewRows:
    """The rows in a folder of tables that can be used, and why others cannot.

    Args:
        folder: Has ``nodes.csv`` with new nodes and, if they have links, ``edges.csv``.
        schema: That of the owner.
        known: The number of every node that the owner already has, by id.
    """
    problems = Problems(str(folder))
    nodes, links, features = read_folder(folder, problems, links_needed=False)
    problems.raise_if_any()
    assert nodes is not None  # or there was a problem
    skipped: list[str] = []
    rows = rows_to_try(nodes, schema, known, skipped)
    kept = usable(nodes, features, schema, rows, skipped)
    if not len(kept):
        raise nothing_left(folder, nodes, skipped)
    tables = tables_of(nodes, features, schema, kept)
    named = nodes.columns[schema.id].to_pylist()
    unused = {*named} - {*tables.ids}
    given = schema, tables.ids, known, unused, skipped, folder
    among, into, remote, weights = links_of(links, *given)
    return NewRows(tables, among, into, tuple(skipped), remote, weights)


def nothing_left(folder: Path, nodes: Cells, skipped: Sequence[str]) -> DataErrors:
    """No row can be used."""
    lines = list(dict.fromkeys(skipped)) or [f"{nodes.file}: has no rows. Add some."]
    return DataErrors(str(folder), lines, len(lines))


def rows_to_try(
    nodes: Cells, schema: Schema, known: Mapping[str, int], skipped: list[str]
) -> NodeIds:
    """The rows whose id is new, each id once."""
    if schema.id not in nodes.columns:
        return np.arange(nodes.num_rows)  # what is missing is named when they are read
    seen: set[str] = set()
    kept = []
    for row, name in enumerate(nodes.columns[schema.id].to_pylist()):
        if name and (name in known or name in seen):
            whose = "the owner already has" if name in known else "an earlier row has"
            skipped.append(
                f"{nodes.file}, {nodes.row_name(row)}: '{name}' is a node that {whose}. "
                "Give it another id, or remove the row."
            )
            continue
        seen.add(name)
        kept.append(row)
    return np.array(kept, dtype=np.int64)


def taken(cells: Cells, rows: NodeIds) -> Cells:
    """Some rows of a table, which keep their names."""
    index = pa.array(rows)
    columns = {name: column.take(index) for name, column in cells.columns.items()}
    return replace(
        cells,
        columns=columns,
        num_rows=len(rows),
        row_name=lambda row: cells.row_name(int(rows[row])),
    )


def tables_of(nodes: Cells, features: Cells | None, schema: Schema, rows: NodeIds) -> Tables:
    """The tables of some rows; refuses them if anything is wrong with one."""
    some = taken(nodes, rows)
    if features is not None and schema.id in nodes.columns and schema.id in features.columns:
        named = pc.is_in(features.columns[schema.id], some.columns[schema.id])
        features = taken(features, np.flatnonzero(named.to_numpy()))
    return tables_from(some, None, features, schema, Problems(nodes.file))


def usable(
    nodes: Cells, features: Cells | None, schema: Schema, rows: NodeIds, skipped: list[str]
) -> NodeIds:
    """The rows with which nothing is wrong, found by halving; the others are named."""

    def found(part: NodeIds) -> Iterator[NodeIds]:
        try:
            tables_of(nodes, features, schema, part)
            yield part
        except DataErrors as error:
            if len(part) == 1:
                skipped.append(error.lines[0])
                return
            for half in np.array_split(part, 2):
                yield from found(half)

    parts = list(found(rows)) if len(rows) else []
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def links_of(
    links: Cells | None,
    schema: Schema,
    ids: Sequence[str],
    known: Mapping[str, int],
    unused: Collection[str],
    skipped: list[str],
    folder: Path,
) -> tuple[EdgeIndex, LinksInto, RemoteLinks, Float[Array, " links"] | None]:
    """Links among new nodes, to nodes of the owner and to those of others.

    Last come the weights of the first two kinds; links to others have theirs with them.
    """
    among: list[tuple[int, int]] = []
    into: list[tuple[int, int]] = []
    away: list[tuple[int, str, int]] = []
    place = {name: k for k, name in enumerate(ids)}
    ends, rows = ends_of(links, schema, folder), list[tuple[bool, int]]()
    weights = weights_of(links, schema)
    for row, (a, b) in enumerate(ends):
        assert links is not None  # or it has no rows
        strange = [one for one in (a, b) if one not in place and one not in known]
        if weights is not None and not weights[row] > 0:
            why = f"{links.seen(row, schema.weight)} is not a weight above 0"
        elif schema.links == "known" and len(strange) == 1 and strange[0] not in unused:
            own = a if b == strange[0] else b
            if own in place:
                away.append((place[own], strange[0], row))
                continue
            why = f"'{own}' is an old node, whose links to other owners count in the next run"
        elif strange:
            why = f"'{strange[0]}' is neither a node of the owner nor a new one that is used"
        elif a in place and b in place:
            among.append((place[a], place[b]))
            rows.append((False, row))
            continue
        elif a in place or b in place:
            new, old = (a, b) if a in place else (b, a)
            into.append((place[new], known[old]))
            rows.append((True, row))
            continue
        else:
            why = "both ends are nodes that the owner already has"
        skipped.append(f"{links.file}, {links.row_name(row)}: {why}. Remove the row.")
    here, there, at = zip(*away, strict=True) if away else ((), (), ())
    used = [row for _, row in sorted(rows)]  # those among new nodes come first
    held, abroad = (None if weights is None else weights[some] for some in (used, list(at)))
    whose = ("",) * len(away)
    remote = RemoteLinks(np.array(here, dtype=np.int64), there, whose, abroad)
    return as_links(among), as_links(into), remote, held


def weights_of(links: Cells | None, schema: Schema) -> Float[Array, " rows"] | None:
    """The weight of every row, NaN where it is none; None if links have no weights."""
    if links is None or not schema.weight:
        return None
    column = column_of(links, schema.weight, Problems(links.file), schema.empty)
    return np.where(np.isfinite(values := column.numbers()), values, np.nan)


def ends_of(links: Cells | None, schema: Schema, folder: Path) -> list[tuple[str, str]]:
    """Both ends of every row, as they are written."""
    if links is None:
        return []
    ends = (schema.source, schema.target, *([schema.weight] if schema.weight else []))
    if missing := [end for end in ends if end not in links.columns]:
        line = f"{links.file}: has no column {missing[0]}. Add it."
        raise DataErrors(str(folder), [line], 1)
    source, target = (links.columns[end].to_pylist() for end in ends[:2])
    return list(zip(source, target, strict=True))


def as_links(pairs: list[tuple[int, int]]) -> EdgeIndex:
    """Pairs as two rows."""
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
