"""An owner's tables as arrays, the statistics that scale them, and the graph they make.

Numbers are scaled by their mean and standard deviation over all owners. These come from sums
over owners: counts and totals first, then squares around the agreed mean. No row leaves an
owner.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int
from scipy.sparse import csr_array, hstack

from fedsage.errors import DataError
from fedsage.graph.arrays import frozen
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import RemoteLinks
from fedsage.graph.link_values import NO_VALUES, LinkValues
from fedsage.graph.split import Split
from fedsage.shapes import Array, EdgeIndex, NodeIds, SparseMatrix
from fedsage.tables.digits import exact_sum
from fedsage.tables.feature import Feature
from fedsage.tables.kinds import kind_of
from fedsage.tables.problems import Problems
from fedsage.tables.schema import SCHEMA, Schema, read_schema

if TYPE_CHECKING:
    from fedsage.tables.cells import Cells

CONSTANT = 1e-13  # a deviation this small relative to the mean is rounding


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """One owner's tables, checked, before scaling and one-hot encoding."""

    schema: Schema
    ids: tuple[str, ...]
    numbers: Float64[Array, "V numbers"]  # whose mean is known; NaN where a cell is empty
    codes: Int[Array, "V categories"]  # which category; all in the schema's order
    sparse: SparseMatrix  # V × the number of sparse features
    y: Int[Array, " V"]  # -1 where the class is not known
    links: EdgeIndex
    split: Split | None
    texts: Array | None = None  # V × the number of free texts; None if there are none
    remote: RemoteLinks | None = None  # links to nodes of other owners, if any are known
    values: LinkValues = NO_VALUES  # weights and times of ``links``

    @property
    def num_nodes(self) -> int:
        """|V|."""
        return len(self.ids)

    @property
    def scaled(self) -> Bool[Array, " numbers"]:
        """Which columns of numbers need their mean and deviation over all owners."""
        held = self.schema.held_as("numbers")
        return np.array([kind_of(one).needs_scale(one) for one in held], bool)

    @property
    def sha256(self) -> str:
        """A checksum of all that the tables hold."""
        digest = hashlib.sha256(json.dumps([self.schema.sha256, self.ids]).encode())
        for held in (self.numbers, self.codes, self.y, self.links):
            digest.update(np.ascontiguousarray(held).tobytes())
        for held in (self.sparse.indptr, self.sparse.indices, self.sparse.data):
            digest.update(held.tobytes())
        digest.update(json.dumps([] if self.texts is None else self.texts.tolist()).encode())
        if self.remote is not None:
            links = self.remote.here.tolist(), self.remote.there, self.remote.owner
            digest.update(json.dumps(links).encode())
        for values in self.values.both:
            digest.update(b"" if values is None else values.tobytes())
        return digest.hexdigest()

    def induced(self, nodes: NodeIds, split: Split | None = None) -> Tables:
        """The tables of ``nodes`` only, in the given order, with the links among them.

        Each node keeps its part of the split unless another ``split`` of them is given.
        """
        place = np.full(self.num_nodes, -1)
        place[nodes] = np.arange(len(nodes))
        links = place[self.links]
        inside = (links >= 0).all(axis=0)
        return Tables(
            schema=self.schema,
            ids=tuple(self.ids[v] for v in nodes.tolist()),
            numbers=self.numbers[nodes],
            codes=self.codes[nodes],
            sparse=self.sparse[nodes],
            y=self.y[nodes],
            links=links[:, inside],
            split=split or (None if self.split is None else restricted(self.split, place)),
            texts=None if self.texts is None else self.texts[nodes],
            values=self.values.taken(inside),
        )

    def held(self) -> Iterator[tuple[Feature, Array, int | None]]:
        """Every feature with its column and, if it is held as a number, its place there."""
        place = {"numbers": 0, "codes": 0, "texts": 0}
        for feature in self.schema.columns:
            holds = kind_of(feature).holds
            k, place[holds] = place[holds], place[holds] + 1
            yield feature, getattr(self, holds)[:, k], k if holds == "numbers" else None


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Mean and deviation of every column of numbers, agreed among the owners."""

    mean: Float64[Array, " numbers"]
    std: Float64[Array, " numbers"]


def no_scale(numbers: int) -> Scale:
    """For columns that need no mean and no deviation."""
    return Scale(np.zeros(numbers), np.ones(numbers))


def column_sums(
    tables: Tables,
) -> tuple[Float64[Array, " numbers"], Float64[Array, " numbers"]]:
    """The number of filled cells in each column of numbers, and their sum.

    Both are 0 for columns that are not scaled by them.
    """
    needed = tables.scaled
    count = (~np.isnan(tables.numbers)).sum(axis=0).astype(np.float64)
    return np.where(needed, count, 0.0), np.where(needed, np.nansum(tables.numbers, axis=0), 0)


def column_squares(
    tables: Tables, mean: Float64[Array, " numbers"]
) -> Float64[Array, " numbers"]:
    """The sum of squared distances from ``mean`` in each column of numbers."""
    found = np.nansum(np.square(tables.numbers - mean), axis=0)
    return np.where(tables.scaled, found, 0.0)


def mean_of(
    count: Float64[Array, " numbers"], total: Float64[Array, " numbers"]
) -> Float64[Array, " numbers"]:
    """The mean of every column; 0 if no owner has a number."""
    return total / np.maximum(count, 1.0)


def scale_of(
    count: Float64[Array, " numbers"],
    total: Float64[Array, " numbers"],
    squares: Float64[Array, " numbers"],
) -> Scale:
    """Mean and deviation from sums over all owners; the deviation of a constant column is 1.

    Args:
        count: Filled cells of each column.
        total: Their sum.
        squares: The sum of their squared distances from ``mean_of(count, total)``.
    """
    mean = mean_of(count, total)
    std = np.sqrt(squares / np.maximum(count, 1.0))
    return Scale(mean, np.where(std <= CONSTANT * np.abs(mean), 1.0, std))


def pooled_scale(tables: Sequence[Tables]) -> Scale:
    """The scale that owners would agree on, for a process that holds all their tables."""
    counts, totals = zip(*(column_sums(one) for one in tables), strict=True)
    count, total = np.sum(counts, axis=0), exact_sum(list(totals))
    mean = mean_of(count, total)
    return scale_of(count, total, exact_sum([column_squares(t, mean) for t in tables]))


def graph_of(tables: Tables, scale: Scale) -> Graph:
    """The graph of some tables: every column as its kind says, then sparse features."""
    schema = tables.schema
    blocks: list[Array | SparseMatrix] = [
        kind_of(feature).encode(
            values,
            feature,
            *((0.0, 1.0) if k is None else (float(scale.mean[k]), float(scale.std[k]))),
        )
        for feature, values, k in tables.held()
    ]
    if not schema.is_sparse:
        dense = [b if isinstance(b, np.ndarray) else b.toarray() for b in blocks]
        x = np.concatenate(dense, axis=1, dtype=np.float32)
    else:
        sparse = [csr_array(block, dtype=np.float32) for block in (*blocks, tables.sparse)]
        x = hstack(sparse, format="csr") if blocks else sparse[0]
    return Graph.from_arrays(
        x, tables.links, tables.y, schema.class_names, "tables", *tables.values.both
    )


def read_tables(folder: Path | str, schema: Schema | None = None) -> Tables:
    """Read and check one owner's folder; all its problems are reported at once.

    Args:
        folder: Holds ``nodes.csv``, ``edges.csv`` (or ``.parquet``), and ``features.csv``
            if the schema has sparse features.
        schema: By default ``schema.toml`` in the folder or, if it has none, next to it.
    """
    from fedsage.tables.source import read_folder

    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder. Give the folder that holds nodes.csv.")
    schema = schema or read_schema(schema_path(folder))
    problems = Problems(str(folder))
    nodes, links, features = read_folder(folder, problems)
    if features is None and schema.of_kind("sparse"):
        remedy = f"Add features.csv or features.parquet to {folder}."
        problems.add("no file", "features.csv", "no such file", remedy)
    return tables_from(nodes, links, features, schema, problems)


def tables_from(
    nodes: Cells | None,
    links: Cells | None,
    features: Cells | None,
    schema: Schema,
    problems: Problems,
) -> Tables:
    """Check cells of text against the schema; a table that is None was noted already."""
    from fedsage.tables.parse import parse_nodes
    from fedsage.tables.parse_links import parse_links, parse_sparse

    names = [feature.name for feature in schema.of_kind("sparse")]
    if features and not names:
        remedy = "Name the features of this table under 'sparse', or remove the file."
        problems.add("no column", features.file, "is not in the schema", remedy)
    parsed = parse_nodes(nodes, schema, problems) if nodes else None
    edge_index = np.zeros((2, 0), dtype=np.int64)
    sparse: SparseMatrix | None = None
    remote: RemoteLinks | None = None
    values = NO_VALUES
    if parsed and parsed.ids:
        if links:
            edge_index, remote, values = parse_links(links, parsed.ids, schema, problems)
        if features and names:
            sparse = parse_sparse(features, parsed.ids, schema, problems)
    problems.raise_if_any()
    assert parsed is not None  # or there was a problem
    return Tables(
        schema=schema,
        ids=parsed.ids,
        numbers=frozen(parsed.numbers),
        codes=frozen(parsed.codes),
        sparse=csr_array((len(parsed.ids), len(names))) if sparse is None else sparse,
        y=frozen(parsed.y),
        links=frozen(edge_index),
        split=None if parsed.parts is None else split_of(parsed.parts),
        texts=parsed.texts,
        remote=remote,
        values=values,
    )


def split_of(parts: Int[Array, " V"]) -> Split:
    """The nodes of each part, from one number per node."""
    return Split(*(frozen(np.flatnonzero(parts == part)) for part in range(3)))


def restricted(split: Split, place: Int[Array, " V"]) -> Split:
    """The same split of some nodes; ``place`` is their new number, -1 if they are left out."""
    kept = [place[nodes][place[nodes] >= 0] for nodes in (split.train, split.val, split.test)]
    return Split(*(frozen(np.sort(nodes)) for nodes in kept))


def schema_path(folder: Path) -> Path:
    """Where an owner's schema is: in its folder, or next to it for all owners."""
    own = folder / SCHEMA
    beside = folder.resolve().parent / SCHEMA
    return beside if not own.exists() and beside.exists() else own
