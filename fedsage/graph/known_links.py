"""Links to nodes of other owners that an owner does know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from fedsage.graph.graph import Graph
from fedsage.rng import generator
from fedsage.shapes import Array, NodeIds

UNKNOWN, NOBODY = -1, -2  # whose node it is: not known, or nobody's who takes part


@dataclass(frozen=True, slots=True, eq=False)
class KnownLinks:
    """What one owner knows about its links to other owners' nodes.

    ``ids`` are its own nodes, in order, by the names that others know them by. Link k leads
    from its node ``here[k]`` to the node that is called ``there[k]``, which belongs to the
    owner ``at[k]``, or to ``UNKNOWN``. It weighs ``weights[k]``, if links have weights. Owners
    that are named in the table and do not take part are in ``absent``, with their links.
    """

    ids: Sequence[str]
    here: NodeIds
    there: Sequence[str]
    at: NodeIds
    weights: Float[Array, " links"] | None = None
    shared: bool = False  # whether an id that others have, too, is the same node
    absent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class RemoteLinks:
    """Links to nodes that an owner does not hold, as its table of links names them."""

    here: NodeIds  # the own end of each
    there: tuple[str, ...]  # the id of the other end
    owner: tuple[str, ...]  # whose node that is; empty where it is not known
    weights: Float[Array, " links"] | None = None  # what each counts, if the table says so

    def known(
        self, ids: Sequence[str], names: Sequence[str], shared: bool = False
    ) -> KnownLinks:
        """The same among owners of those names; without names, nobody's node is known."""
        place = {name: i for i, name in enumerate(names)}
        other = NOBODY if names else UNKNOWN
        at = [place.get(one, other) if one else UNKNOWN for one in self.owner]
        whose = np.array(at, dtype=np.int64)
        absent = Counter(one for one in self.owner if names and one and one not in place)
        return KnownLinks(ids, self.here, self.there, whose, self.weights, shared, absent)


NO_REMOTE = RemoteLinks(np.empty(0, np.int64), (), ())


def known_links(
    graph: Graph,
    nodes: Sequence[NodeIds],
    share: float,
    seed: int,
    shared: Sequence[NodeIds] = (),
) -> list[KnownLinks]:
    """For a simulation: both ends know a ``share`` of the links between owners, ΔE.

    Nodes are called by their number in G. Which links are known depends on the seed alone.
    Owners may hold ``shared`` nodes of others, too.
    """
    owner = home_of(nodes, graph.num_nodes)
    cut = np.flatnonzero(owner[graph.links[0]] != owner[graph.links[1]])
    cut = cut[generator(seed, "known links").random(len(cut)) < share]
    known, weights = graph.links[:, cut], graph.link_values.weights
    here, there = np.concatenate([known, known[::-1]], axis=1)
    both = None if weights is None else np.tile(weights[cut], 2)
    names = np.arange(graph.num_nodes).astype(str)
    found = []
    for ids in with_shared(nodes, shared):
        local = np.full(graph.num_nodes, -1)
        local[ids] = np.arange(len(ids))
        mine = (local[here] >= 0) & (local[there] < 0)
        found.append(
            KnownLinks(
                names[ids].tolist(),
                local[here[mine]],
                names[there[mine]].tolist(),
                owner[there[mine]],
                None if both is None else both[mine],
                bool(shared),
            )
        )
    return found


def home_of(nodes: Sequence[NodeIds], count: int) -> NodeIds:
    """Which owner each of so many nodes belongs to."""
    owner = np.empty(count, dtype=np.int64)
    for i, ids in enumerate(nodes):
        owner[ids] = i
    return owner


def shared_nodes(nodes: Sequence[NodeIds], share: float, seed: int) -> list[NodeIds]:
    """For a simulation: nodes of others that each owner holds, too; a ``share`` of all nodes.

    Each of them is held by its owner and by one more.
    """
    count, owners = sum(len(ids) for ids in nodes), len(nodes)
    draws = generator(seed, "shared nodes")
    also = (home_of(nodes, count) + draws.integers(1, max(owners, 2), count)) % owners
    chosen = draws.random(count) < share
    return [np.flatnonzero(chosen & (also == i)) for i in range(owners)]


def with_shared(nodes: Sequence[NodeIds], shared: Sequence[NodeIds]) -> list[NodeIds]:
    """All nodes that each owner holds, in order."""
    if not shared:
        return list(nodes)
    return [np.union1d(own, more) for own, more in zip(nodes, shared, strict=True)]
