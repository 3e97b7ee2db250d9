"""New nodes with what surrounds them in a large graph, without building it anew."""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse, vstack

from fedsage.graph.arrays import frozen, symmetric
from fedsage.graph.graph import Graph
from fedsage.shapes import EdgeIndex, NodeFeatures, NodeIds, NodeLabels


def ball(graph: Graph, start: NodeIds, hops: int | None) -> NodeIds:
    """The nodes at most ``hops`` links away from ``start``, in order; all if it is None."""
    if hops is None:
        return np.arange(graph.num_nodes)
    inside = np.zeros(graph.num_nodes, dtype=bool)
    inside[start] = True
    rim = np.unique(start)
    for _ in range(hops):
        near = np.unique(graph.neighbors_of(rim)[0])
        rim = near[~inside[near]]
        inside[rim] = True
    return np.flatnonzero(inside)


def with_surroundings(
    graph: Graph,
    x: NodeFeatures,
    y: NodeLabels,
    among: EdgeIndex,
    into: EdgeIndex,
    reach: int | None,
) -> Graph:
    """New nodes first, then those nodes of ``graph`` that are at most ``reach`` hops away.

    Args:
        graph: The nodes that were there before.
        x: Features of the new nodes.
        y: Their classes, -1 where not known.
        among: Links among them.
        into: Links from new nodes (first row) to nodes of ``graph`` (second row).
        reach: How far to go; None takes the whole graph.
    """
    near = ball(graph, into[1], None if reach is None else max(reach - 1, 0))
    place = np.full(graph.num_nodes, -1, dtype=np.int32)
    place[near] = np.arange(len(near))
    indptr, indices = graph.links_within(near, place)
    source = np.repeat(np.arange(len(near)), np.diff(indptr))
    held = np.stack([source, indices])[:, source < indices] + len(y)
    reached = np.stack([into[0], place[into[1]] + len(y)])
    links = np.concatenate([among, reached, held], axis=1).astype(np.int64)
    pointers, ends = symmetric(links, len(y) + len(near))
    both = [x, graph.x[near]]
    return Graph(
        x=vstack(both).tocsr() if issparse(graph.x) else np.concatenate(both),
        indptr=frozen(pointers),
        indices=frozen(ends),
        y=frozen(np.concatenate([y, graph.y[near]])),
        class_names=graph.class_names,
    )
