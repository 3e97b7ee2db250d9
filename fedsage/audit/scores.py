"""How well guesses tell one kind from the other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata

from fedsage.shapes import Array


def auc(members: Float[Array, " m"], others: Float[Array, " n"]) -> float:
    """The chance that a member has a higher score than one of the others; ties are halves."""
    ranks = rankdata(np.concatenate([members, others]))
    first = ranks[: len(members)].sum() - len(members) * (len(members) + 1) / 2
    return float(first / (len(members) * len(others)))


def found_at(
    members: Float[Array, " m"], others: Float[Array, " n"], false_alarms: float = 0.01
) -> float:
    """The share of members that are found where so few of the others are taken for one."""
    return float((members > np.quantile(others, 1 - false_alarms)).mean())


def auc_of(scores: Float[Array, " n"], truth: Bool[Array, " n"]) -> float:
    """The same, of scores of both kinds together."""
    return auc(scores[truth], scores[~truth])


def total_variation(first: Float[Array, " n"], second: Float[Array, " n"]) -> float:
    """How far two distributions are apart: 0 to 1."""
    return float(np.abs(first - second).sum() / 2)


def auc_error(members: int, others: int) -> float:
    """The standard error of the AUC of a blind guess about so many of each."""
    return float(np.sqrt((members + others + 1) / (12 * members * others)))
