"""Whether a row is among those that some vectors of features are made of."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fedsage.audit.case import Case, Rows
from fedsage.audit.finding import Attempt, Finding
from fedsage.audit.scores import auc, auc_error, found_at
from fedsage.audit.seen import Directions, Party, basis_of
from fedsage.shapes import Array


def inside(rows: Rows, basis: Float[Array, "d_x rank"]) -> Float[Array, " rows"]:
    """The share of each row that lies in the span of a basis: 0 to 1."""
    return np.asarray(np.square(rows @ basis).sum(axis=1))


def asked_about(case: Case, attempt: Attempt, vectors: dict[Party, Directions]) -> Finding:
    """Test whether a row is at an owner, given vectors by party; None is the sum's party."""
    aucs, found, errors = [], [], []
    for i in case.attacked:
        basis = basis_of(vectors[i], case.plan.nodes[i])
        members, others = (inside(x, basis) for x in (case.rows_of(i), case.rows_of_others(i)))
        aucs.append(auc(members, others))
        found.append(found_at(members, others))
        errors.append(auc_error(len(members), len(others)))
    of_sum = asked_of_sum(case, vectors[None])
    note = f"TPR at 1%: {np.mean(found):.3f}; {words_of_sum(of_sum)}"
    error = float(np.linalg.norm(errors)) / len(errors)  # of the mean
    return attempt.auc(float(np.mean(aucs)), of_sum, note, error)


def asked_of_sum(case: Case, vectors: Directions) -> float | None:
    """AUC of "is this row at any owner?", against rows that were left out of the run."""
    outside = case.rows_left_out()
    if outside is None:
        return None
    basis = basis_of(vectors, min(sum(case.plan.nodes), case.plan.d_x * 3 // 4))
    return auc(inside(case.rows_of_all(), basis), inside(outside, basis))


def words_of_sum(of_sum: float | None) -> str:
    """What the sum alone reveals, in words."""
    if of_sum is None:
        return "the sum cannot be attacked, since no row was left out of this run"
    return f"on the sum, against rows left out of the run: {of_sum:.3f}"
