"""Whether a row is among those that some vectors of features are made of."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fedsage.audit.case import Case, Rows
from fedsage.audit.finding import Attempt, Finding
from fedsage.audit.scores import auc, found_at
from fedsage.audit.seen import Directions, Party, basis_of
from fedsage.protocol.messages import OwnerId
from fedsage.shapes import Array

DRAWS = 8  # random bases that the verdict is compared with


def inside(rows: Rows, basis: Float[Array, "d_x rank"]) -> Float[Array, " rows"]:
    """The share of each row that lies in the span of a basis: 0 to 1."""
    return np.asarray(np.square(rows @ basis).sum(axis=1))


def asked_about(case: Case, attempt: Attempt, vectors: dict[Party, Directions]) -> Finding:
    """Test whether a row is at an owner, given vectors by party; None is the sum's party."""
    aucs, found, errors = [], [], []
    for i in case.attacked:
        basis = basis_of(vectors[i], case.plan.nodes[i])
        members, others = inside(case.rows_of(i), basis), inside(case.rows_of_others(i), basis)
        aucs.append(auc(members, others))
        found.append(found_at(members, others))
        errors.append(by_chance(case, i, basis.shape[1]))
    of_sum = asked_of_sum(case, vectors[None])
    error = float(np.linalg.norm(errors)) / len(errors)  # of the mean
    note = (
        f"a random span: 0.5 ± {error:.2f}; TPR at 1%: {np.mean(found):.3f}; "
        f"{words_of_sum(of_sum)}"
    )
    return attempt.auc(float(np.mean(aucs)), of_sum, note, error)


def by_chance(case: Case, owner: OwnerId, rank: int) -> float:
    """How far the AUC is from ½ if a basis tells nothing: the root mean square over draws.

    Rows of an owner are alike, so they lie in a random span together or not at all. That is
    much more than for as many rows that have nothing to do with each other.
    """
    stream, rows = case.stream("by chance", owner), case.rows_of(owner)
    others, found = case.rows_of_others(owner), []
    for _ in range(DRAWS):
        basis = np.linalg.qr(stream.standard_normal((case.plan.d_x, rank)))[0]
        found.append(auc(inside(rows, basis), inside(others, basis)) - 0.5)
    return float(np.sqrt(np.mean(np.square(found))))


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
