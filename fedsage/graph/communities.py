"""Louvain communities: igraph's, after a compiled first pass where a graph is large."""

from __future__ import annotations

import random

import igraph
import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order

from fedsage.graph.graph import frozen
from fedsage.graph.moving import moved
from fedsage.shapes import Array, EdgeIndex, NodeIds, SparseMatrix

LARGE = 20_000  # nodes; below, igraph makes all passes
SETTLED = 1000  # the first pass ends when fewer than one node in so many moves


def communities(
    adjacency: SparseMatrix, nodes: NodeIds, draws: np.random.Generator
) -> list[NodeIds]:
    """Louvain communities of the subgraph on ``nodes``; two halves where there is only one."""
    whole = len(nodes) == adjacency.shape[0]
    inside = adjacency if whole else adjacency[nodes][:, nodes].tocsr()
    membership = louvain_membership(inside, draws)
    if membership.max() == 0:
        order = breadth_first_order(inside, 0, directed=False, return_predecessors=False)
        membership[order[len(order) // 2 :]] = 1
    order = np.argsort(membership, kind="stable")
    return np.split(nodes[order], np.cumsum(np.bincount(membership))[:-1])


def louvain_membership(adjacency: SparseMatrix, draws: np.random.Generator) -> NodeIds:
    """The community of every node.

    Note:
        Louvain's first pass goes over all links again and again, in no order that a cache
        could know, and igraph looks up four numbers for each: on a million nodes it takes
        most of the time. So there it is ours. What comes out is a graph of communities, and
        igraph makes the other passes on that. Both do as Blondel et al. (2008) say.
    """
    links = once(adjacency)
    if adjacency.shape[0] < LARGE:
        return by_igraph(links, None, adjacency.shape[0], draws)
    pointers = adjacency.indptr.astype(np.int64, copy=False)
    targets = adjacency.indices.astype(np.int32, copy=False)
    order = draws.permutation(len(pointers) - 1)
    first = moved(
        frozen(pointers.view()), frozen(targets.view()), order, len(order) // SETTLED + 1
    )
    first = np.unique(first, return_inverse=True)[1]
    coarse = contracted(links, first)
    ends = np.stack([coarse.row, coarse.col])
    return by_igraph(ends, coarse.data, coarse.shape[0], draws)[first]


def once(adjacency: SparseMatrix) -> EdgeIndex:
    """Every link once, smaller node first."""
    source = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))
    smaller = source < adjacency.indices
    return np.stack([source[smaller], adjacency.indices[smaller]])


def contracted(links: EdgeIndex, membership: NodeIds) -> coo_array:
    """How many links there are inside and between communities; smaller number first."""
    a, b = membership[links]
    size = int(membership.max()) + 1
    ends = np.minimum(a, b), np.maximum(a, b)
    return coo_array((np.ones(len(a)), ends), shape=(size, size)).tocsr().tocoo()


def by_igraph(
    links: EdgeIndex,
    weights: Float[Array, " E"] | None,
    num_nodes: int,
    draws: np.random.Generator,
) -> NodeIds:
    """The communities that igraph's Louvain finds."""
    # igraph reads pairs of Python's numbers three times as fast as an array.
    network = igraph.Graph(n=num_nodes, edges=zip(*links.tolist(), strict=True))
    igraph.set_random_number_generator(random.Random(int(draws.integers(2**31))))
    try:
        return np.array(network.community_multilevel(weights).membership)
    finally:
        igraph.set_random_number_generator(random)
