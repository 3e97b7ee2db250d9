"""Queries: what the classifier says of nodes, on full neighborhoods or on sampled ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import Hop, full_mean, sample_hops
from fedsage.models.graphsage import GraphSage, feature_rows
from fedsage.models.parameters import Inputs, Logits
from fedsage.models.sparse import sparse_product
from fedsage.models.training import Training
from fedsage.shapes import NodeIds, NodeLabels

BATCH_ROWS = 16384  # nodes computed at a time


def chunks(num_rows: int, size: int = BATCH_ROWS) -> Iterator[slice]:
    """All rows, ``size`` at a time."""
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


@torch.no_grad()
def infer_full(model: GraphSage, graph: Graph) -> Logits:
    """Logits of every node from all its neighbors: layer by layer, nodes in batches."""
    mean = full_mean(graph)
    h: Inputs | None = None
    for k, layer in enumerate(model.sage_layers):
        own = [
            feature_rows(graph.x, part, model.device) if h is None else h[part]
            for part in chunks(graph.num_nodes)
        ]
        messages = torch.cat([layer.messages(rows) for rows in own])
        h = torch.cat(
            [
                model.activate(layer.combine(rows, sparse_product(mean[part], messages)), k)
                for rows, part in zip(own, chunks(graph.num_nodes), strict=True)
            ]
        )
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
        model(graph.x, sample_hops(graph, nodes[part], fanouts, generator))
        for part in chunks(len(nodes), 1024)
    ]
    return torch.cat(parts) if parts else torch.empty(0, model.shape.num_classes)


@torch.no_grad()
def infer_hops(model: GraphSage, graph: Graph, hops: Sequence[Hop]) -> Logits:
    """Logits of the nodes that these neighborhoods are of."""
    logits: Logits = model(graph.x, hops)
    return logits


def query(
    model: GraphSage,
    graph: Graph,
    nodes: NodeIds,
    training: Training,
    generator: np.random.Generator,
) -> Logits:
    """Logits of ``nodes`` on ``graph``."""
    if training.inference == "full":
        return infer_full(model, graph)[torch.tensor(nodes)]
    return infer_sampled(model, graph, nodes, training.fanouts, generator)


def predicted_labels(
    model: GraphSage,
    graph: Graph,
    nodes: NodeIds,
    training: Training,
    generator: np.random.Generator,
) -> NodeLabels:
    """The most likely class of each of ``nodes``."""
    return np.asarray(query(model, graph, nodes, training, generator).argmax(dim=1).cpu())
