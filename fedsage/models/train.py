"""One epoch of classifier training; the same on every owner and every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import node_batches, sample_hops
from fedsage.models.graphsage import GraphSage
from fedsage.models.losses import classification_loss
from fedsage.models.optimizer import OptimizerName
from fedsage.shapes import NodeIds

Moments: TypeAlias = Literal["own", "reset", "averaged"]
Weighting: TypeAlias = Literal["owners", "nodes"]
Inference: TypeAlias = Literal["full", "sampled"]


@dataclass(frozen=True, slots=True)
class Training:
    """How an owner trains and queries the classifier; agreed before the run."""

    eta: float = 1e-3
    optimizer: OptimizerName = "adam"
    weight_decay: float = 0.0
    batch_size: int = 64
    fanouts: tuple[int, ...] = (5, 5)
    local_epochs: int = 1
    dropout: float = 0.0
    moments: Moments = "averaged"
    weighting: Weighting = "owners"
    inference: Inference = "full"
    device: str = "cpu"


def train_epoch(
    model: GraphSage,
    optimizer: torch.optim.Optimizer,
    graph: Graph,
    nodes: NodeIds,
    training: Training,
    generator: np.random.Generator,
) -> float:
    """One pass over ``nodes`` in batches, one step a batch; returns the mean loss."""
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
