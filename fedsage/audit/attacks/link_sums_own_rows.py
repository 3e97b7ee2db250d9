"""Sums over remote neighbors, with what the receiver has at home: rows of its own.

Whoever knows one row of a sum of two knows the other one. A receiver may hold a copy of a row,
or a neighbor that has all of its words. No protection of the sum itself helps against that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool
from scipy.sparse import csr_array

from fedsage.audit.attacks.link_sums import CLOSE, GotSums, cosines, sums_of
from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.mending.links.groups import ALONE
from fedsage.mending.links.summed_rows import words_from
from fedsage.shapes import Array, NodeIds, SparseMatrix

ATTEMPT = Attempt(
    "link-sums-own-rows",
    "curious owner",
    "sums over two remote neighbors, and its own rows",
    "rows with cosine > 0.99",
)
BLOCK = 1000  # sums at a time
HALF = 0.501  # a word is rather in this row than in the other one


@attack("link-sums-own-rows")
def link_sums_own_rows(case: Case) -> Finding:
    """Rows of other owners, guessed from sums of two and what the receiver has at home.

    A row counts if any of the guesses is close. Those that own neighbors alone would give away
    are taken off.
    """
    if not case.setup.way.abroad or case.setup.graph is None:
        return ATTEMPT.not_run("this run does not use known links")
    if any(words_from(part.x, case.setup.form) for part in case.graphs):
        return ATTEMPT.not_run("there are features that are not words")
    rebuilt = members = 0
    for i in case.attacked if case.quick else range(len(case.graphs)):
        got = sums_of(case, case.setup.graph, i)
        first, second = pairs_of(got.group)
        close = np.zeros(len(first), bool)
        for start in range(0, len(first), BLOCK):
            some = slice(start, start + BLOCK)
            close[some] = guessed(got, first[some], second[some])
        members, rebuilt = members + len(first), rebuilt + int(close.sum())
    note = f"of {members} rows that are in sums of two"
    return ATTEMPT.found(rebuilt, 0, rebuilt > 0, note=note)


def pairs_of(group: NodeIds) -> tuple[NodeIds, NodeIds]:
    """Every node in a sum of two, and the other one of that sum."""
    nodes = np.flatnonzero(group != ALONE)
    nodes = nodes[np.bincount(group[nodes])[group[nodes]] == 2]
    first, second = nodes[np.argsort(group[nodes], kind="stable")].reshape(-1, 2).T
    return np.concatenate([first, second]), np.concatenate([second, first])


def guessed(got: GotSums, first: NodeIds, second: NodeIds) -> Bool[Array, " pairs"]:
    """Which first rows a guess is close to that own neighbors alone would not give away."""
    truth = got.rows[first]
    total = csr_array(truth + got.rows[second])
    beside = [where(got.near[some] @ got.own) for some in (first, second)]
    close = with_own_rows(total, got.own, truth)
    likely = got.likely[first]
    for guess in (*by_neighbors(total, *beside), likely, where(likely, HALF)):
        close |= cosines(guess, truth) > CLOSE
    known = cosines(beside[0], truth) > CLOSE
    pair, neighbor = got.near[first].nonzero()
    known[pair[cosines(got.own[neighbor], truth[pair]) > CLOSE]] = True
    return close & ~known


def by_neighbors(
    total: SparseMatrix, near: SparseMatrix, beyond: SparseMatrix
) -> Iterator[SparseMatrix]:
    """Words of a sum: in both rows, or in one and (not) in neighbors of this or that node."""
    anywhere, twice = where(total), where(total, 2)
    once = without(anywhere, twice)
    of_this = csr_array(once.multiply(near))
    yield csr_array(anywhere.multiply(near))
    yield twice + of_this
    yield twice + without(once, beyond)
    yield twice + without(of_this, beyond)
    yield twice + of_this + without(without(once, beyond), near)


def with_own_rows(
    total: SparseMatrix, own: SparseMatrix, truth: SparseMatrix
) -> Bool[Array, " pairs"]:
    """Whether an own row that fits into the sum is one of its rows, and so what is left."""
    anywhere, twice = where(total), where(total, 2)
    count, both = (np.asarray(one.sum(axis=1)).reshape(-1) for one in (own, twice))
    inside = (anywhere @ own.T).toarray() == count
    fits = inside & ((twice @ own.T).toarray() == both[:, None]) & (count > 0)
    pair, row = np.nonzero(fits)
    one, other = own[row], csr_array(total[pair] - own[row])
    close = np.maximum(cosines(one, truth[pair]), cosines(other, truth[pair])) > CLOSE
    found: Array = np.bincount(pair[close], minlength=total.shape[0]) > 0
    return found


def where(rows: SparseMatrix, fewest: float = 1.0) -> SparseMatrix:
    """1 where a value is not below that."""
    made = csr_array(rows, copy=True)
    made.data = (made.data >= fewest).astype(np.float32)
    made.eliminate_zeros()
    return made


def without(rows: SparseMatrix, others: SparseMatrix) -> SparseMatrix:
    """The words of rows that the others do not have."""
    made = csr_array(rows - rows.multiply(others))
    made.eliminate_zeros()
    return made
