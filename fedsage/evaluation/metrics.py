"""What is counted about predictions: accuracy, macro-F1, recall, label distributions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from fedsage.shapes import Array, NodeLabels


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
