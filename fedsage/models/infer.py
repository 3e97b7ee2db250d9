"""Queries: the classifier's logits for nodes, on full or sampled neighborhoods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedsage.config import Inference
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import sample_hops
from fedsage.models.backbone import Backbone, feature_rows
from fedsage.models.parameters import Logits
from fedsage.shapes import NodeIds

BATCH = 1024  # nodes whose sampled neighborhoods are computed at a time


def query(
    model: Backbone,
    graph: Graph,
    nodes: NodeIds,
    inference: Inference,
    fanouts: Sequence[int],
    generator: np.random.Generator,
) -> Logits:
    """Logits of ``nodes`` on ``graph``."""
    if inference == "full":
        return model.on_graph(graph, nodes)
    return infer_sampled(model, graph, nodes, fanouts, generator)


def query_each(
    model: Backbone,
    graph: Graph,
    parts: Sequence[NodeIds],
    inference: Inference,
    fanouts: Sequence[int],
    generators: Sequence[np.random.Generator],
) -> list[Logits]:
    """Logits of several sets of nodes; full neighborhoods are processed once for all.

    Sampled ones are drawn for each set from its own stream.
    """
    if inference == "full":
        logits = model.on_graph(graph, np.concatenate(parts))
        return list(torch.split(logits, [len(nodes) for nodes in parts]))
    return [
        infer_sampled(model, graph, nodes, fanouts, generator)
        for nodes, generator in zip(parts, generators, strict=True)
    ]


@torch.no_grad()
def infer_sampled(
    model: Backbone,
    graph: Graph,
    nodes: NodeIds,
    fanouts: Sequence[int],
    generator: np.random.Generator,
) -> Logits:
    """Logits of ``nodes`` from sampled neighbors, as in training."""
    parts = []
    for start in range(0, len(nodes), BATCH):
        hops = sample_hops(graph, nodes[start : start + BATCH], fanouts, generator)
        rows = feature_rows(graph.x, hops[0].inputs, model.device)
        parts.append(model.on_hops(rows, hops))
    return torch.cat(parts) if parts else torch.empty(0, model.shape.num_classes)
