"""Neighbors drawn by class: what the links between training nodes say about missing ones."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fedsage.graph.attach import Generated
from fedsage.graph.graph import Graph
from fedsage.shapes import Array, NodeIds


def class_links(graph: Graph, train: NodeIds) -> Float[Array, "d_y d_y"]:
    """How many links lead from a training node of class c to one of class c', for all c, c'.

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
    generator: np.random.Generator,
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
    draw = generator.random(len(parents)) * weight[:, -1]
    drawn = (weight <= draw[:, None]).sum(axis=1).clip(max=graph.num_classes - 1)
    within = (generator.random(len(parents)) * available[drawn]).astype(np.int64)
    possible = weight[:, -1] > 0
    rows = order[(first[drawn] + within)[possible]]
    return Generated(parents[possible], graph.x[rows])
