"""An owner's tables as arrays, the statistics that scale them, and the graph they make.

Numbers are scaled by their mean and standard deviation over all owners. These come from sums
over owners: counts and totals first, then squares around the agreed mean. No row leaves an
owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int
from scipy.sparse import csr_array, hstack

from fedsage.errors import DataError
from fedsage.graph.arrays import frozen
from fedsage.graph.graph import Graph
from fedsage.graph.split import Split
from fedsage.shapes import Array, EdgeIndex, NodeIds, SparseMatrix
from fedsage.tables.digits import exact_sum
from fedsage.tables.problems import Problems
from fedsage.tables.schema import SCHEMA, Feature, Schema, read_schema

if TYPE_CHECKING:
    from fedsage.tables.cells import Cells

CONSTANT = 1e-13  # a deviation this small relative to the mean is rounding


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """One owner's tables, checked, before scaling and one-hot encoding."""

    schema: Schema
    ids: tuple[str, ...]
    numbers: Float64[Array, "V numbers"]  # in the schema's order; NaN where a cell is empty
    codes: Int[Array, "V categories"]  # which category, in the schema's order
    sparse: SparseMatrix  # V × the number of sparse features
    y: Int[Array, " V"]  # -1 where the class is not known
    links: EdgeIndex
    split: Split | None

    @property
    def num_nodes(self) -> int:
        """|V|."""
        return len(self.ids)

    def induced(self, nodes: NodeIds, split: Split | None = None) -> Tables:
        """The tables of ``nodes`` only, in the given order, with the links among them.

        Each node keeps its part of the split unless another ``split`` of them is given.
        """
        place = np.full(self.num_nodes, -1)
        place[nodes] = np.arange(len(nodes))
        links = place[self.links]
        return Tables(
            schema=self.schema,
            ids=tuple(self.ids[v] for v in nodes.tolist()),
            numbers=self.numbers[nodes],
            codes=self.codes[nodes],
            sparse=self.sparse[nodes],
            y=self.y[nodes],
            links=links[:, (links >= 0).all(axis=0)],
            split=split or (None if self.split is None else restricted(self.split, place)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Mean and deviation of every column of numbers, agreed among the owners."""

    mean: Float64[Array, " numbers"]
    std: Float64[Array, " numbers"]


def column_sums(
    tables: Tables,
) -> tuple[Float64[Array, " numbers"], Float64[Array, " numbers"]]:
    """The number of filled cells in each column of numbers, and their sum."""
    filled = ~np.isnan(tables.numbers)
    return filled.sum(axis=0).astype(np.float64), np.nansum(tables.numbers, axis=0)


def column_squares(
    tables: Tables, mean: Float64[Array, " numbers"]
) -> Float64[Array, " numbers"]:
    """The sum of squared distances from ``mean`` in each column of numbers."""
    return np.nansum(np.square(tables.numbers - mean), axis=0)


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
    """The graph of some tables: numbers scaled, categories one-hot, then sparse features."""
    schema = tables.schema
    numbers = iter(range(tables.numbers.shape[1]))
    codes = iter(range(tables.codes.shape[1]))
    blocks: list[Array | SparseMatrix] = [
        scaled(tables, scale, feature, next(numbers))
        if feature.kind == "number"
        else one_hot(tables.codes[:, next(codes)], feature.width, schema.is_sparse)
        for feature in schema.columns
    ]
    if not schema.is_sparse:
        x = np.concatenate(blocks, axis=1, dtype=np.float32)
    else:
        sparse = [csr_array(block, dtype=np.float32) for block in (*blocks, tables.sparse)]
        x = hstack(sparse, format="csr") if blocks else sparse[0]
    return Graph.from_arrays(x, tables.links, tables.y, schema.class_names, name="tables")


def scaled(tables: Tables, scale: Scale, feature: Feature, k: int) -> Float64[Array, "V 1"]:
    """One column of numbers, scaled as its feature says; an empty cell becomes the mean."""
    column = tables.numbers[:, k]
    filled = np.where(np.isnan(column), scale.mean[k], column)
    if feature.scaling == "standard":
        filled = (filled - scale.mean[k]) / scale.std[k]
    return filled[:, None]


def one_hot(codes: Int[Array, " V"], width: int, sparse: bool) -> Array | SparseMatrix:
    """One column per category, with a one where the node has it."""
    rows = csr_array(
        (np.ones(len(codes), dtype=np.float32), codes, np.arange(len(codes) + 1)),
        shape=(len(codes), width),
    )
    return rows if sparse else rows.toarray()


def read_tables(folder: Path | str, schema: Schema | None = None) -> Tables:
    """Read and check one owner's folder; all its problems are reported at once.

    Args:
        folder: Holds ``nodes.csv``, ``edges.csv`` (or ``.parquet``), and ``features.csv``
            if the schema has sparse features.
        schema: By default ``schema.toml`` in the folder or, if it has none, next to it.
    """
    from fedsage.tables.cells import find_table, read_cells

    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder. Give the folder that holds nodes.csv.")
    schema = schema or read_schema(schema_path(folder))
    problems = Problems(str(folder))
    paths = [
        find_table(folder, "nodes", problems),
        find_table(folder, "edges", problems),
        find_table(folder, "features", problems, needed=bool(schema.of_kind("sparse"))),
    ]
    nodes, links, features = (read_cells(p, problems) if p else None for p in paths)
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
    if parsed and parsed.ids:
        edge_index = parse_links(links, parsed.ids, problems) if links else edge_index
        if features and names:
            sparse = parse_sparse(features, parsed.ids, names, problems)
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
