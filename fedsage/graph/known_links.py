"""Links to nodes of other owners that an owner does know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    owner ``at[k]``, or to ``UNKNOWN``. It weighs ``weights[k]``, if links have weights.
    """

    ids: Sequence[str]
    here: NodeIds
    there: Sequence[str]
    at: NodeIds
    weights: Float[Array, " links"] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RemoteLinks:
    """Links to nodes that an owner does not hold, as its table of edges names them."""

    here: NodeIds  # the own end of each
    there: tuple[str, ...]  # the id of the other end
    owner: tuple[str, ...]  # whose node that is; empty where it is not known
    weights: Float[Array, " links"] | None = None  # what each counts, if the table says so

    def known(self, ids: Sequence[str], names: Sequence[str]) -> KnownLinks:
        """The same among owners of those names; without names, nobody's node is known."""
        place = {name: i for i, name in enumerate(names)}
        other = NOBODY if names else UNKNOWN
        at = [place.get(one, other) if one else UNKNOWN for one in self.owner]
        whose = np.array(at, dtype=np.int64)
        return KnownLinks(ids, self.here, self.there, whose, self.weights)


NO_REMOTE = RemoteLinks(np.empty(0, np.int64), (), ())


def known_links(
    graph: Graph, nodes: Sequence[NodeIds], share: float, seed: int
) -> list[KnownLinks]:
    """For a simulation: both ends know a ``share`` of the links between owners, ΔE.

    Nodes are called by their number in G. Which links are known depends on the seed alone.
    """
    owner = np.empty(graph.num_nodes, dtype=np.int64)
    local = np.empty(graph.num_nodes, dtype=np.int64)
    for i, ids in enumerate(nodes):
        owner[ids], local[ids] = i, np.arange(len(ids))
    cut = np.flatnonzero(owner[graph.links[0]] != owner[graph.links[1]])
    cut = cut[generator(seed, "known links").random(len(cut)) < share]
    known, weights = graph.links[:, cut], graph.link_values.weights
    here, there = np.concatenate([known, known[::-1]], axis=1)
    both = None if weights is None else np.tile(weights[cut], 2)
    names = np.arange(graph.num_nodes).astype(str)
    return [
        KnownLinks(
            names[ids].tolist(),
            local[here[mine]],
            names[there[mine]].tolist(),
            owner[there[mine]],
            None if both is None else both[mine],
        )
        for i, ids in enumerate(nodes)
        for mine in [owner[here] == i]
    ]
