"""Tables → a folder of files that :func:`fedsage.tables.tables.read_tables` reads back."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
from scipy.sparse import csr_array, issparse

from fedsage.files import write_atomically
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import NO_REMOTE
from fedsage.graph.split import Split
from fedsage.shapes import Array
from fedsage.tables.feature import Feature, names_of
from fedsage.tables.kinds import kind_of
from fedsage.tables.parse_links import OWNER, WHEN
from fedsage.tables.problems import Problems
from fedsage.tables.schema import OF_LINKS, PARTS, SCHEMA, SPLIT, Schema
from fedsage.tables.schema_file import write_schema
from fedsage.tables.tables import Tables

Format: TypeAlias = Literal["csv", "parquet"]
Columns: TypeAlias = Mapping[str, Sequence[str] | Array]  # words, or numbers


def tables_of(graph: Graph, ids: Sequence[str], split: Split | None = None) -> Tables:
    """A graph as tables: dense features become columns x0, x1, …; sparse ones are numbered."""
    problems = Problems("graph")
    names_of(list(graph.class_names), "class names", problems)
    problems.raise_if_any()
    sparse = issparse(graph.x)
    names = [str(i) if sparse else f"x{i}" for i in range(graph.num_features)]
    features = [Feature(n, "sparse" if sparse else "number", scaling="none") for n in names]
    none = np.zeros((graph.num_nodes, 0))
    values = graph.link_values
    held = zip(OF_LINKS, values.both, strict=True)
    named: dict[str, Any] = {key: key for key, one in held if one is not None}
    return Tables(
        schema=Schema(tuple(features), graph.class_names, **named),
        ids=tuple(ids),
        numbers=none if sparse else graph.x.astype(np.float64),
        codes=none.astype(np.int64),
        sparse=graph.x if sparse else csr_array(none),
        y=graph.y,
        links=graph.links,
        split=split,
        values=values,
    )


def write_tables(tables: Tables, folder: Path, format: Format = "csv") -> None:
    """Write one owner's folder: schema, nodes, links, and features if any are sparse."""
    write_schema(tables.schema, folder / SCHEMA)
    ids = np.array(tables.ids, dtype=object)
    write_table(node_columns(tables), folder / f"nodes.{format}")
    write_table(link_columns(tables), folder / f"edges.{format}")
    if tables.sparse.shape[1]:
        names = np.array([f.name for f in tables.schema.of_kind("sparse")], dtype=object)
        entries = tables.sparse.tocoo()
        columns = {
            tables.schema.id: ids[entries.row],
            "feature": names[entries.col],
            "value": entries.data.astype(np.float64),
        }
        write_table(columns, folder / f"features.{format}")


def link_columns(tables: Tables) -> Columns:
    """The columns of the table of links; those to other owners come last."""
    ids, schema = np.array(tables.ids, dtype=object), tables.schema
    source, target = (ids[end] for end in tables.links)
    values = value_columns(tables)
    if tables.remote is None:
        return {schema.source: source, schema.target: target, **values}
    remote = tables.remote
    there = np.array(remote.there, dtype=object)
    whose = np.array(["" for _ in target] + list(remote.owner), dtype=object)
    return {
        schema.source: np.concatenate([source, ids[remote.here]]),
        schema.target: np.concatenate([target, there]),
        OWNER: whose,
        **values,
    }


def value_columns(tables: Tables) -> dict[str, Sequence[str] | Array]:
    """The columns of weights and times; those of links to other owners are not known."""
    remote = tables.remote or NO_REMOTE
    weights = np.ones(len(remote.here)) if remote.weights is None else remote.weights
    all_of_them = tables.values.followed_by(weights, np.full(len(weights), np.nan))
    columns: dict[str, Sequence[str] | Array] = {}
    if all_of_them.weights is not None:
        columns[tables.schema.weight] = all_of_them.weights.astype(np.float64)
    if all_of_them.times is not None:
        columns[tables.schema.time] = kind_of(WHEN).cells(all_of_them.times, WHEN)
    return columns


def node_columns(tables: Tables) -> Columns:
    """The columns of the table of nodes."""
    columns: dict[str, Sequence[str] | Array] = {tables.schema.id: tables.ids}
    columns[tables.schema.label] = words(tables.schema.class_names, tables.y)
    if tables.split is not None:
        parts = np.full(tables.num_nodes, -1)
        for part, nodes in enumerate((tables.split.train, tables.split.val, tables.split.test)):
            parts[nodes] = part
        columns[SPLIT] = words(PARTS, parts)
    for feature, values, _ in tables.held():
        columns[feature.name] = kind_of(feature).cells(values, feature)
    return columns


def words(names: Sequence[str], codes: Array) -> Array:
    """The name of each code; an empty text for -1."""
    return np.array([*names, ""], dtype=object)[codes]


def write_table(columns: Columns, path: Path) -> None:
    """Write one table, all or nothing."""
    write = write_parquet if path.suffix == ".parquet" else write_csv
    write_atomically(path, lambda file: write(columns, file))


def write_csv(columns: Columns, file: IO[bytes]) -> None:
    """A CSV file; numbers have enough digits to be read back unchanged."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows(zip(*(texts_of(column) for column in columns.values()), strict=True))
    text.flush()
    text.detach()


def texts_of(column: Sequence[str] | Array) -> Iterable[str]:
    """A column as text."""
    if isinstance(column, np.ndarray) and column.dtype == np.float64:
        return ("" if v != v else repr(v).removesuffix(".0") for v in column.tolist())
    return column


def write_parquet(columns: Columns, file: IO[bytes]) -> None:
    """A parquet file; empty numbers are nulls."""
    import pyarrow as pa
    import pyarrow.parquet

    arrays = {
        name: pa.array(column, pa.float64(), from_pandas=True)
        if isinstance(column, np.ndarray) and column.dtype == np.float64
        else pa.array(column, pa.string())
        for name, column in columns.items()
    }
    pyarrow.parquet.write_table(pa.table(arrays), file)
