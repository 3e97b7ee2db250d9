"""Which owner gets which node: by Louvain, METIS, at random or with skewed labels, by seed."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from fedsage.errors import ConfigError, nearest
from fedsage.graph.arrays import chunks
from fedsage.graph.communities import communities
from fedsage.graph.graph import Graph
from fedsage.readable import counted
from fedsage.rng import generator
from fedsage.shapes import Array, NodeIds

MIN_NODES = 5  # an owner needs a training, a validation and a test node: 60-20-20 of five
ROOM = 1.03  # Louvain: no owner grows beyond this times the mean


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
