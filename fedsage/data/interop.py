"""Graphs from what other libraries hold: PyG, NetworkX, pandas, Arrow.

None of them is imported: any object with the right attributes will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from fedsage.errors import DataError, nearest
from fedsage.graph.graph import Graph
from fedsage.readable import natural
from fedsage.shapes import Array, SparseMatrix
from fedsage.tables.problems import Problems
from fedsage.tables.schema import Schema
from fedsage.tables.tables import graph_of, pooled_scale, tables_from


def from_pyg(data: Any, class_names: Sequence[str] = ()) -> Graph:
    """PyG's ``Data``, or anything with ``x``, ``edge_index`` and perhaps ``y``.

    Args:
        data: ``x`` may be a sparse tensor. ``y`` holds one class per node, -1 where it is not
            known; without it all nodes are unlabelled. Masks are ignored.
        class_names: A name for each class; numbers if omitted.
    """
    for name in ("x", "edge_index"):
        if getattr(data, name, None) is None:
            raise DataError(
                f"{type(data).__name__} has no {name}. Give a homogeneous graph with x and "
                "edge_index (PyG: Data; for HeteroData call to_homogeneous() first)."
            )
    x = as_array(data.x)
    given = getattr(data, "y", None)
    y = np.full(x.shape[0], -1) if given is None else np.asarray(as_array(given))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    return Graph.from_arrays(x, as_array(data.edge_index), y, class_names, type(data).__name__)


def as_array(value: Any) -> Array | SparseMatrix:
    """A tensor, sparse tensor, SciPy matrix or anything like an array, as an array."""
    if issparse(value):
        return csr_array(value)
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()
    if str(tensor.layout) == "torch.strided":
        return np.asarray(tensor.numpy())
    entries = tensor.to_sparse_coo().coalesce()
    row, column = entries.indices().numpy()
    return csr_array((entries.values().numpy(), (row, column)), shape=tuple(tensor.shape))


def from_networkx(
    network: Any,
    features: str | Sequence[str] = "x",
    label: str = "label",
    class_names: Sequence[str] = (),
) -> Graph:
    """A NetworkX graph of any kind; its nodes are numbered in their own order.

    Args:
        network: Has ``nodes(data=True)`` and ``edges()``. Directions and duplicates are
            ignored.
        features: The attribute that holds a node's vector, or the names of several
            attributes that hold one number each.
        label: The attribute that holds the class; nodes without it are unlabelled.
        class_names: The classes in order; if omitted, all labels that occur, sorted.
    """
    nodes = list(network.nodes(data=True))
    if not nodes:
        raise DataError("The network has no nodes. Add at least one.")
    index = {node: i for i, (node, _) in enumerate(nodes)}
    names = [features] if isinstance(features, str) else list(features)
    for node, attributes in nodes:
        if lacking := [name for name in names if name not in attributes]:
            raise DataError(
                f"Node {node!r} has no attribute '{lacking[0]}'."
                f"{nearest(lacking[0], map(str, attributes))} Give every node its features."
            )
    try:
        rows = [np.hstack([held[name] for name in names]) for _, held in nodes]
        x = np.stack(rows).astype(np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"The attributes {', '.join(names)} do not make one row of numbers per node "
            f"({error}). Give every node equally many numbers."
        ) from None
    found = [held.get(label) for _, held in nodes]
    classes = list(class_names) or sorted({str(c) for c in found if c is not None}, key=natural)
    unknown = [c for c in found if c is not None and str(c) not in classes]
    if unknown:
        raise DataError(f"Unknown class '{unknown[0]}'.{nearest(str(unknown[0]), classes)}")
    place = {name: i for i, name in enumerate(classes)}
    y = np.array([-1 if c is None else place[str(c)] for c in found])
    pairs = [(index[link[0]], index[link[1]]) for link in network.edges()]
    links = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Graph.from_arrays(x, links, y, classes, name="network")


def from_tables(
    nodes: Any,
    edges: Any,
    features: Any = None,
    schema: Schema | None = None,
    label: str | None = None,
) -> Graph:
    """Tables in memory (pandas, Arrow or dicts of columns) as in ``docs/own-data.md``.

    Args:
        nodes: ``id``, features, and optionally the class and ``split``.
        edges: The links: ``source`` and ``target``, ids of nodes.
        features: Sparse features, if any: ``id``, ``feature``, ``value``.
        schema: What the columns are; guessed from the tables if omitted.
        label: The column with the class if the schema is guessed; ``label`` if omitted.

    Numbers are scaled by these tables alone.
    """
    from fedsage.tables.cells import cells_in_memory
    from fedsage.tables.guess import guess_from

    problems = Problems("tables")
    node_cells = cells_in_memory(nodes, "nodes", problems)
    link_cells = cells_in_memory(edges, "edges", problems)
    sparse = None if features is None else cells_in_memory(features, "features", problems)
    problems.raise_if_any()
    assert node_cells is not None  # or there was a problem
    known = schema or guess_from(node_cells, sparse, label).schema
    tables = tables_from(node_cells, link_cells, sparse, known, problems)
    return graph_of(tables, pooled_scale([tables]))
