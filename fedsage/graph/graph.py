"""Graph = {V, E, X, Y}: immutable, links in both directions as CSR, features sparse or dense.

What counts as a neighbor is decided here: links are undirected, self-loops and duplicate
links are dropped. Nothing here reads files or draws random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, issparse

from fedsage.errors import DataError
from fedsage.graph import arrays
from fedsage.graph.arrays import chunks, frozen, paired, positions, symmetric
from fedsage.graph.link_values import NO_VALUES, LinkValues, checked_values
from fedsage.graph.split import Split, checked_split
from fedsage.readable import counted, html_table
from fedsage.shapes import Array, EdgeIndex, NodeFeatures, NodeIds, NodeLabels, SparseMatrix


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Graph:
    """A graph with node features and labels (Sec. 3.1): G = {V, E, X} and Y.

    ``indices[indptr[v]:indptr[v + 1]]`` are the neighbors of node ``v``, as int32 to save
    memory; each link is listed twice, once from each end. Build a graph with
    :meth:`from_arrays`, which checks it. ``split`` is there if nodes came with a split of
    their own (:meth:`with_split`, or the masks of PyG); otherwise each run draws one by seed.
    """

    x: NodeFeatures
    indptr: Int[Array, " pointers"]
    indices: Int[Array, " twice_E"]
    y: NodeLabels
    class_names: tuple[str, ...]
    split: Split | None = None
    values: LinkValues = NO_VALUES  # weights and times, one for each of ``indices``

    @classmethod
    def from_arrays(
        cls,
        x: Array | SparseMatrix,
        edge_index: Array,
        y: Array,
        class_names: Sequence[str] = (),
        name: str = "graph",
        weights: Array | None = None,
        times: Array | None = None,
    ) -> Graph:
        """Check the arrays and build the graph they describe.

        Args:
            x: Features of every node, a scipy sparse matrix or a dense array.
            edge_index: Links as pairs of node indices; direction and duplicates are ignored.
            y: The class of every node, -1 where it is not known.
            class_names: A name for each class; numbers if omitted.
            name: What to call the graph in an error message.
            weights: How much each link counts in means over neighbors: positive numbers.
            times: When each link came to be, in days since 2000; NaN where not known.
        """
        num_nodes = arrays.checked_size(x, name)
        labels, names = arrays.checked_labels(y, class_names, num_nodes, name)
        links = arrays.checked_links(edge_index, num_nodes, name)
        values = checked_values(weights, times, links.shape[1], name)
        indptr, indices = symmetric(links, num_nodes)
        return cls(
            x=arrays.checked_features(x, name),
            indptr=frozen(indptr),
            indices=frozen(indices),
            y=frozen(labels),
            class_names=names,
            values=values.spread(links, indptr, indices),
        )

    @classmethod
    def from_pyg(
        cls, data: Any, class_names: Sequence[str] = (), split: int | None = 0
    ) -> Graph:
        """From PyG's ``Data``: see :func:`fedsage.data.interop.from_pyg`."""
        return interop().from_pyg(data, class_names, split)

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

    def to_pyg(self, dense: bool = True) -> Any:
        """As PyG's ``Data``: see :func:`fedsage.data.interop.to_pyg`."""
        return interop().to_pyg(self, dense)

    def with_split(self, train: Any, val: Any, test: Any) -> Graph:
        """The same graph with a split of your own, which every run on it keeps.

        Args:
            train: A mask over all nodes, or node numbers; so are the others.
            val: Validation nodes, by which rounds are chosen; may be empty.
            test: Test nodes.
        """
        return replace(self, split=checked_split(self.y, train, val, test))

    def __repr__(self) -> str:
        """The graph in one line."""
        known = f", {self.split!r}" if self.split else ""
        return f"Graph({', '.join(self.sizes)}{known})"

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        counts = np.bincount(self.y[self.y >= 0], minlength=self.num_classes)
        rows = [
            [name, f"{count:,}"] for name, count in zip(self.class_names, counts, strict=True)
        ]
        return html_table(repr(self), ["class", "nodes"], rows)

    @property
    def sizes(self) -> list[str]:
        """The numbers of nodes, links, features and classes, in words."""
        features = f"{counted(self.num_features, 'feature')}{' (sparse)' * issparse(self.x)}"
        classes = f"{self.num_classes} class{'' if self.num_classes == 1 else 'es'}"
        return [
            counted(self.num_nodes, "node"), counted(self.num_links, "link"), features, classes
        ]  # fmt: skip

    @property
    def num_nodes(self) -> int:
        """The number of nodes, |V|."""
        return len(self.y)

    @property
    def num_links(self) -> int:
        """The number of links, |E|; each link counts once."""
        return len(self.indices) // 2

    @property
    def num_features(self) -> int:
        """The number of features, d_x."""
        return int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        """The number of classes, d_y."""
        return len(self.class_names)

    @property
    def degrees(self) -> NodeIds:
        """The number of neighbors of each node."""
        return np.diff(self.indptr)

    @property
    def links(self) -> EdgeIndex:
        """Every link once, as two rows of node numbers; the smaller one comes first."""
        source = np.repeat(np.arange(self.num_nodes), self.degrees)
        once = source < self.indices
        return np.stack([source[once], self.indices[once]])

    @property
    def link_values(self) -> LinkValues:
        """Weights and times of ``links``."""
        source = np.repeat(np.arange(self.num_nodes), self.degrees)
        return self.values.taken(source < self.indices)

    @property
    def weights(self) -> Float[Array, " twice_E"] | None:
        """How much each of ``indices`` counts; None if all count the same."""
        return self.values.weights

    def as_of(self, day: float) -> Graph:
        """The same nodes, without links that came after ``day``, in days since 2000.

        Links whose time is not known stay.
        """
        times = self.values.times
        if times is None:
            raise DataError(
                "The graph does not know when its links came to be. Name the column of times "
                'in the schema, time = "since", and train again.'
            )
        kept = ~(times > day)
        so_far = np.append(0, np.cumsum(kept))
        return replace(
            self,
            indptr=frozen(so_far[self.indptr]),
            indices=frozen(self.indices[kept]),
            values=self.values.taken(kept),
        )

    @property
    def adjacency(self) -> SparseMatrix:
        """The adjacency matrix A: one where there is a link."""
        ones = np.ones(len(self.indices), dtype=np.float32)
        short = self.indptr.astype(np.int32 if len(ones) < 2**31 else np.int64)
        return csr_array((ones, self.indices, short), shape=(self.num_nodes,) * 2)

    def neighbors(self, v: int | np.integer) -> NodeIds:
        """The neighbors of node ``v``, N_G(v)."""
        return self.indices[self.indptr[v] : self.indptr[v + 1]]

    @property
    def mean_degree(self) -> float:
        """The mean number of neighbors of a node."""
        return len(self.indices) / self.num_nodes

    def neighbors_of(self, nodes: NodeIds) -> tuple[NodeIds, NodeIds]:
        """The neighbors of each of ``nodes`` in turn, and how many each has."""
        start = self.indptr[nodes]
        count = self.indptr[nodes + 1] - start
        return self.indices[positions(start, count)], count

    def same_nodes(self, other: Graph) -> bool:
        """Whether the other graph has the same features and links; labels may differ."""
        if self.x.shape != other.x.shape or issparse(self.x) != issparse(other.x):
            return False
        pairs = [(self.indptr, other.indptr), (self.indices, other.indices)]
        if not all(np.array_equal(*pair) for pair in pairs):
            return False
        alike = not (self.x != other.x).nnz if issparse(self.x) else (self.x == other.x).all()
        return bool(alike) and self.values.same(other.values)

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
            split = self.split.within(place) if self.split else None
            values = self.values and self.link_values.within(place[self.links], indptr, indices)
            place[nodes] = -1
            part = replace(
                self,
                x=self.x[nodes],
                indptr=frozen(indptr),
                indices=frozen(indices),
                y=frozen(self.y[nodes]),
                split=split,
                values=values,
            )
            found.append(part)
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
