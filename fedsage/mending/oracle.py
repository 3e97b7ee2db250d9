"""The true missing neighbors, as leaves: the ceiling for any generator. For simulations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated
from fedsage.mending.way import way_of_mending
from fedsage.protocol.exchange import Exchange
from fedsage.shapes import NodeIds


def true_neighbors(whole: Graph, nodes: Sequence[NodeIds]) -> list[Generated]:
    """For each owner, the neighbors that it really misses.

    Each end of a link in ΔE gets a new neighbor with the other end's features.
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


@way_of_mending("oracle", truth=true_neighbors)
def by_the_truth(exchange: Exchange) -> None:
    """The true missing neighbors, taken from the whole graph: only in simulations."""
