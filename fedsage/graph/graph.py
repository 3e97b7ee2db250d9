"""Graph = {V, E, X, Y}: immutable, links in both directions as CSR, features sparse or dense.

What counts as a neighbor is decided here: links are undirected, self-loops and duplicate
links are dropped. Nothing here reads files or draws random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array, issparse

from fedsage.graph.check import (
    checked_features,
    checked_labels,
    checked_links,
    checked_size,
)
from fedsage.shapes import Array, EdgeIndex, NodeFeatures, NodeIds, NodeLabels, SparseMatrix

AT_ONCE = 2**17  # numbers: a cache holds this many, and what is computed from them


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A graph with node features and labels (Sec. 3.1): G = {V, E, X} and Y.

    ``indices[indptr[v]:indptr[v + 1]]`` are the neighbors of node ``v``, as int32 to save
    memory; each link is listed twice, once from each end. Build a graph with
    :meth:`from_arrays`, which checks it.
    """

    x: NodeFeatures
    indptr: Int[Array, " pointers"]
    indices: Int[Array, " twice_E"]
    y: NodeLabels
    class_names: tuple[str, ...]

    @classmethod
    def from_arrays(
        cls,
        x: Array | SparseMatrix,
        edge_index: Array,
        y: Array,
        class_names: Sequence[str] = (),
        name: str = "graph",
    ) -> Graph:
        """Check the arrays and build the graph they describe.

        Args:
            x: Features of every node, a scipy sparse matrix or a dense array.
            edge_index: Links as pairs of node indices; direction and duplicates are ignored.
            y: The class of every node, -1 where it is not known.
            class_names: A name for each class; numbers if omitted.
            name: What to call the graph in an error message.
        """
        num_nodes = checked_size(x, name)
        labels, names = checked_labels(y, class_names, num_nodes, name)
        indptr, indices = symmetric(checked_links(edge_index, num_nodes, name), num_nodes)
        return cls(
            x=checked_features(x, name),
            indptr=frozen(indptr),
            indices=frozen(indices),
            y=frozen(labels),
            class_names=names,
        )

    @classmethod
    def from_pyg(cls, data: Any, class_names: Sequence[str] = ()) -> Graph:
        """From PyG's ``Data``: see :func:`fedsage.data.interop.from_pyg`."""
        return interop().from_pyg(data, class_names)

    @classmethod
    def from_networkx(
        cls,
        network: Any,
        features: str | Sequence[str] = "x",
        label: str = "label",
        class_names: Sequence[str] = (),
    ) -> Graph:
        """From a NetworkX graph: see :func:`fedsage.data.interop.from_networkx`."""
        return interop().from_networkx(network, features, label, class_names)

    @classmethod
    def from_tables(
        cls,
        nodes: Any,
        edges: Any,
        features: Any = None,
        schema: Any = None,
        label: str | None = None,
    ) -> Graph:
        """From pandas, Arrow or dicts: see :func:`fedsage.data.interop.from_tables`."""
        return interop().from_tables(nodes, edges, features, schema, label)

    @property
    def num_nodes(self) -> int:
        """|V|."""
        return len(self.y)

    @property
    def num_links(self) -> int:
        """|E|, each link once."""
        return len(self.indices) // 2

    @property
    def num_features(self) -> int:
        """d_x."""
        return int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        """d_y."""
        return len(self.class_names)

    @property
    def degrees(self) -> NodeIds:
        """How many neighbors each node has."""
        return np.diff(self.indptr)

    @property
    def links(self) -> EdgeIndex:
        """E: every link once, smaller node first."""
        source = np.repeat(np.arange(self.num_nodes), self.degrees)
        once = source < self.indices
        return np.stack([source[once], self.indices[once]])

    @property
    def adjacency(self) -> SparseMatrix:
        """A: one where there is a link."""
        ones = np.ones(len(self.indices), dtype=np.float32)
        short = self.indptr.astype(np.int32 if len(ones) < 2**31 else np.int64)
        return csr_array((ones, self.indices, short), shape=(self.num_nodes,) * 2)

    def neighbors(self, v: int | np.integer) -> NodeIds:
        """N_G(v)."""
        return self.indices[self.indptr[v] : self.indptr[v + 1]]

    @property
    def mean_degree(self) -> float:
        """How many neighbors a node has on average."""
        return len(self.indices) / self.num_nodes

    def neighbors_of(self, nodes: NodeIds) -> tuple[NodeIds, NodeIds]:
        """The neighbors of each of ``nodes`` in turn, and how many each has."""
        start = self.indptr[nodes]
        count = self.indptr[nodes + 1] - start
        return self.indices[positions(start, count)], count

    def induced(self, nodes: NodeIds) -> Graph:
        """The subgraph on ``nodes``, renumbered in the given order."""
        return self.cut([nodes])[0]

    def cut(self, parts: Sequence[NodeIds]) -> tuple[Graph, ...]:
        """The subgraph on each of ``parts``, renumbered in the given order.

        Takes one pass over nodes and links, however many parts there are.
        """
        place = np.full(self.num_nodes, -1, dtype=np.int32)  # in the part in turn
        found = []
        for nodes in parts:
            place[nodes] = np.arange(len(nodes))
            indptr, indices = self.links_within(nodes, place)
            place[nodes] = -1
            found.append(
                Graph(
                    x=self.x[nodes],
                    indptr=frozen(indptr),
                    indices=frozen(indices),
                    y=frozen(self.y[nodes]),
                    class_names=self.class_names,
                )
            )
        return tuple(found)

    def links_within(
        self, nodes: NodeIds, place: NodeIds
    ) -> tuple[Int[Array, " pointers"], Int[Array, " twice_E"]]:
        """``indptr`` and ``indices`` of the subgraph on ``nodes``.

        ``place`` is where each of them stands there, and -1 for all other nodes.
        """
        kept, counts = [np.empty(0, dtype=np.int32)], [np.zeros(1, dtype=np.int64)]
        for some in chunks(len(nodes), self.mean_degree):
            near, degrees = self.neighbors_of(nodes[some])
            there = place[near]
            inside = there >= 0
            kept.append(there[inside])
            so_far = np.append(0, np.cumsum(inside))[np.append(0, np.cumsum(degrees))]
            counts.append(np.diff(so_far))
        indptr, indices = np.cumsum(np.concatenate(counts)), np.concatenate(kept)
        if (nodes[1:] < nodes[:-1]).any():  # else neighbors come in order as they are
            keys = paired(np.repeat(np.arange(len(nodes)), np.diff(indptr)), indices)
            indices = np.sort(keys).astype(np.int32)
        return indptr, indices


def interop() -> Any:
    """The module that reads other libraries' graphs: a layer above, so imported by name."""
    return import_module("fedsage.data.interop")


def frozen(array: Array) -> Array:
    """The same array, no longer writable."""
    array.setflags(write=False)
    return array


def symmetric(
    links: EdgeIndex, num_nodes: int
) -> tuple[Int[Array, " pointers"], Int[Array, " twice_E"]]:
    """``indptr`` and ``indices`` of a graph: links both ways, sorted, no loops or duplicates.

    Sorting pairs goes through memory in order; writing each into its row would jump around,
    which takes several times as long once the graph is larger than the cache.
    """
    links = links if (apart := links[0] != links[1]).all() else links[:, apart]
    keys = np.empty((2, links.shape[1]), dtype=np.int64)
    paired(links[0], links[1], out=keys[0])
    paired(links[1], links[0], out=keys[1])
    keys = distinct(keys.ravel())
    firsts_of_nodes = np.arange(num_nodes + 1, dtype=np.int64) << 32
    return np.searchsorted(keys, firsts_of_nodes), keys.astype(np.int32)


def paired(
    first: Int[Array, " n"], second: Int[Array, " n"], out: Int[Array, " n"] | None = None
) -> Int[Array, " n"]:
    """Pairs of numbers below 2³¹, each packed into one number; they sort as the pairs do."""
    keys = np.left_shift(first, 32, out=out, dtype=np.int64)
    keys |= second
    return keys


def parted(keys: Int[Array, " n"]) -> Int[Array, "2 n"]:
    """The pairs that :func:`paired` packed, as int32."""
    pairs = np.empty((2, len(keys)), dtype=np.int32)
    np.right_shift(keys, 32, out=pairs[0], casting="unsafe")
    pairs[1] = keys  # its lower half
    return pairs


def distinct(keys: Int[Array, " n"]) -> Int[Array, " m"]:
    """The distinct keys in order (sorts in place); faster than ``np.unique`` for many keys."""
    keys.sort()
    return keys if (new := firsts(keys)).all() else keys[new]


def firsts(keys: Int[Array, " n"]) -> Bool[Array, " n"]:
    """Which of the sorted keys differ from the one before."""
    new = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return new


def chunks(total: int, each: float = 1.0) -> Iterator[slice]:
    """Slices over ``total`` items of ``each`` numbers, few enough for a cache to hold."""
    size = int(AT_ONCE / max(each, 1.0)) + 1
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def positions(start: Int[Array, " rows"], count: Int[Array, " rows"]) -> Int[Array, " total"]:
    """``count[k]`` numbers from ``start[k]`` on, for every k: positions of rows in a CSR."""
    return np.repeat(start - np.cumsum(count) + count, count) + np.arange(count.sum())


def dense_columns(x: NodeFeatures, nodes: NodeIds) -> Float[Array, "d_x columns"]:
    """The features of some nodes as a dense matrix, one column per node.

    SciPy takes several times as long for this.
    """
    if not issparse(x):
        return np.ascontiguousarray(x[nodes].T)
    start, count = x.indptr[nodes], x.indptr[nodes + 1] - x.indptr[nodes]
    at = positions(start, count)
    columns = np.zeros((x.shape[1], len(nodes)), np.float32)
    columns[x.indices[at], np.repeat(np.arange(len(nodes)), count)] = x.data[at]
    return columns


def squared_norms(x: NodeFeatures) -> Float[Array, " V"]:
    """‖x_u‖² of every node."""
    if issparse(x):
        squared = csr_array((x.data**2, x.indices, x.indptr), shape=x.shape)
        return np.asarray(squared.sum(axis=1), dtype=np.float32).ravel()
    squares: Float[Array, " V"] = np.einsum("vd,vd->v", x, x)
    return squares
