"""One epoch of classifier training; the same on every owner and every method."""

from __future__ import annotations

import numpy as np
import torch

from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import node_batches, sample_hops
from fedsage.models.compiled_sage import fused_epoch, unsupported
from fedsage.models.graphsage import GraphSage, SageShape
from fedsage.models.losses import classification_loss
from fedsage.models.training import Training
from fedsage.shapes import NodeIds


def train_epoch(
    model: GraphSage,
    optimizer: torch.optim.Optimizer,
    graph: Graph,
    nodes: NodeIds,
    training: Training,
    generator: np.random.Generator,
) -> float:
    """One pass over ``nodes`` in batches, one step a batch; returns the mean loss.

    By the compiled kernel where it applies, else by torch. Both make the same draws and
    follow the same formulas; they differ by rounding.
    """
    return EPOCHS[chosen_kernel(model.shape, training)](
        model, optimizer, graph, nodes, training, generator
    )


def chosen_kernel(shape: SageShape, training: Training) -> str:
    """``fused`` or ``torch``; refuses ``fused`` where it does not apply."""
    reason = None if training.kernel == "torch" else unsupported(shape, training)
    if training.kernel == "fused" and reason:
        raise ConfigError(
            f"run.kernel is 'fused', but that kernel does not do {reason}. "
            "Take run.kernel=auto or run.kernel=torch."
        )
    return "torch" if training.kernel == "torch" or reason else "fused"


def torch_epoch(
    model: GraphSage,
    optimizer: torch.optim.Optimizer,
    graph: Graph,
    nodes: NodeIds,
    training: Training,
    generator: np.random.Generator,
) -> float:
    """The readable reference, for any device, depth and norm."""
    y = torch.from_numpy(graph.y[nodes]).to(model.device)
    losses = []
    for batch in node_batches(np.arange(len(nodes)), training.batch_size, generator):
        hops = sample_hops(graph, nodes[batch], training.fanouts, generator)
        logits = model(graph.x, hops, training.dropout, generator)
        loss = classification_loss(logits, y[torch.from_numpy(batch)])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.detach() * len(batch))
    return float(torch.stack(losses).sum()) / len(nodes)


EPOCHS = {"torch": torch_epoch, "fused": fused_epoch}
