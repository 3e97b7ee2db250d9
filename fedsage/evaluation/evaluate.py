"""Test queries on G, the paper's measure of a classifier, and what is counted about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int

from fedsage.config import Inference
from fedsage.graph.graph import Graph
from fedsage.models.backbone import Backbone, query_each
from fedsage.shapes import Array, NodeIds, NodeLabels


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What the test queries on G say of one classifier, or of several on average."""

    accuracy: float
    macro_f1: float
    risk: float
    recall: Float[Array, " d_y"]
    precision: Float[Array, " d_y"]
    balanced_accuracy: float
    confusion: Int[Array, "d_y d_y"]
    true_labels: Float[Array, " d_y"]
    predicted_labels: Float[Array, " d_y"]


def evaluate(
    models: Sequence[Backbone],
    graph: Graph,
    parts: Sequence[Sequence[NodeIds]],
    inference: Inference,
    fanouts: Sequence[int],
    generators: Sequence[np.random.Generator],
) -> list[Evaluation]:
    """Query every model for nodes of all owners on G, and average over models.

    Args:
        models: One shared model, or the local models of LocSage.
        graph: G.
        parts: What to ask for, e.g. test nodes: for each owner its nodes, by index in G.
        inference: Whether neighborhoods are full or sampled.
        fanouts: How many neighbors are drawn, by layer, if they are sampled.
        generators: Where sampled neighborhoods come from, one for each part.

    Returns:
        One evaluation for each part.
    """
    nodes = [np.concatenate(list(owned)) for owned in parts]
    logits = [
        query_each(model, graph, nodes, inference, fanouts, generators) for model in models
    ]
    return [
        evaluation_of([one[k].cpu() for one in logits], graph, owned)
        for k, owned in enumerate(parts)
    ]


def evaluation_of(
    logits: Sequence[Float[torch.Tensor, "n d_y"]], graph: Graph, owned: Sequence[NodeIds]
) -> Evaluation:
    """What the logits of each model say, for the nodes of all owners in turn."""
    y = graph.y[np.concatenate(list(owned))]
    owner = np.repeat(np.arange(len(owned)), [len(nodes) for nodes in owned])
    answers = [np.asarray(one.argmax(dim=1)) for one in logits]
    counts = [confusion(y, one, graph.num_classes) for one in answers]
    return Evaluation(
        accuracy=float(np.mean([accuracy(one) for one in counts])),
        macro_f1=float(np.mean([macro_f1(one) for one in counts])),
        risk=float(np.mean([aggregated_risk(one, y, owner) for one in logits])),
        recall=np.mean([recall(one) for one in counts], axis=0),
        precision=np.mean([precision(one) for one in counts], axis=0),
        balanced_accuracy=float(np.mean([balanced_accuracy(one) for one in counts])),
        confusion=np.sum(counts, axis=0),
        true_labels=label_distribution(y, graph.num_classes),
        predicted_labels=label_distribution(np.concatenate(answers), graph.num_classes),
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


def confusion(y: NodeLabels, predicted: NodeLabels, num_classes: int) -> Int[Array, "d_y d_y"]:
    """How many nodes of each class (row) were given each class (column)."""
    pairs = np.bincount(y * num_classes + predicted, minlength=num_classes**2)
    return pairs.reshape(num_classes, num_classes)


def accuracy(counts: Int[Array, "d_y d_y"]) -> float:
    """Share of nodes given their own class."""
    return float(np.trace(counts) / max(counts.sum(), 1))


def recall(counts: Int[Array, "d_y d_y"]) -> Float[Array, " d_y"]:
    """Share of each class that was found; zero for a class that was not asked for."""
    return np.diag(counts) / np.maximum(counts.sum(axis=1), 1)


def precision(counts: Int[Array, "d_y d_y"]) -> Float[Array, " d_y"]:
    """Share of right answers among those that name a class; zero for one never predicted."""
    return np.diag(counts) / np.maximum(counts.sum(axis=0), 1)


def balanced_accuracy(counts: Int[Array, "d_y d_y"]) -> float:
    """The mean recall of the classes that occur, each with equal weight."""
    occurs = counts.sum(axis=1) > 0
    return float(recall(counts)[occurs].mean()) if occurs.any() else 0.0


def macro_f1(counts: Int[Array, "d_y d_y"]) -> float:
    """F1 of each class that occurs or was predicted, averaged with equal weight."""
    either = counts.sum(axis=0) + counts.sum(axis=1)
    occurs = either > 0
    return float((2 * np.diag(counts)[occurs] / either[occurs]).mean()) if occurs.any() else 0.0


def label_distribution(y: NodeLabels, num_classes: int) -> Float[Array, " d_y"]:
    """Share of each class."""
    return np.bincount(y, minlength=num_classes) / max(len(y), 1)


def mean_and_std(values: list[float]) -> tuple[float, float]:
    """Over repetitions; the standard deviation of a sample, zero for a single value."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), std


def student_interval(
    values: Sequence[float], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Student's confidence interval for the mean of ``values``; None for a single one."""
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # takes a tenth of a second to load; runs need none

    mean, std = mean_and_std(list(values))
    half = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * std / len(values) ** 0.5
    return mean - half, mean + half
