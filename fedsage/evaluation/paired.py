"""Differences between methods, seed by seed, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from fedsage.evaluation.evaluate import student_interval

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much higher one method scores than another on the same seeds.

    With one seed there is no standard error and no interval.
    """

    mean: float
    std_err: float | None
    low: float | None
    high: float | None
    pairs: int

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low is not None and self.high is not None and self.low * self.high > 0


def paired_difference(
    values: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE
) -> PairedDifference:
    r"""The mean of :math:`d_s = a_s - b_s` over seeds s, with a Student t interval.

    .. math::
        \bar d \pm t_{n-1} \sqrt{\frac{1}{n (n-1)} \sum_s (d_s - \bar d)^2}

    Args:
        values: a, one value for each seed.
        baseline: b, on the same seeds in the same order.
        confidence: How often such an interval covers the true difference.
    """
    each = [a - b for a, b in zip(values, baseline, strict=True)]
    low, high = student_interval(each, confidence) or (None, None)
    std_err = stdev(each) / math.sqrt(len(each)) if len(each) > 1 else None
    return PairedDifference(mean(each), std_err, low, high, len(each))


def baseline_of(sent: Mapping[str, float]) -> str:
    """What to compare with: the first method whose owners send anything, else the first.

    Args:
        sent: The bytes that each method sends, in the order of the comparison.
    """
    return next((method for method, num_bytes in sent.items() if num_bytes), next(iter(sent)))
