"""Test queries on G: the paper's measure of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int

from fedsage.evaluation.metrics import (
    accuracy,
    confusion,
    label_distribution,
    macro_f1,
    recall,
)
from fedsage.graph.graph import Graph
from fedsage.models.graphsage import GraphSage
from fedsage.models.infer import query
from fedsage.models.training import Training
from fedsage.shapes import Array, NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What the test queries on G say of one classifier, or of several on average."""

    accuracy: float
    macro_f1: float
    risk: float
    recall: Float[Array, " d_y"]
    confusion: Int[Array, "d_y d_y"]
    true_labels: Float[Array, " d_y"]
    predicted_labels: Float[Array, " d_y"]


def judge(
    models: Sequence[GraphSage],
    graph: Graph,
    test_nodes: Sequence[NodeIds],
    training: Training,
    generator: np.random.Generator,
) -> Judgement:
    """Query every model for the test nodes of all owners on G, and average over models.

    Args:
        models: One shared model, or the local models of LocSage.
        graph: G.
        test_nodes: For each owner its test nodes, by index in G.
        training: Says whether neighborhoods are full or sampled.
        generator: Where sampled neighborhoods come from.
    """
    nodes = np.concatenate(list(test_nodes))
    owner = np.repeat(np.arange(len(test_nodes)), [len(part) for part in test_nodes])
    y = graph.y[nodes]
    logits = [query(model, graph, nodes, training, generator).cpu() for model in models]
    counts = [confusion(y, np.asarray(one.argmax(dim=1)), graph.num_classes) for one in logits]
    predicted = np.concatenate([np.asarray(one.argmax(dim=1)) for one in logits])
    return Judgement(
        accuracy=float(np.mean([accuracy(one) for one in counts])),
        macro_f1=float(np.mean([macro_f1(one) for one in counts])),
        risk=float(np.mean([aggregated_risk(one, y, owner) for one in logits])),
        recall=np.mean([recall(one) for one in counts], axis=0),
        confusion=np.sum(counts, axis=0),
        true_labels=label_distribution(y, graph.num_classes),
        predicted_labels=label_distribution(predicted, graph.num_classes),
    )


def aggregated_risk(
    logits: Float[torch.Tensor, "n d_y"], y: Int[Array, " n"], owner: Int[Array, " n"]
) -> float:
    r"""Sec. 3.1, the aggregated risk over all owners' test queries.

    .. math::
        \mathcal{R}(F(\phi)) = \frac{1}{M} \sum_i^M \mathcal{R}_i(F_i(\phi))

    with :math:`\mathcal{R}_i` the mean cross entropy over the test nodes of D_i.
    """
    loss = F.cross_entropy(logits, torch.from_numpy(y), reduction="none").numpy()
    total = np.bincount(owner, weights=loss)
    count = np.bincount(owner)
    return float((total[count > 0] / count[count > 0]).mean())
