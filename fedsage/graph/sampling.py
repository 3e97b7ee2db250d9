"""Node batches V_i^t and K-hop neighborhoods, sampled or full, as sparse mean matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from fedsage.graph.graph import Graph
from fedsage.shapes import Array, NodeIds, SparseMatrix


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """What one GraphSage layer needs: who is computed, from whom, and how it is averaged.

    ``inputs`` are the distinct nodes whose :math:`h^{k-1}` is needed. The first of them, as
    many as ``mean`` has rows, are the targets. Row ``v`` of ``mean`` averages over the
    neighbors of target ``v`` (an empty row where there are none, so that its aggregate is
    zero). ``degrees`` count all neighbors of the inputs, drawn or not.
    """

    inputs: NodeIds
    mean: SparseMatrix
    degrees: NodeIds


def node_batches(
    nodes: NodeIds, batch_size: int, generator: np.random.Generator
) -> Iterator[NodeIds]:
    """Every node once, in random order, ``batch_size`` at a time."""
    order = generator.permutation(nodes)
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def sample_hops(
    graph: Graph, batch: NodeIds, fanouts: Sequence[int], generator: np.random.Generator
) -> list[Hop]:
    """The sampled neighborhood of ``batch``, distinct nodes: one :class:`Hop` a layer.

    The first layer comes first.

    Note:
        Neighbors are drawn with replacement, ``fanouts[k]`` for each node of layer ``k``:
        uniformly, or as often as their links weigh. A node that is reached twice is computed
        once.
    """
    hops = []
    targets = batch
    for fanout in reversed(fanouts):
        hop = sample_hop(graph, targets, fanout, generator)
        hops.append(hop)
        targets = hop.inputs
    return hops[::-1]


def sample_hop(
    graph: Graph, targets: NodeIds, fanout: int, generator: np.random.Generator
) -> Hop:
    """One draw of ``fanout`` neighbors for each target that has any."""
    start = graph.indptr[targets]
    degree = graph.indptr[targets + 1] - start
    linked = degree > 0
    draw = generator.random((int(linked.sum()), fanout))
    drawn = graph.indices[drawn_places(graph, start[linked, None], degree[linked, None], draw)]
    inputs, position = in_order_of_appearance(np.concatenate([targets, drawn.ravel()]))
    pointer = np.concatenate([[0], np.cumsum(linked * fanout)])
    weight = np.full(drawn.size, 1 / fanout, dtype=np.float32)
    shape = len(targets), len(inputs)
    mean = csr_array((weight, position[len(targets) :], pointer), shape=shape)
    return Hop(inputs, mean, graph.indptr[inputs + 1] - graph.indptr[inputs])


def drawn_places(
    graph: Graph,
    start: Int[Array, "rows 1"],
    degree: Int[Array, "rows 1"],
    draw: Float[Array, "rows fanout"],
) -> Int[Array, "rows fanout"]:
    """Where numbers from 0 to 1 fall in rows of neighbors, by their weights if there are any.

    The mean over neighbors that are drawn by weight is, on average, the weighted mean.
    """
    if graph.weights is None:
        return start + (draw * degree).astype(np.int64)
    ends = running_weights(graph)
    before, end = ends[start], ends[start + degree]
    found = np.searchsorted(ends, before + draw * (end - before), side="right") - 1
    return found.clip(start, start + degree - 1)


@lru_cache(maxsize=16)
def running_weights(graph: Graph) -> Float[Array, " ends"]:
    """The sum of all weights before each of ``indices``; the last is that of all."""
    assert graph.weights is not None
    return np.append(0.0, np.cumsum(graph.weights, dtype=np.float64))


def in_order_of_appearance(nodes: NodeIds) -> tuple[NodeIds, NodeIds]:
    """The distinct nodes, by first appearance, and where each of ``nodes`` stands there."""
    distinct, first, inverse = np.unique(nodes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[inverse]


def full_mean(graph: Graph) -> SparseMatrix:
    """The mean over all neighbors, for every node: each row of A divided by its sum.

    With weights it is their weighted mean.
    """
    if graph.weights is None:
        weight = np.repeat(1 / np.maximum(graph.degrees, 1), graph.degrees).astype(np.float32)
    else:
        weight = row_shares(graph)
    return csr_array((weight, graph.indices, graph.indptr), shape=(graph.num_nodes,) * 2)


def row_shares(graph: Graph) -> Float[Array, " twice_E"]:
    """The share of each neighbor in the weights of a node's links."""
    assert graph.weights is not None
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    total = np.bincount(rows, weights=graph.weights, minlength=graph.num_nodes)
    return (graph.weights / total[rows]).astype(np.float32)
