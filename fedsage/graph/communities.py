"""Louvain communities by igraph, on large graphs after a compiled first pass."""

from __future__ import annotations

import random
import sys
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array

from fedsage.graph.arrays import chunks, firsts, paired, parted
from fedsage.kernels.door import first_pass
from fedsage.shapes import Array, EdgeIndex, NodeIds, SparseMatrix

LARGE = 20_000  # nodes; below this, igraph makes all passes
SETTLED = 1000  # the first pass ends when fewer than one node in this many moves


def communities(
    adjacency: SparseMatrix, nodes: NodeIds, draws: np.random.Generator
) -> list[NodeIds]:
    """Louvain communities of the subgraph on ``nodes``; two halves where there is only one."""
    whole = len(nodes) == adjacency.shape[0]
    inside = adjacency if whole else adjacency[nodes][:, nodes].tocsr()
    membership = louvain_membership(inside, draws)
    if membership.max() == 0:
        from scipy.sparse.csgraph import breadth_first_order  # loads all of linear algebra

        order = breadth_first_order(inside, 0, directed=False, return_predecessors=False)
        membership[order[len(order) // 2 :]] = 1
    order = np.argsort(membership, kind="stable")
    return np.split(nodes[order], np.cumsum(np.bincount(membership))[:-1])


def louvain_membership(adjacency: SparseMatrix, draws: np.random.Generator) -> NodeIds:
    """The community of every node.

    Note:
        Louvain's first pass visits all links again and again, in an order that no cache can
        predict, and igraph looks up four numbers for each: on a million nodes this takes
        most of the time. On large graphs we therefore make the first pass ourselves, and
        igraph makes the others on the graph of communities that results. Both follow Blondel
        et al. (2008).
    """
    num_nodes = adjacency.shape[0]
    if num_nodes < LARGE:
        return by_igraph(once(adjacency, slice(0, num_nodes)), None, num_nodes, draws)
    pointers = adjacency.indptr.astype(np.int64, copy=False)
    targets = adjacency.indices.astype(np.int32, copy=False)
    order = draws.permutation(num_nodes)
    first = renumbered(first_pass(pointers, targets, order, num_nodes // SETTLED + 1))
    coarse = contracted(adjacency, first)
    ends = np.stack([coarse.row, coarse.col])
    return by_igraph(ends, coarse.data, coarse.shape[0], draws)[first]


def renumbered(membership: NodeIds) -> NodeIds:
    """The same communities in the same order, numbered from 0 without gaps."""
    there = np.bincount(membership) > 0
    return (np.cumsum(there, dtype=np.int32) - 1)[membership]


def once(adjacency: SparseMatrix, some: slice) -> EdgeIndex:
    """Every link from ``some`` nodes to a node with a larger number, smaller node first."""
    pointers = adjacency.indptr[some.start : some.stop + 1]
    target = adjacency.indices[pointers[0] : pointers[-1]]
    nodes = np.arange(some.start, some.stop, dtype=target.dtype)
    source = np.repeat(nodes, np.diff(pointers))
    smaller = source < target
    return np.stack([source[smaller], target[smaller]])


def contracted(adjacency: SparseMatrix, membership: NodeIds) -> coo_array:
    """The number of links inside and between communities; smaller community first."""
    found = []
    for some in chunks(adjacency.shape[0], adjacency.nnz / adjacency.shape[0]):
        a, b = membership[once(adjacency, some)]
        found.append(paired(np.minimum(a, b), np.maximum(a, b)))
    keys = np.concatenate(found)
    keys.sort()
    first = np.flatnonzero(firsts(keys))
    links = np.diff(first, append=len(keys)).astype(np.float64)
    size = int(membership.max()) + 1
    return coo_array((links, tuple(parted(keys[first]))), shape=(size, size))


def by_igraph(
    links: EdgeIndex,
    weights: Float[Array, " E"] | None,
    num_nodes: int,
    draws: np.random.Generator,
) -> NodeIds:
    """The communities that igraph's Louvain finds."""
    igraph = igraph_core()
    # igraph reads pairs of Python numbers three times as fast as an array.
    network = igraph.GraphBase(n=num_nodes, edges=zip(*links.tolist(), strict=True))
    igraph.set_random_number_generator(random.Random(int(draws.integers(2**31))))
    try:
        return np.array(network.community_multilevel(weights))
    finally:
        igraph.set_random_number_generator(random)


@cache
def igraph_core() -> Any:
    """The compiled module of igraph, without the package around it.

    The package imports matplotlib where it is installed, which takes half a second of every
    run. Whoever imports igraph later gets the same compiled module.
    """
    name = "igraph._igraph"
    if name not in sys.modules:
        package = find_spec("igraph")
        assert package is not None, "igraph is among the dependencies"
        spec = PathFinder.find_spec(name, package.submodule_search_locations)
        assert spec is not None and spec.loader is not None, "igraph has a compiled module"
        core = module_from_spec(spec)
        spec.loader.exec_module(core)
        sys.modules[name] = core
    return sys.modules[name]
