"""New nodes with what surrounds them in a large graph, without building it anew."""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse, vstack

from fedsage.graph.arrays import frozen, positions, symmetric
from fedsage.graph.graph import Graph
from fedsage.graph.link_values import NO_VALUES, LinkValues
from fedsage.shapes import Array, EdgeIndex, LinksInto, NodeFeatures, NodeIds, NodeLabels


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
    into: LinksInto,
    reach: int | None,
    weights: Array | None = None,
) -> Graph:
    """New nodes first, then those nodes of ``graph`` that are at most ``reach`` hops away.

    Args:
        graph: The nodes that were there before.
        x: Features of the new nodes.
        y: Their classes, -1 where not known.
        among: Links among them.
        into: Links from new nodes (first row) to nodes of ``graph`` (second row).
        reach: How far to go; None takes the whole graph.
        weights: Of links among new nodes, then of those into the graph; 1 if it has weights
            and none are given.
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
    values = NO_VALUES
    if graph.weights is not None:
        at = positions(graph.indptr[near], graph.indptr[near + 1] - graph.indptr[near])
        old = graph.weights[at[place[graph.indices[at]] >= 0]][source < indices]
        new = np.ones(among.shape[1] + into.shape[1]) if weights is None else weights
        each = np.concatenate([new, old]).astype(np.float32)
        values = LinkValues(each).spread(links, pointers, ends)
    both = [x, graph.x[near]]
    return Graph(
        x=vstack(both).tocsr() if issparse(graph.x) else np.concatenate(both),
        indptr=frozen(pointers),
        indices=frozen(ends),
        y=frozen(np.concatenate([y, graph.y[near]])),
        class_names=graph.class_names,
        values=values,
    )
