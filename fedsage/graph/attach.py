"""Attach generated neighbors: G_i → G'_i. Where they come from is another matter.

A generated neighbor is a node with features and no label, linked to one real node.
Real nodes keep their numbers, so that the split of G_i indexes G'_i as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse, vstack

from fedsage.graph.graph import Graph, frozen, symmetric
from fedsage.shapes import NodeFeatures, NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """Neighbors to attach: the real node that each hangs on, and its features."""

    parents: NodeIds
    x: NodeFeatures


def mend(graph: Graph, generated: Generated) -> Graph:
    """G'_i (Sec. 4.1): ``graph`` with the generated neighbors, linked in both directions."""
    count = len(generated.parents)
    new = graph.num_nodes + np.arange(count)
    links = np.concatenate([graph.links, np.stack([generated.parents, new])], axis=1)
    indptr, indices = symmetric(links, graph.num_nodes + count)
    both = [graph.x, generated.x]
    return Graph(
        x=vstack(both).tocsr() if issparse(graph.x) else np.concatenate(both),
        indptr=frozen(indptr),
        indices=frozen(indices),
        y=frozen(np.concatenate([graph.y, np.full(count, -1)])),
        class_names=graph.class_names,
    )


def copies(graph: Graph, count: int = 1) -> Generated:
    """``count`` neighbors for every node, with the node's own features.

    They carry no information about missing neighbors: the control that every generator has
    to beat.
    """
    parents = np.repeat(np.arange(graph.num_nodes), count)
    return Generated(parents, graph.x[parents])


def true_neighbors(whole: Graph, nodes: Sequence[NodeIds]) -> list[Generated]:
    """For each owner the neighbors that it really misses: the ceiling for any generator.

    Needs the whole graph, so it exists in simulations alone. Every end of a link in ΔE gets
    the other end's features, as a node of its own.
    """
    owner = np.empty(whole.num_nodes, dtype=np.int64)
    local = np.empty(whole.num_nodes, dtype=np.int64)
    for i, ids in enumerate(nodes):
        owner[ids] = i
        local[ids] = np.arange(len(ids))
    links = whole.links
    ends = np.concatenate([links, links[::-1]], axis=1)
    here, there = ends[:, owner[ends[0]] != owner[ends[1]]]
    order = np.argsort(owner[here], kind="stable")
    last = np.cumsum(np.bincount(owner[here], minlength=len(nodes)))
    parts = np.split(order, last[:-1])
    return [Generated(local[here[part]], whole.x[there[part]]) for part in parts]
