"""Neighbors drawn by class: what links between training nodes say about missing ones."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated
from fedsage.mending.way import way_of_mending
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Ints, Mended, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Summed, procedure
from fedsage.rng import generator
from fedsage.shapes import Array, NodeIds


@message
class ClassLinks:
    """D_i → S, then summed S → every D_i: how many links there are from class to class.

    Only between training nodes: d_y × d_y numbers, of which S needs only the sum.
    """

    count: Int[Tensor, "d_y d_y"]


def class_links(graph: Graph, train: NodeIds) -> Float[Array, "d_y d_y"]:
    """How many links go from a training node of class c to one of class c', for all c, c'.

    The labels of other nodes are not used. Every link counts once in each direction.
    """
    classes = np.zeros((graph.num_nodes, graph.num_classes), dtype=np.float32)
    classes[train, graph.y[train]] = 1
    links: Float[Array, "d_y d_y"] = classes.T @ (graph.adjacency @ classes)
    return links.astype(np.float32)


def class_neighbors(
    graph: Graph,
    train: NodeIds,
    links: Float[Array, "d_y d_y"],
    count: int,
    stream: np.random.Generator,
) -> Generated:
    """``count`` neighbors for every training node, drawn from the classes its class links to.

    The class c' of a neighbor is drawn from row y_v of ``links``; its features are those of
    one of the owner's own training nodes of class c'. Classes for which the owner has no
    training node, or to which nobody has a link, are left out.

    Note:
        Only training nodes get neighbors, because the class of other nodes is not known.
    """
    parents = np.repeat(train, count)
    order = train[np.argsort(graph.y[train], kind="stable")]
    available = np.bincount(graph.y[train], minlength=graph.num_classes)
    first = np.cumsum(available) - available
    weight = np.cumsum(links * (available > 0), axis=1)[graph.y[parents]]
    draw = stream.random(len(parents)) * weight[:, -1]
    drawn = (weight <= draw[:, None]).sum(axis=1).clip(max=graph.num_classes - 1)
    within = (stream.random(len(parents)) * available[drawn]).astype(np.int64)
    possible = weight[:, -1] > 0
    rows = order[(first[drawn] + within)[possible]]
    return Generated(parents[possible], graph.x[rows])


@procedure(
    phase="mending",
    uses=Summed,
    shapes=lambda plan: {"count": Ints((plan.d_y, plan.d_y))},
    leaves="Before training, once: how many links there are from class to class between your "
    "training nodes.",
)
def count_class_links(owner: DataOwner, ask: Ask) -> ClassLinks:
    """Links from class to class between training nodes."""
    found = class_links(owner.graph, owner.split.train)
    return ClassLinks(torch.from_numpy(found.astype(np.int32)))


@procedure(phase="mending", owed=True)
def mend_by_classes(owner: DataOwner, links: ClassLinks) -> Mended:
    """Attach the owner's own training rows, of classes that all owners' links make likely."""
    stream = generator(owner.seed, "mend by classes", owner.id)
    train, leaves = owner.split.train, owner.config.mend.leaves
    count = links.count.float().numpy()
    return owner.attach(class_neighbors(owner.graph, train, count, leaves, stream))


@way_of_mending("classes")
def by_classes(exchange: Exchange) -> None:
    """Neighbors drawn by the class-to-class links of all owners: one sum is exchanged."""
    exchange.all(mend_by_classes, exchange.sum(count_class_links, Ask(0)))
