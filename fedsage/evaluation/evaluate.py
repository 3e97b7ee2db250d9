"""Test queries on G, the paper's measure of a classifier; and how good a mending is.

Both need the whole graph, so they exist in simulations alone; no training code looks here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from scipy.sparse import issparse

from fedsage.config import Inference
from fedsage.graph.arrays import squared_norms
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import full_mean
from fedsage.models.backbone import Backbone, query_each
from fedsage.shapes import Array, NodeFeatures, NodeIds, NodeLabels


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


MOST = 20  # neighbors in the table of counts; more count as that many


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over nodes."""

    mean: float
    std: float


@dataclass(frozen=True, slots=True)
class Mending:
    """What was attached at all owners together, and how it compares with the truth."""

    generated: int  # neighbors attached
    norm_generated: float | None  # root mean square length of their features
    norm_real: float  # of real nodes
    picked: float | None  # share of nodes that were ever the nearest to a generated one
    missing: int | None = None  # neighbors that are really missing
    count_error: float | None = None  # mean |generated − missing| over nodes
    count_correlation: float | None = None  # of generated and missing, over nodes
    counts: list[list[int]] | None = None  # nodes by missing (row) and generated (column)
    distance_mended: Spread | None = None  # L2(N'_i(v), N(v))
    distance_plain: Spread | None = None  # L2(N_i(v), N(v))


def mending_from(values: Mapping[str, Any]) -> Mending:
    """The diagnostics that were written as JSON."""
    spreads = {
        key: Spread(**values[key]) if values.get(key) else None
        for key in ("distance_mended", "distance_plain")
    }
    return Mending(**{**values, **spreads})


def mending_quality(
    subgraphs: Sequence[Graph],
    mended: Sequence[Graph],
    picked: float | None,
    whole: Graph | None,
    nodes: Sequence[NodeIds],
) -> Mending:
    """Diagnostics of dGen and fGen, or of whatever made the mended graphs.

    Args:
        subgraphs: G_i of every owner.
        mended: G'_i of every owner.
        picked: Share of nodes ever picked as nearest, where there was a search.
        whole: G, where somebody holds it.
        nodes: The nodes of every owner, by index in G.
    """
    pairs = list(zip(subgraphs, mended, strict=True))
    new = [after.x[before.num_nodes :] for before, after in pairs]
    squares = np.concatenate([squared_norms(x) for x in new])
    real = np.concatenate([squared_norms(graph.x) for graph in subgraphs])
    known = Mending(
        generated=len(squares),
        norm_generated=float(np.sqrt(squares.mean())) if len(squares) else None,
        norm_real=float(np.sqrt(real.mean())),
        picked=picked,
    )
    if whole is None:
        return known
    degrees = whole.degrees
    truth = [degrees[ids] - g.degrees for g, ids in zip(subgraphs, nodes, strict=True)]
    made = [after.degrees[: before.num_nodes] - before.degrees for before, after in pairs]
    missing, generated = np.concatenate(truth), np.concatenate(made)
    plain, repaired = neighborhood_distances(pairs, whole, nodes)
    return Mending(
        generated=known.generated,
        norm_generated=known.norm_generated,
        norm_real=known.norm_real,
        picked=picked,
        missing=int(missing.sum()),
        count_error=float(np.abs(generated - missing).mean()),
        count_correlation=correlation(generated, missing),
        counts=table_of_counts(missing, generated).tolist(),
        distance_mended=Spread(float(repaired.mean()), float(repaired.std())),
        distance_plain=Spread(float(plain.mean()), float(plain.std())),
    )


def correlation(a: Int[Array, " V"], b: Int[Array, " V"]) -> float | None:
    """Pearson's; None where one of them does not vary."""
    if a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def table_of_counts(
    missing: Int[Array, " V"], generated: Int[Array, " V"]
) -> Int[Array, "rows columns"]:
    """How many nodes miss r neighbors and got c, for r and c up to ``MOST``."""
    table = np.zeros((MOST + 1, MOST + 1), dtype=np.int64)
    np.add.at(table, (missing.clip(max=MOST), generated.clip(max=MOST)), 1)
    return table


def neighborhood_distances(
    pairs: Sequence[tuple[Graph, Graph]], whole: Graph, nodes: Sequence[NodeIds]
) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
    """The paper's measure of fGen: L2 between mean neighbor features, before and after.

    For each node v that misses a neighbor, from N_i(v) and from N'_i(v) to N(v).
    """
    plain, mended = [], []
    mean, degrees = full_mean(whole), whole.degrees
    for (before, after), ids in zip(pairs, nodes, strict=True):
        misses = np.flatnonzero(degrees[ids] > before.degrees)
        truth = mean[ids[misses]] @ whole.x
        plain.append(row_norms(full_mean(before)[misses] @ before.x - truth))
        mended.append(row_norms(full_mean(after)[misses] @ after.x - truth))
    nothing = np.zeros(1)  # nobody misses a neighbor
    both = [np.concatenate(parts) for parts in (plain, mended)]
    return (both[0], both[1]) if len(both[0]) else (nothing, nothing)


def row_norms(x: NodeFeatures) -> Float[Array, " _"]:
    """The length of each row."""
    return np.sqrt(squared_norms(x.tocsr() if issparse(x) else x))
