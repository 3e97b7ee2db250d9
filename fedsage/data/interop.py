"""Graphs from what other libraries hold: PyG, NetworkX, pandas, Arrow; and back to PyG.

To read, none of them is imported: any object with the right attributes will do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from fedsage.errors import DataError, nearest, optional
from fedsage.graph.arrays import distinct, paired
from fedsage.graph.graph import Graph
from fedsage.graph.split import PARTS
from fedsage.readable import counted, natural
from fedsage.shapes import Array, SparseMatrix
from fedsage.tables.problems import Problems
from fedsage.tables.schema import Schema
from fedsage.tables.tables import graph_of, pooled_scale, tables_from

MASKS = tuple(f"{part}_mask" for part in PARTS)
KNOWN = {"x", "edge_index", "y", "num_nodes", *MASKS}


def from_pyg(data: Any, class_names: Sequence[str] = (), split: int | None = 0) -> Graph:
    """PyG's ``Data``, or anything with ``x``, ``edge_index`` and perhaps ``y``.

    ``train_mask``, ``val_mask`` and ``test_mask`` become the graph's split, which every run
    keeps. A warning names what a graph does not hold: weights and directions of links, links
    from a node to itself, all other attributes, and further splits.

    Args:
        data: ``x`` may be a sparse tensor. ``y`` holds one class per node, -1 where it is not
            known; without it all nodes are unlabelled.
        class_names: A name for each class; numbers if omitted.
        split: Which column of the masks to take where they hold several splits. None leaves
            the masks out, and runs draw splits by seed.
    """
    for name in ("x", "edge_index"):
        if getattr(data, name, None) is None:
            raise DataError(
                f"{type(data).__name__} has no {name}. Give a homogeneous graph with x and "
                "edge_index (PyG: Data; for HeteroData call to_homogeneous() first)."
            )
    x = as_array(data.x)
    labels = getattr(data, "y", None)
    y = np.full(x.shape[0], -1) if labels is None else np.asarray(as_array(labels))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    links = as_array(data.edge_index)
    graph = Graph.from_arrays(x, links, y, class_names, type(data).__name__)
    given = {name: getattr(data, name, None) for name in MASKS}
    held = {name: np.asarray(as_array(one)) for name, one in given.items() if one is not None}
    dropped = [*dropped_attributes(data), *dropped_links(graph, links)]
    if held and split is not None:
        most = max(mask.shape[1] if mask.ndim == 2 else 1 for mask in held.values())
        graph = graph.with_split(*(mask_of(held, name, split, most) for name in MASKS))
        dropped += [f"{counted(most - 1, 'more split')} (took split {split})"] * (most > 1)
    if dropped:
        warnings.warn(f"from_pyg left out: {', '.join(dropped)}.", stacklevel=3)
    return graph


def dropped_attributes(data: Any) -> Iterator[str]:
    """What the object holds besides what a graph keeps."""
    keys = getattr(data, "keys", None)
    found = (keys() if callable(keys) else keys) if keys is not None else vars(data)
    yield from sorted(str(key) for key in found if str(key) not in KNOWN)


def dropped_links(graph: Graph, links: Array | SparseMatrix) -> Iterator[str]:
    """Links to oneself, and directions where not every link goes both ways."""
    apart = links[0] != links[1]
    if loops := int((~apart).sum()):
        yield f"{counted(loops, 'link')} from a node to itself"
    ends = (np.asarray(end[apart], dtype=np.int64) for end in links)
    if len(distinct(paired(*ends))) < 2 * graph.num_links:
        yield "directions of links"


def mask_of(held: Mapping[str, Array], name: str, split: int, splits: int) -> Array:
    """The mask of that name in the chosen split; one without columns is that of all splits."""
    if not 0 <= split < splits:
        upto = f" to {splits - 1}" if splits > 1 else ""
        raise DataError(
            f"split is {split}, but the masks hold {counted(splits, 'split')}. Take 0{upto}, "
            "or None to leave the masks out."
        )
    if name not in held:
        return np.empty(0, dtype=np.int64)
    mask = held[name]
    return (mask[:, split] if mask.ndim == 2 else mask).astype(np.bool_)


def to_pyg(graph: Graph, dense: bool = True) -> Any:
    """PyG's ``Data``: ``x``, ``edge_index`` with every link in both directions, ``y``.

    A split of the graph's own becomes ``train_mask``, ``val_mask`` and ``test_mask``.

    Args:
        graph: The whole graph, or an owner's subgraph.
        dense: Whether sparse features become a dense table, which every layer of PyG takes;
            else a sparse tensor.
    """
    pyg = optional("torch_geometric.data", "to_pyg", "fedsage[data]")
    import torch  # a graph needs none of it

    if not issparse(graph.x):
        x = torch.tensor(graph.x)
    elif dense:
        x = torch.from_numpy(graph.x.toarray())
    else:
        entries = graph.x.tocoo()
        where = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
        x = torch.sparse_coo_tensor(
            where, torch.tensor(entries.data), graph.x.shape, check_invariants=True
        )
    source = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    links = torch.from_numpy(np.stack([source, graph.indices.astype(np.int64)]))
    data = pyg.Data(x=x, edge_index=links, y=torch.tensor(graph.y))
    for part, name in zip(PARTS, MASKS, strict=True) if graph.split else ():
        mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        mask[torch.tensor(getattr(graph.split, part))] = True
        data[name] = mask
    return data


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
        edges: The links: ``source`` and ``target``, ids of nodes; perhaps ``weight``, ``time``.
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
    known = schema or guess_from(node_cells, sparse, label, link_cells).schema
    tables = tables_from(node_cells, link_cells, sparse, known, problems)
    return graph_of(tables, pooled_scale([tables]))
