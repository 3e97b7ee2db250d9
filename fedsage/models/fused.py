"""The compiled kernel on torch's own weights: when it applies, and one epoch by it."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from fedsage.graph.graph import Graph
from fedsage.models import fused_kernel
from fedsage.models.dropout import threshold
from fedsage.models.graphsage import GraphSage, SageShape
from fedsage.models.optimizer import make_optimizer
from fedsage.models.training import Training
from fedsage.rng import generator as new_generator
from fedsage.shapes import Array, NodeIds

HEADS = {"relu": fused_kernel.RELU, "l2": fused_kernel.L2, "direct": fused_kernel.DIRECT}
OPTIMIZERS = {
    "adam": fused_kernel.ADAM,
    "adamw": fused_kernel.ADAMW,
    "sgd": fused_kernel.SGD,
}


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
    firsts, seconds, steps = gathered_moments(optimizer, weights)
    loss = fused_kernel.epoch(
        generator,
        order,
        graph.y[order],
        training.batch_size,
        *training.fanouts,
        read_only(graph.indptr),
        read_only(graph.indices),
        *feature_arrays(graph),
        *(weight.detach().numpy() for weight in weights),
        *([] if len(weights) == 8 else no_head(graph.num_classes)),
        firsts,
        seconds,
        steps,
        OPTIMIZERS[training.optimizer],
        training.eta,
        training.weight_decay,
        HEADS[model.shape.head],
        threshold(training.dropout),
    )
    if training.optimizer != "sgd":
        scatter_moments(optimizer, weights, firsts, seconds, steps)
    return float(loss) / len(nodes)


def weights_of(model: GraphSage) -> list[Tensor]:
    """All weights, in the order the kernel takes them."""
    first, second = model.sage_layers
    weights = [
        first.phi_own, first.phi_neighbors, first.bias,
        second.phi_own, second.phi_neighbors, second.bias,
    ]  # fmt: skip
    return [*weights, *model.head.parameters()]


def no_head(num_classes: int) -> tuple[Array, Array]:
    """What stands for the head's weights where h^K are the logits."""
    return np.empty((num_classes, 0), np.float32), np.empty(0, np.float32)


def feature_arrays(graph: Graph) -> tuple[Array, Array, Array, Array]:
    """The sparse features and no dense ones, or the other way round."""
    if isinstance(graph.x, np.ndarray):
        nothing = np.empty(0, np.float32)
        pointers, columns = np.zeros(1, np.int64), np.empty(0, np.int32)
        dense = np.ascontiguousarray(graph.x)
        return read_only(pointers), read_only(columns), read_only(nothing), read_only(dense)
    return (
        read_only(graph.x.indptr.astype(np.int64)),
        read_only(graph.x.indices.astype(np.int32, copy=False)),
        read_only(graph.x.data),
        read_only(np.empty((0, 0), np.float32)),
    )


def read_only(array: Array) -> Array:
    """A view that cannot be written: the compiler takes it for a type of its own."""
    view = array.view()
    view.setflags(write=False)
    return view


def gathered_moments(
    optimizer: torch.optim.Optimizer, weights: list[Tensor]
) -> tuple[Array, Array, Array]:
    """Both moments of all weights, one after the other, and the count of steps."""
    states = [optimizer.state[weight] for weight in weights]
    if not states[0]:
        size = sum(weight.numel() for weight in weights)
        return np.zeros(size, np.float32), np.zeros(size, np.float32), np.zeros(1)
    first = torch.cat([state["exp_avg"].ravel() for state in states])
    second = torch.cat([state["exp_avg_sq"].ravel() for state in states])
    return first.numpy(), second.numpy(), np.array([float(states[0]["step"])])


def scatter_moments(
    optimizer: torch.optim.Optimizer,
    weights: list[Tensor],
    firsts: Array,
    seconds: Array,
    steps: Array,
) -> None:
    """Hand the moments back to the optimizer."""
    ends = np.cumsum([weight.numel() for weight in weights])[:-1]
    parts = zip(weights, np.split(firsts, ends), np.split(seconds, ends), strict=True)
    for weight, first, second in parts:
        optimizer.state[weight] = {
            "step": torch.tensor(float(steps[0])),
            "exp_avg": torch.from_numpy(first).view_as(weight),
            "exp_avg_sq": torch.from_numpy(second).view_as(weight),
        }


@cache
def warm_up() -> None:
    """Compile the kernel, or load it from the cache: the first call of a process pays."""
    links = np.array([[0, 1], [1, 2]])
    graph = Graph.from_arrays(np.eye(3, dtype=np.float32), links, np.array([0, 1, 0]))
    model = GraphSage(SageShape(3, 2, (2, 2)), new_generator(0, "warm up"))
    optimizer = make_optimizer(model, "adam", 1e-3, 0.0)
    fused_epoch(model, optimizer, graph, np.arange(3), Training(), new_generator(0, "epoch"))
