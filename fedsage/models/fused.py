"""The compiled kernels on torch's own weights: when they apply, an epoch and a query."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fedsage.graph.graph import Graph
from fedsage.models import fused_kernel, fused_query
from fedsage.models.dropout import threshold
from fedsage.models.fused_cache import read_only
from fedsage.models.fused_room import borrowed, sizes_of
from fedsage.models.graphsage import GraphSage, SageShape
from fedsage.models.nearest import nearest_sparse
from fedsage.models.optimizer import make_optimizer
from fedsage.models.parameters import Logits
from fedsage.models.sparse import compiled_product
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
    firsts, seconds, step = moments(optimizer, weights)
    num_steps = -(-len(nodes) // training.batch_size)
    phi = tuple(weight.detach().numpy() for weight in weights)
    settings = (
        step,
        OPTIMIZERS[training.optimizer],
        float(training.eta),
        float(training.weight_decay),
        HEADS[model.shape.head],
        threshold(training.dropout),
    )
    with borrowed(sizes_of(graph, model.shape, training)) as work:
        loss = fused_kernel.epoch(
            generator,
            order,
            graph.y[order],
            (read_only(graph.indptr), read_only(graph.indices)),
            feature_arrays(graph),
            *(in_full(arrays, graph.num_classes) for arrays in (phi, firsts, seconds)),
            tuple(work),
            settings,
        )
    for weight in () if training.optimizer == "sgd" else weights:
        optimizer.state[weight]["step"].fill_(step + num_steps)
    return float(loss) / len(nodes)


def fused_logits(model: GraphSage, graph: Graph, nodes: NodeIds) -> Logits:
    """``infer_full`` by the compiled kernel."""
    weights = tuple(weight.detach().numpy() for weight in weights_of(model))
    *layers, w_head, b_head = in_full(weights, model.shape.num_classes)
    out = np.empty((len(nodes), model.shape.num_classes), np.float32)
    fused_query.logits(
        read_only(np.ascontiguousarray(nodes)),
        (read_only(graph.indptr), read_only(graph.indices)),
        feature_arrays(graph),
        (*layers, np.ascontiguousarray(w_head.T), b_head),
        HEADS[model.shape.head],
        out,
    )
    return torch.from_numpy(out)


def weights_of(model: GraphSage) -> list[Tensor]:
    """All weights, in the order the kernel takes them."""
    first, second = model.sage_layers
    weights = [
        first.phi_own, first.phi_neighbors, first.bias,
        second.phi_own, second.phi_neighbors, second.bias,
    ]  # fmt: skip
    return [*weights, *model.head.parameters()]


def in_full(arrays: tuple[Array, ...], num_classes: int) -> tuple[Array, ...]:
    """The same with something in place of the head's, where h^K are the logits."""
    if len(arrays) == 8:
        return arrays
    shape = (0,) if arrays[0].ndim == 1 else (num_classes, 0)
    return *arrays, np.empty(shape, np.float32), np.empty(0, np.float32)


def feature_arrays(graph: Graph) -> tuple[Array, Array, Array, Array]:
    """The sparse features and no dense ones, or the other way round."""
    if isinstance(graph.x, np.ndarray):
        nothing = np.empty(0, np.float32)
        pointers, columns = np.zeros(1, np.int64), np.empty(0, np.int32)
        dense = np.ascontiguousarray(graph.x)
        return read_only(pointers), read_only(columns), read_only(nothing), read_only(dense)
    return (
        read_only(graph.x.indptr.astype(np.int64, copy=False)),
        read_only(graph.x.indices.astype(np.int32, copy=False)),
        read_only(graph.x.data),
        read_only(np.empty((0, 0), np.float32)),
    )


def moments(
    optimizer: torch.optim.Optimizer, weights: list[Tensor]
) -> tuple[tuple[Array, ...], tuple[Array, ...], float]:
    """Both moments of each weight, laid out flat, and how many steps the optimizer has made.

    They are the optimizer's own, so that it finds them changed; SGD has none.
    """
    if isinstance(optimizer, torch.optim.SGD):
        nothing = (np.empty(0, np.float32),) * len(weights)
        return nothing, nothing, 0.0
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
    return firsts, seconds, float(states[0]["step"])


@cache
def warm_up() -> None:
    """Compile, or load from the cache, all compiled code: the first call of a process pays."""
    links = np.array([[0, 1], [1, 2]])
    graph = Graph.from_arrays(np.eye(3, dtype=np.float32), links, np.array([0, 1, 0]))
    model = GraphSage(SageShape(3, 2, (2, 2)), new_generator(0, "warm up"))
    optimizer = make_optimizer(model, "adam", 1e-3, 0.0)
    fused_epoch(model, optimizer, graph, np.arange(3), Training(), new_generator(0, "epoch"))
    nearest_sparse(np.eye(3, dtype=np.float32), csr_array(graph.x), np.ones(3, np.float32))
    compiled_product(csr_array(graph.x), torch.ones(3, 1))
    fused_logits(model, graph, np.arange(3))
