"""GraphSage by compiled code, on torch's own weights: when it applies, an epoch and a query."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedsage.graph.graph import Graph
from fedsage.kernels import door
from fedsage.kernels.door import Arrays
from fedsage.models.dropout import threshold
from fedsage.models.graphsage import GraphSage, SageShape
from fedsage.models.parameters import Logits
from fedsage.models.training import Training
from fedsage.shapes import NodeIds


def unsupported(shape: SageShape, training: Training) -> str | None:
    """What of these settings the kernel does not do; None where it applies."""
    if training.device != "cpu":
        return f"device '{training.device}'"
    if len(shape.widths) != 2:
        return f"{len(shape.widths)} layers"
    if shape.norm != "none":
        return f"norm '{shape.norm}'"
    return None


def fused_epoch(
    model: GraphSage,
    optimizer: torch.optim.Optimizer,
    graph: Graph,
    nodes: NodeIds,
    training: Training,
    generator: np.random.Generator,
) -> float:
    """``torch_epoch`` by the compiled kernel: weights and moments are changed in place."""
    order = nodes[generator.permutation(len(nodes))]
    weights = weights_of(model)
    moments, step = moments_of(optimizer, weights)
    loss = door.epoch(
        generator,
        order,
        graph.y[order],
        (graph.indptr, graph.indices),
        features_of(graph),
        arrays_of(weights),
        moments,
        step,
        door.Training(
            head=model.shape.head,
            optimizer=training.optimizer,
            eta=training.eta,
            weight_decay=training.weight_decay,
            threshold=threshold(training.dropout),
            batch_size=training.batch_size,
            fanouts=training.fanouts,
        ),
    )
    num_steps = -(-len(nodes) // training.batch_size)
    for weight in () if training.optimizer == "sgd" else weights:
        optimizer.state[weight]["step"].fill_(step + num_steps)
    return loss / len(nodes)


def fused_logits(model: GraphSage, graph: Graph, nodes: NodeIds) -> Logits:
    """``infer_full`` by the compiled kernel."""
    links, weights = (graph.indptr, graph.indices), arrays_of(weights_of(model))
    found = door.logits(nodes, links, features_of(graph), weights, model.shape.head)
    return torch.from_numpy(found)


def weights_of(model: GraphSage) -> list[Tensor]:
    """All weights, in the order the kernel takes them."""
    layers = [(one.phi_own, one.phi_neighbors, one.bias) for one in model.sage_layers]
    return [*(weight for layer in layers for weight in layer), *model.head.parameters()]


def arrays_of(weights: list[Tensor]) -> Arrays:
    """The memory of weights."""
    return tuple(weight.detach().numpy() for weight in weights)


def features_of(graph: Graph) -> Arrays:
    """The arrays that X is made of."""
    x = graph.x
    return (x,) if isinstance(x, np.ndarray) else (x.indptr, x.indices, x.data)


def moments_of(
    optimizer: torch.optim.Optimizer, weights: list[Tensor]
) -> tuple[tuple[Arrays, Arrays], float]:
    """Both moments of each weight, laid out flat, and how many steps the optimizer has made.

    They are the optimizer's own, so that it finds them changed; SGD has none.
    """
    if isinstance(optimizer, torch.optim.SGD):
        nothing = (np.empty(0, np.float32),) * len(weights)
        return (nothing, nothing), 0.0
    states = [optimizer.state[weight] for weight in weights]
    for state, weight in zip(states, weights, strict=True):
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = (
                torch.zeros_like(weight, requires_grad=False) for _ in range(2)
            )
    firsts, seconds = (
        tuple(state[name].view(-1).numpy() for state in states)
        for name in ("exp_avg", "exp_avg_sq")
    )
    return (firsts, seconds), float(states[0]["step"])
