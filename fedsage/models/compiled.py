"""Models by compiled code on torch's own weights: two GraphSage layers, one linear layer."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fedsage.config import ClassifierConfig, Head, ModelConfig, OptimizerName
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.kernels import door
from fedsage.kernels.door import Arrays
from fedsage.models.backbone import feature_rows
from fedsage.models.layers import threshold
from fedsage.models.linear import unit_rows
from fedsage.models.optimizer import name_of
from fedsage.models.parameters import Logits
from fedsage.shapes import NodeIds


def epoch(
    weights: list[Tensor],
    model: ModelConfig,
    optimizer: torch.optim.Optimizer,
    graph: Graph,
    order: NodeIds,
    classifier: ClassifierConfig,
    generator: np.random.Generator,
) -> float:
    """An epoch by the compiled kernel, on nodes in that order; returns the mean loss.

    It changes weights and moments in place.
    """
    moments, step = moments_of(optimizer, weights, classifier.optimizer)
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
            head=model.head,
            optimizer=classifier.optimizer,
            eta=classifier.eta,
            weight_decay=classifier.weight_decay,
            threshold=threshold(model.dropout),
            batch_size=classifier.batch_for(len(order)),
            fanouts=classifier.fanouts,
        ),
    )
    count_steps(optimizer, weights, step, len(order), classifier)
    return loss / len(order)


def count_steps(
    optimizer: torch.optim.Optimizer,
    weights: list[Tensor],
    step: float,
    nodes: int,
    classifier: ClassifierConfig,
) -> None:
    """Tell the optimizer that ``step`` steps were followed by those of an epoch."""
    num_steps = -(-nodes // classifier.batch_for(nodes))
    for weight in () if classifier.optimizer == "sgd" else weights:
        optimizer.state[weight]["step"].fill_(step + num_steps)


def logits(weights: list[Tensor], head: Head, graph: Graph, nodes: NodeIds) -> Logits:
    """``GraphSage.torch_logits`` by the compiled kernel."""
    links = graph.indptr, graph.indices
    found = door.logits(nodes, links, features_of(graph), arrays_of(weights), head)
    return torch.from_numpy(found)


def arrays_of(weights: list[Tensor]) -> Arrays:
    """The memory of weights, as arrays."""
    return tuple(weight.detach().numpy() for weight in weights)


def features_of(graph: Graph) -> Arrays:
    """The arrays that make up X."""
    x = graph.x
    return (x,) if isinstance(x, np.ndarray) else (x.indptr, x.indices, x.data)


def moments_of(
    optimizer: torch.optim.Optimizer, weights: list[Tensor], name: OptimizerName
) -> tuple[tuple[Arrays, Arrays], float]:
    """Both moments of each weight, as flat arrays, and how many steps the optimizer has made.

    They are the optimizer's own memory, so changes reach it; SGD has none. Compiled code takes
    the step of ``name``, and would write past these arrays if the optimizer were another one.
    """
    if (found := name_of(optimizer)) != name:
        raise ConfigError(
            f"classifier.optimizer is '{name}', but the optimizer given is {found}. Make it "
            "with make_optimizer from the same settings, or use --set run.kernel=torch."
        )
    if name == "sgd":
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


def linear_epoch(
    weights: list[Tensor],
    length: float,
    optimizer: torch.optim.Optimizer,
    graph: Graph,
    order: NodeIds,
    classifier: ClassifierConfig,
) -> float:
    """An epoch on nodes in that order, with rows of that length; returns the mean loss.

    It changes weights and moments in place.
    """
    rows = unit_rows(feature_rows(graph.x, order, torch.device("cpu")))
    rows = rows if isinstance(rows, csr_array) else csr_array(rows.numpy())
    moments, step = moments_of(optimizer, weights, classifier.optimizer)
    loss = door.linear_epoch(
        (rows.indptr, rows.indices, rows.data * np.float32(length)),
        graph.y[order],
        arrays_of(weights),
        moments,
        step,
        (classifier.optimizer, classifier.eta, classifier.weight_decay),
        classifier.batch_for(len(order)),
    )
    count_steps(optimizer, weights, step, len(order), classifier)
    return loss / len(order)
