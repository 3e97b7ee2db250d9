"""How well guesses tell one kind from the other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata

from fedsage.shapes import Array


def auc(members: Float[Array, " m"], others: Float[Array, " n"]) -> float:
    """The probability that a member has a higher score than another; ties count half."""
    ranks = rankdata(np.concatenate([members, others]))
    first = ranks[: len(members)].sum() - len(members) * (len(members) + 1) / 2
    return float(first / (len(members) * len(others)))


def found_at(
    members: Float[Array, " m"], others: Float[Array, " n"], false_alarms: float = 0.01
) -> float:
    """The share of members found at that rate of false alarms."""
    return float((members > np.quantile(others, 1 - false_alarms)).mean())


def auc_of(scores: Float[Array, " n"], truth: Bool[Array, " n"]) -> float:
    """The AUC of scores of both kinds together."""
    return auc(scores[truth], scores[~truth])


def total_variation(first: Float[Array, " n"], second: Float[Array, " n"]) -> float:
    """The distance between two distributions: 0 to 1."""
    return float(np.abs(first - second).sum() / 2)


def auc_error(members: int, others: int) -> float:
    """The standard error of the AUC of a blind guess with that many of each."""
    return float(np.sqrt((members + others + 1) / (12 * members * others)))
