"""Feature presence: a feature that no node of an owner has gets no gradient there."""

from __future__ import annotations

import numpy as np

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.audit.scores import auc_error, auc_of
from fedsage.audit.seen import feature_moves
from fedsage.shapes import Array

FEWEST = 10  # features of either kind, for a meaningful result
ATTEMPT = Attempt(
    "feature-presence",
    "curious server",
    "the updates of one owner in all rounds",
    "AUC",
)


@attack("feature-presence")
def feature_presence(case: Case) -> Finding:
    """Does any node of this owner have this feature? Then its weights have moved more."""
    found, absent, error = [], 0, 0.0
    for i in case.attacked:
        there = present(case.graphs[i].x)
        if min(there.sum(), (~there).sum()) >= FEWEST:
            found.append(auc_of(feature_moves(case, i), there))
            absent += int((~there).sum())
            error = max(error, auc_error(int(there.sum()), int((~there).sum())))
    if not found:
        return ATTEMPT.not_run("the attacked owners have almost all features")
    note = (
        f"{absent} features are absent there; the sum cannot be attacked, since every "
        "feature occurs somewhere"
    )
    return ATTEMPT.auc(float(np.mean(found)), None, note, error / len(found) ** 0.5)


def present(x: Array) -> Array:
    """Which features any row has."""
    return np.asarray((x != 0).sum(axis=0)).reshape(-1) > 0
