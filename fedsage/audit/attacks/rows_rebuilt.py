"""Rows rebuilt: rows are the sparsest vectors in the span of the updates, so search there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from fedsage.audit.case import Case, Rows
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.audit.seen import Party, basis_of, directions
from fedsage.shapes import Array

Basis = Float[Array, "d_x rank"]
FEWEST = 4  # features of a row: shorter ones can be guessed
CLOSE = 0.99  # cosine of a vector that counts as a row
STEPS, EVEN_STEPS = 8, 15
NOISE = 1e-8  # of the largest squared singular value
MOST_FILLED = 0.75  # of all features: a denser span is not searched
LEAST_SEEN = 0.05  # of a feature that must lie in the span to start from it
WORK = {True: 3e10, False: 1e12}  # multiplications that a search may take, if quick or not
ATTEMPT = Attempt(
    "rows-rebuilt",
    "curious server",
    "the updates of one owner in all rounds",
    "rows with cosine > 0.99",
)


@attack("rows-rebuilt")
def rows_rebuilt(case: Case) -> Finding:
    """Rebuild rows of an owner from nothing but its updates."""
    rebuilt = {i: count_rebuilt(case, i, case.rows_of(i)) for i in case.attacked}
    of_sum = count_rebuilt(case, None, case.rows_of_all())
    rows = sum(len(case.rows_of(i)) for i in case.attacked)
    few = "; a quick search tries few starts" if case.quick else ""
    note = f"of {rows} rows; from the sum over all owners: {of_sum}{few}"
    total = sum(rebuilt.values())
    return ATTEMPT.found(total, 0, total > 0, of_sum, note)


def count_rebuilt(case: Case, party: Party, truth: Rows) -> int:
    """How many of the true rows a search finds."""
    nodes = sum(case.plan.nodes) if party is None else case.plan.nodes[party]
    basis = basis_of(directions(case, party, plain=True), nodes, NOISE)
    if basis.shape[1] > MOST_FILLED * case.plan.d_x:
        return 0  # almost every vector lies in it
    most = round(WORK[case.quick] / (STEPS * basis.shape[0] * basis.shape[1] ** 2))
    found = np.concatenate([even_vectors(basis), sparse_vectors(basis, starts(basis, most))])
    cosines = found @ truth[(truth != 0).sum(axis=1) >= FEWEST].T
    return len(np.unique(cosines.argmax(axis=1)[cosines.max(axis=1) > CLOSE]))


def even_vectors(basis: Basis) -> Float[Array, "found d_x"]:
    """Vectors of zeros and one other value that almost lie in the span, for every feature.

    This is quick but finds few rows, and only rows of zeros and ones.
    """
    inside = basis @ basis.T
    vectors = inside[:, np.linalg.norm(basis, axis=1) > LEAST_SEEN]
    for step in range(EVEN_STEPS):
        least = (0.3 + 0.25 * step / EVEN_STEPS) * np.abs(vectors).max(axis=0)
        filled = (vectors > least).astype(np.float64)
        vectors = inside @ filled
    return np.asarray((filled / np.linalg.norm(filled, axis=0).clip(1)).T)


def starts(basis: Basis, most: int) -> Iterable[int]:
    """Features that occur at all, the rarest first: few rows have them."""
    seen = np.linalg.norm(basis, axis=1)
    order = np.argsort(seen, kind="stable")
    return [int(one) for one in order[seen[order] > LEAST_SEEN][:most]]


def sparse_vectors(basis: Basis, features: Iterable[int]) -> Float[Array, "found d_x"]:
    """For each feature, roughly the sparsest vector of the span that has it, of length one."""
    found = [sparsest_with(basis, feature) for feature in features]
    return np.asarray(found).reshape(-1, len(basis))


def sparsest_with(basis: Basis, feature: int) -> Float[Array, " d_x"]:
    """The smallest sum of absolute values, by iteratively reweighted least squares."""
    own = basis[feature]
    vector = basis @ own / (own @ own)
    for step in range(STEPS):
        weights = 1 / (np.abs(vector) + max(0.3 * 0.5**step, 1e-3))
        solved = np.linalg.solve(basis.T @ (weights[:, None] * basis), own)
        vector = basis @ solved / (own @ solved)
    return np.asarray(vector / np.linalg.norm(vector))
