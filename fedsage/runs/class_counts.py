"""What a run's answers are worth, class by class: counts of all owners, rare ones hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from fedsage.evaluation.evaluate import (
    Evaluation,
    balanced_accuracy,
    macro_f1,
    precision,
    recall,
)
from fedsage.protocol.measuring import Measured
from fedsage.shapes import Array


@dataclass(frozen=True, slots=True, eq=False)
class AtOwners:
    """What owners' own test nodes say."""

    macro_f1: float | None
    balanced_accuracy: float | None
    recall: list[float | None]
    precision: list[float | None]
    confusion: list[list[int | None]] | None
    temperature: float
    slope: float
    calibration_error: float | None
    error_by_chance: float | None
    reliability: list[dict[str, float | None]] | None
    warnings: list[str]


NOTHING = AtOwners(None, None, [], [], None, 1.0, 0.0, None, None, None, [])


def at_owners(measured: Sequence[Measured], least: int, class_names: Sequence[str]) -> AtOwners:
    """The counts of one classifier, or of all local ones, with counts below ``least`` hidden.

    A class with fewer test nodes than that has no recall, and one that is predicted less often
    no precision. Means over classes are over all of them.
    """
    if not measured:
        return NOTHING
    counts: Int[Array, "d_y d_y"] = np.sum([one.confusion for one in measured], axis=0)
    if not counts.sum():
        return NOTHING
    true, predicted = counts.sum(axis=1), counts.sum(axis=0)
    weights = [int(one.confusion.sum()) for one in measured]

    def weighted(errors: Sequence[float | None]) -> float:
        known = [(e, w) for e, w in zip(errors, weights, strict=True) if e is not None]
        return sum(e * w for e, w in known) / sum(w for _, w in known)

    return AtOwners(
        macro_f1(counts),
        balanced_accuracy(counts),
        shown(recall(counts), true, least),
        shown(precision(counts), predicted, least),
        [[hidden(int(cell), least) for cell in row] for row in counts],
        float(np.mean([one.calibration.temperature for one in measured])),
        float(np.mean([one.calibration.slope for one in measured])),
        weighted([one.calibration_error for one in measured]),
        weighted([one.error_by_chance for one in measured]),
        reliability_of(measured, least),
        never_predicted(true, predicted, least, class_names),
    )


def hidden(count: int, least: int) -> int | None:
    """The count; None if it is of a few nodes only."""
    return None if 0 < count < least else count


def shown(shares: Array, counts: Int[Array, " d_y"], least: int) -> list[float | None]:
    """Shares of enough nodes; None for others, and where there is nothing to share."""
    return [
        float(share) if count >= max(least, 1) else None
        for share, count in zip(shares, counts, strict=True)
    ]


def reliability_of(measured: Sequence[Measured], least: int) -> list[dict[str, float | None]]:
    """Probability and share right by bin, over all classifiers."""
    found: list[dict[str, float | None]] = []
    for bins in zip(*(one.reliability for one in measured), strict=True):
        count = int(sum(one["count"] for one in bins))
        if 0 < count < least:
            found.append({"count": None, "probability": None, "right": None})
            continue
        sums = {
            key: sum(one["count"] * one[key] for one in bins)
            for key in ("probability", "right")
        }
        found.append({"count": count} | {k: v / max(count, 1) for k, v in sums.items()})
    return found


def never_predicted(
    true: Int[Array, " d_y"],
    predicted: Int[Array, " d_y"],
    least: int,
    class_names: Sequence[str],
) -> list[str]:
    """A warning for every class that is never predicted."""

    def nodes(count: int) -> str:
        if not count:
            return ", and no test node has it"
        number = f"{count:,}" if count >= least else f"fewer than {least}"
        return f", although {number} test nodes have it"

    return [
        f"Class '{name}' is never predicted{nodes(int(count))}. "
        "Rare classes are found more often with classifier.class_weights=balanced."
        for name, count, given in zip(class_names, true, predicted, strict=True)
        if not given
    ]


def vars_of(local: AtOwners, evaluated: Evaluation | None) -> dict[str, Any]:
    """The fields of a record: by class as the whole graph says, where somebody holds it."""
    per_class: dict[str, Any] | None = None
    if evaluated is not None:
        per_class = {
            "recall": evaluated.recall.tolist(),
            "precision": evaluated.precision.tolist(),
        }
    elif local.recall:
        per_class = {"recall": local.recall, "precision": local.precision}
    return {
        "macro_f1": evaluated.macro_f1 if evaluated else local.macro_f1,
        "balanced_accuracy": (
            evaluated.balanced_accuracy if evaluated else local.balanced_accuracy
        ),
        "per_class": per_class,
        "confusion_local": local.confusion,
        "temperature": local.temperature,
        "slope": local.slope,
        "calibration_error": local.calibration_error,
        "calibration_error_by_chance": local.error_by_chance,
        "reliability": local.reliability,
        "warnings": local.warnings,
    }
