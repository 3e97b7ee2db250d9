"""Queries: what the classifier says of nodes, on full neighborhoods or on sampled ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import full_mean, sample_hops
from fedsage.models.graphsage import GraphSage, feature_rows
from fedsage.models.parameters import Hidden, Inputs, Logits
from fedsage.models.sparse import product, sparse_product
from fedsage.models.training import Training
from fedsage.shapes import NodeFeatures, NodeIds, NodeLabels

BATCH = 1024  # nodes whose sampled neighborhoods are computed at a time
ROWS = 8192  # of a large table computed at a time


@torch.no_grad()
def infer_full(model: GraphSage, graph: Graph, nodes: NodeIds | None = None) -> Logits:
    """Logits of ``nodes``, or of every node, from all neighbors: layer by layer.

    Rows are weighted before they are averaged: that moves as many numbers a link as the layer
    puts out. The last layer is for ``nodes`` alone. Of what is as long as the graph there are
    two tables at a time; memory that is new costs more than the sums that go into it.
    """
    mean = full_mean(graph)
    h: Inputs | NodeFeatures = graph.x
    for k, layer in enumerate(model.sage_layers):
        messages = weighted(h, layer.phi_neighbors)
        if nodes is not None and k + 1 == len(model.sage_layers):
            h, mean = h[nodes.copy()], mean[nodes]  # torch takes no array that is read-only
        near = sparse_product(mean, messages)
        for part in slices(len(near)):
            own = product(some_rows(h, part, model.device), layer.phi_own)
            near[part] = model.activate(own.add_(near[part]).add_(layer.bias), k)
        h = near
    logits: Logits = model.head(h)
    return logits


def slices(num_rows: int) -> Iterator[slice]:
    """All rows, some at a time."""
    for start in range(0, num_rows, ROWS):
        yield slice(start, start + ROWS)


def weighted(h: Inputs | NodeFeatures, weight: Hidden) -> Hidden:
    """``h @ weight``, some rows at a time."""
    table = torch.empty(h.shape[0], weight.shape[1], device=weight.device)
    for part in slices(len(table)):
        table[part] = product(some_rows(h, part, weight.device), weight)
    return table


def some_rows(h: Inputs | NodeFeatures, part: slice, device: torch.device) -> Inputs:
    """Those rows of hidden values, or of features."""
    return h[part] if isinstance(h, torch.Tensor) else feature_rows(h, part, device)


@torch.no_grad()
def infer_sampled(
    model: GraphSage,
    graph: Graph,
    nodes: NodeIds,
    fanouts: Sequence[int],
    generator: np.random.Generator,
) -> Logits:
    """Logits of ``nodes`` from sampled neighbors, as in training."""
    parts = [
        model(graph.x, sample_hops(graph, nodes[start : start + BATCH], fanouts, generator))
        for start in range(0, len(nodes), BATCH)
    ]
    return torch.cat(parts) if parts else torch.empty(0, model.shape.num_classes)


def query(
    model: GraphSage,
    graph: Graph,
    nodes: NodeIds,
    training: Training,
    generator: np.random.Generator,
) -> Logits:
    """Logits of ``nodes`` on ``graph``."""
    if training.inference == "full":
        return infer_full(model, graph, nodes)
    return infer_sampled(model, graph, nodes, training.fanouts, generator)


def query_each(
    model: GraphSage,
    graph: Graph,
    parts: Sequence[NodeIds],
    training: Training,
    generators: Sequence[np.random.Generator],
) -> list[Logits]:
    """Logits of several sets of nodes; full neighborhoods are gone through once for all.

    Sampled ones are drawn for each set from a stream of its own.
    """
    if training.inference == "full":
        logits = infer_full(model, graph, np.concatenate(parts))
        return list(torch.split(logits, [len(nodes) for nodes in parts]))
    return [
        query(model, graph, nodes, training, generator)
        for nodes, generator in zip(parts, generators, strict=True)
    ]


def predicted_labels(
    model: GraphSage,
    graph: Graph,
    nodes: NodeIds,
    training: Training,
    generator: np.random.Generator,
) -> NodeLabels:
    """The most likely class of each of ``nodes``."""
    return np.asarray(query(model, graph, nodes, training, generator).argmax(dim=1).cpu())
