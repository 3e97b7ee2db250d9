"""Queries: what the classifier says of nodes, on full neighborhoods or on sampled ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import full_mean, sample_hops
from fedsage.models.graphsage import GraphSage, feature_rows
from fedsage.models.parameters import Inputs, Logits
from fedsage.models.sparse import product, sparse_product
from fedsage.models.training import Training
from fedsage.shapes import NodeIds, NodeLabels

BATCH = 1024  # nodes whose sampled neighborhoods are computed at a time


@torch.no_grad()
def infer_full(model: GraphSage, graph: Graph, nodes: NodeIds | None = None) -> Logits:
    """Logits of ``nodes``, or of every node, from all neighbors: layer by layer.

    Each layer is two products for all nodes at once, weighted before they are averaged: that
    moves as many numbers a link as the layer puts out. The last layer is for ``nodes`` alone.
    """
    mean = full_mean(graph)
    h: Inputs = feature_rows(graph.x, slice(None), model.device)
    for k, layer in enumerate(model.sage_layers):
        messages = product(h, layer.phi_neighbors)
        if nodes is not None and k + 1 == len(model.sage_layers):
            h, mean = h[nodes.copy()], mean[nodes]  # torch takes no array that is read-only
        h = product(h, layer.phi_own).add_(sparse_product(mean, messages)).add_(layer.bias)
        h = model.activate(h, k)
    logits: Logits = model.head(h)
    return logits


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
