"""Which owner gets which node: by Louvain, METIS, at random or with skewed labels, by seed.

Louvain's communities are igraph's, on large graphs after a compiled first pass.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array

from fedsage.errors import ConfigError, nearest
from fedsage.graph.arrays import chunks, firsts, paired, parted
from fedsage.graph.graph import Graph
from fedsage.kernels.door import first_pass
from fedsage.readable import counted
from fedsage.rng import generator
from fedsage.shapes import Array, EdgeIndex, NodeIds, SparseMatrix

MIN_NODES = 5  # an owner needs a training, a validation and a test node: 60-20-20 of five
ROOM = 1.03  # Louvain: no owner grows beyond this times the mean
LARGE = 20_000  # nodes; below this, igraph makes all passes
SETTLED = 1000  # the first pass ends when fewer than one node in this many moves


def assign(graph: Graph, num_owners: int, how: str, seed: int) -> NodeIds:
    """The owner of every node."""
    name, _, parameter = how.partition(":")
    if name not in (*WAYS, "label"):
        raise ConfigError(f"Unknown partition '{how}'.{nearest(name, (*WAYS, 'label'))}")
    if not 1 <= num_owners <= graph.num_nodes // MIN_NODES:
        raise ConfigError(
            f"A graph of {counted(graph.num_nodes, 'node')} cannot be cut for {num_owners} "
            f"owners: each needs at least {MIN_NODES} nodes. Ask for 1 to "
            f"{graph.num_nodes // MIN_NODES} owners."
        )
    if name != "label":
        if parameter:
            raise ConfigError(
                f"Partition '{name}' takes no parameter, but got '{parameter}'. Leave it out."
            )
        return topped_up(WAYS[name](graph, num_owners, seed), num_owners)
    return label_skew(graph, num_owners, seed, checked_concentration(parameter or "0.5"))


def topped_up(owner: NodeIds, num_owners: int) -> NodeIds:
    """The same owners, except that those below ``MIN_NODES`` get nodes of the largest one."""
    owner = owner.copy()
    for i in np.flatnonzero(np.bincount(owner, minlength=num_owners) < MIN_NODES):
        while (lacking := MIN_NODES - int((owner == i).sum())) > 0:
            largest = int(np.bincount(owner, minlength=num_owners).argmax())
            spare = np.flatnonzero(owner == largest)[MIN_NODES:]
            owner[spare[-lacking:]] = i
    return owner


def louvain(graph: Graph, num_owners: int, seed: int) -> NodeIds:
    """Louvain communities, packed into owners of similar size.

    Note:
        The paper only says "clusters of similar sizes". We take communities from the largest
        down and give each to the owner it has the most links with, weighted by the room left
        there. A community that fits nowhere is cut by Louvain again.
    """
    adjacency = graph.adjacency
    capacity = int(np.ceil(ROOM * graph.num_nodes / num_owners))
    owner = np.full(graph.num_nodes, -1, dtype=np.int32)
    size = np.zeros(num_owners, dtype=np.int64)
    draws = generator(seed, "louvain")
    heap: list[tuple[int, int, NodeIds]] = []

    def push(parts: list[NodeIds]) -> None:
        for part in parts:
            heapq.heappush(heap, (-len(part), int(part[0]), part))

    push(communities(adjacency, np.arange(graph.num_nodes), draws))
    while heap:
        _, _, nodes = heapq.heappop(heap)
        room = capacity - size
        fits = room >= len(nodes)
        if not fits.any():
            push(communities(adjacency, nodes, draws))
            continue
        linked = linked_owners(graph, nodes, owner, num_owners)
        score = np.where(fits, (linked + 1e-3) * room / capacity, -1.0)
        best = int(score.argmax())
        owner[nodes] = best
        size[best] += len(nodes)
    return owner


def linked_owners(
    graph: Graph, nodes: NodeIds, owner: NodeIds, num_owners: int
) -> Float[Array, " M"]:
    """How many links ``nodes`` have with each owner's nodes so far."""
    links = np.zeros(num_owners + 1)
    for some in chunks(len(nodes), graph.mean_degree):
        near, _ = graph.neighbors_of(nodes[some])
        links += np.bincount(owner[near] + 1, minlength=num_owners + 1)
    return links[1:]  # 0 stands for nodes with no owner yet


def metis(graph: Graph, num_owners: int, seed: int) -> NodeIds:
    """METIS: balanced parts with few links between them."""
    if sys.platform == "win32":
        raise ConfigError("Partition 'metis' is not available on Windows. Use 'louvain'.")
    import pymetis  # no wheel for Windows

    options = pymetis.Options(seed=int(generator(seed, "metis").integers(2**31)))
    adjacency = pymetis.CSRAdjacency(graph.indptr, graph.indices)
    _, owner = pymetis.part_graph(num_owners, adjacency=adjacency, options=options)
    return np.asarray(owner).astype(np.int64)


def uniform(graph: Graph, num_owners: int, seed: int) -> NodeIds:
    """Every node to a random owner; sizes differ by at most one."""
    return generator(seed, "random").permutation(np.arange(graph.num_nodes) % num_owners)


def label_skew(graph: Graph, num_owners: int, seed: int, concentration: float) -> NodeIds:
    """Each class is spread over the owners by a draw from a Dirichlet distribution."""
    draws = generator(seed, "label")
    for _ in range(100):
        owner = np.empty(graph.num_nodes, dtype=np.int64)
        for c in range(-1, graph.num_classes):
            nodes = draws.permutation(np.flatnonzero(graph.y == c))
            share = draws.dirichlet(np.full(num_owners, concentration)).cumsum()[:-1]
            for i, part in enumerate(np.split(nodes, (share * len(nodes)).astype(int))):
                owner[part] = i
        if np.bincount(owner, minlength=num_owners).min() >= MIN_NODES:
            return owner
    raise ConfigError(
        f"Partition 'label:{concentration:g}' left an owner with fewer than {MIN_NODES} nodes "
        f"in 100 draws for {num_owners} owners. Ask for fewer owners or a larger "
        f"concentration, e.g. 'label:{concentration * 4:g}'."
    )


def checked_concentration(text: str) -> float:
    """The Dirichlet concentration that follows ``label:``."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(
            f"Partition 'label:{text}': the concentration must be a number above 0, "
            "e.g. 'label:0.5'."
        )
    return value


WAYS: dict[str, Callable[[Graph, int, int], NodeIds]] = {
    "louvain": louvain,
    "metis": metis,
    "random": uniform,
}


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
