"""Hide some nodes of G_i and remember what was hidden, as NeighGen's exercise (Sec. 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsage.graph.graph import Graph
from fedsage.shapes import NodeFeatures, NodeIds, SparseMatrix


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
