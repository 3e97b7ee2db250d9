"""Copies of an owner's own nodes: the control that every generator has to beat."""

from __future__ import annotations

import numpy as np

from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated
from fedsage.mending.way import way_of_mending
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Mended
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import procedure
from fedsage.shapes import NodeIds


def copies(graph: Graph, count: int) -> Generated:
    """``count`` neighbors for every node, with the node's own features.

    They carry no information about missing neighbors.
    """
    return copies_of(graph, np.arange(graph.num_nodes), count)


def copies_of(graph: Graph, nodes: NodeIds, count: int) -> Generated:
    """The same for some nodes."""
    parents = np.repeat(nodes, count)
    return Generated(parents, graph.x[parents])


@procedure(phase="mending", owed=True)
def mend_by_copies(owner: DataOwner, ask: Ask) -> Mended:
    """Attach copies of the owner's own nodes: no generator at all."""
    return owner.attach(copies(owner.graph, owner.config.mend.leaves))


@way_of_mending("copy", renew=lambda new: copies_of(new.graph, new.nodes, new.mend.leaves))
def by_copies(exchange: Exchange) -> None:
    """A copy of every node as its own neighbor: nothing is exchanged."""
    exchange.all(mend_by_copies, Ask(0))
