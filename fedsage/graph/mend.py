"""Impair and mend (Sec. 4.1): hide some nodes of G_i as an exercise, and attach generated ones.

A generated neighbor is a node with features and no label, linked to one real node.
Real nodes keep their numbers, so that the split of G_i indexes G'_i as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, issparse, vstack

from fedsage.graph.arrays import frozen, symmetric
from fedsage.graph.graph import Graph
from fedsage.shapes import Array, FeatureRows, NodeFeatures, NodeIds, SparseMatrix


@dataclass(frozen=True, slots=True, eq=False)
class Impaired:
    """Ḡ_i, and what was hidden from it. Node v of Ḡ_i is node ``kept[v]`` of G_i."""

    graph: Graph  # Ḡ_i
    kept: NodeIds  # V̄_i
    hidden: NodeIds  # V_i^h
    x_hidden: NodeFeatures  # X_i^h
    missing: SparseMatrix  # row v: which of the hidden nodes are neighbors of v on G_i

    @property
    def num_missing(self) -> NodeIds:
        """n_v of every kept node."""
        return np.diff(self.missing.indptr)


def num_hidden(num_nodes: int, hide_ratio: float) -> int:
    """|V_i^h|."""
    return min(max(round(hide_ratio * num_nodes), 1), num_nodes - 1)


def impair(graph: Graph, hide_ratio: float, generator: np.random.Generator) -> Impaired:
    r"""Sec. 4.1, :math:`\bar G_i`: hold out a share of the nodes and all their links.

    At least one node is hidden and at least one is kept.
    """
    count = num_hidden(graph.num_nodes, hide_ratio)
    is_hidden = np.zeros(graph.num_nodes, dtype=bool)
    is_hidden[generator.permutation(graph.num_nodes)[:count]] = True
    kept, hidden = np.flatnonzero(~is_hidden), np.flatnonzero(is_hidden)
    missing = graph.adjacency[kept][:, hidden].tocsr()
    return Impaired(graph.induced(kept), kept, hidden, graph.x[hidden], missing)


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """Neighbors to attach: the real node that each hangs on, its features, what it counts."""

    parents: NodeIds
    x: NodeFeatures
    weights: Float[Array, " parents"] | None = None  # as much as the parent's links, if None

    @classmethod
    def of(cls, parents: NodeIds, rows: FeatureRows, like: Graph) -> Generated:
        """Rows of features as ``like`` has them: sparse where those are."""
        sparse = issparse(like.x)
        x = csr_array(rows, dtype=np.float32) if sparse else np.asarray(rows, dtype=np.float32)
        return cls(np.asarray(parents), x)


def mend(graph: Graph, generated: Generated) -> Graph:
    """G'_i (Sec. 4.1): ``graph`` with the generated neighbors, linked in both directions."""
    count = len(generated.parents)
    new = graph.num_nodes + np.arange(count)
    links = np.concatenate([graph.links, np.stack([generated.parents, new])], axis=1)
    indptr, indices = symmetric(links, graph.num_nodes + count)
    weights = generated.weights
    weights = usual_weights(graph)[generated.parents] if weights is None else weights
    values = graph.link_values.followed_by(weights, np.full(count, np.nan))
    both = [graph.x, generated.x]
    return Graph(
        x=vstack(both).tocsr() if issparse(graph.x) else np.concatenate(both),
        indptr=frozen(indptr),
        indices=frozen(indices),
        y=frozen(np.concatenate([graph.y, np.full(count, -1)])),
        class_names=graph.class_names,
        values=values.spread(links, indptr, indices),
    )


def usual_weights(graph: Graph) -> Float[Array, " V"]:
    """The mean weight of every node's links: a generated neighbor counts like the others."""
    if graph.weights is None:
        return np.ones(graph.num_nodes, np.float32)
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    total = np.bincount(rows, weights=graph.weights, minlength=graph.num_nodes)
    mean = total / np.maximum(graph.degrees, 1)
    return np.where(graph.degrees > 0, mean, 1.0).astype(np.float32)
