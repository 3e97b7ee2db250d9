"""Queries: what the classifier says of nodes, on full neighborhoods or on sampled ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import full_mean, sample_hops
from fedsage.models.compiled_sage import fused_logits
from fedsage.models.graphsage import GraphSage
from fedsage.models.parameters import Hidden, Inputs, Logits
from fedsage.models.sparse import add_compiled_means, add_compiled_product, sparse_product
from fedsage.models.train import chosen_kernel
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
    h: Inputs | NodeFeatures = graph.x
    for k, layer in enumerate(model.sage_layers):
        targets = nodes if k + 1 == len(model.sage_layers) else None
        messages = zeros(graph.num_nodes, layer.phi_neighbors)
        add_weighted(messages, h, layer.phi_neighbors)
        if targets is not None:
            h = h[targets.copy()]  # torch takes no array that is read-only
        near = zeros(h.shape[0], messages)
        add_neighbor_means(near, graph, targets, messages)
        add_weighted(near, h, layer.phi_own)
        for part in slices(len(near)):
            near[part] = model.activate(near[part].add_(layer.bias), k)
        h = near
    logits: Logits = model.head(h)
    return logits


def zeros(num_rows: int, like: Hidden) -> Hidden:
    """A table as wide as another one, and where that is; a CPU's is zero when it is touched."""
    return torch.from_numpy(np.zeros((num_rows, like.shape[1]), np.float32)).to(like.device)


def add_neighbor_means(
    out: Hidden, graph: Graph, nodes: NodeIds | None, messages: Hidden
) -> None:
    """``out +=`` the mean over the neighbors of ``nodes``, or of all, of what they hand on."""
    if out.device.type == "cpu":
        add_compiled_means(out, graph, nodes, messages)
    else:
        mean = full_mean(graph)
        out += sparse_product(mean if nodes is None else mean[nodes], messages)


def add_weighted(out: Hidden, h: Inputs | NodeFeatures, weight: Hidden) -> None:
    """``out += h @ weight``; dense features go to a device some rows at a time."""
    if isinstance(h, torch.Tensor):
        out.addmm_(h, weight)
    elif isinstance(h, np.ndarray):
        for part in slices(len(out)):
            out[part].addmm_(torch.tensor(h[part], device=out.device), weight)
    elif out.device.type == "cpu":
        add_compiled_product(out, h, weight)
    else:
        out += sparse_product(h, weight)


def slices(num_rows: int) -> Iterator[slice]:
    """All rows, some at a time."""
    for start in range(0, num_rows, ROWS):
        yield slice(start, start + ROWS)


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


def query_full(model: GraphSage, graph: Graph, nodes: NodeIds, training: Training) -> Logits:
    """Logits of ``nodes`` from all neighbors: by the compiled kernel where it applies.

    Else by torch; they differ by rounding.
    """
    if chosen_kernel(model.shape, training) == "fused":
        return fused_logits(model, graph, nodes)
    return infer_full(model, graph, nodes)


def query(
    model: GraphSage,
    graph: Graph,
    nodes: NodeIds,
    training: Training,
    generator: np.random.Generator,
) -> Logits:
    """Logits of ``nodes`` on ``graph``."""
    if training.inference == "full":
        return query_full(model, graph, nodes, training)
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
        logits = query_full(model, graph, np.concatenate(parts), training)
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
