"""What a remote node's own row may be, as far as the receiver can guess from what it has.

In a sum of presence the receiver sees of each word how many of the rows have it. A word that
all rows have counts in full for each of them. Any other is shared out among the nodes of the
group: more of it goes to nodes whose neighbors here have that word, or may be of a class that
has it. What the nodes of a group get still adds up to the sum, unless one would get more than
one row can have. Nothing is asked for, and whoever gets a sum could always guess so.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, diags_array, issparse

from fedsage.mending.links.groups import Guesses
from fedsage.mending.links.received import HeldMeans
from fedsage.mending.links.summed_rows import present, usual_values
from fedsage.shapes import Array, NodeFeatures, NodeIds, SparseMatrix

NEIGHBORS = 0.3  # what words of neighbors weigh beside words of their likely classes
ANYBODY = 0.3  # what words of all own nodes weigh
LEAST = 1e-4  # for words that no own node has


def likely_rows(
    held: HeldMeans,
    here: NodeIds,
    node: NodeIds,
    x: NodeFeatures,
    guesses: Guesses,
    words: int,
) -> NodeFeatures:
    """A row for each remote node of ``held``; columns before ``words`` keep the group's mean.

    Args:
        held: The means that the receiver got.
        here: The own end of each known link.
        node: The other end, by its place in ``held``.
        x: The features of own nodes.
        guesses: What class each of them may have.
        words: The first column of which presence was summed.
    """
    if words == x.shape[1] or not len(held.ids):
        return held.means[held.group]
    rows = csr_array(csr_array(held.means)[held.group])
    at, word = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.indices
    size, group = np.bincount(held.group)[held.group[at]], held.group[at]
    value = np.where(word < words, 1, usual_values(x, words)[word])
    having = np.rint(size * rows.data / np.where(value == 0, 1, value)).clip(1, size)
    shape = rows.shape[0], x.shape[0]
    near = csr_array((np.ones(len(here)), (node, here)), shape=shape)
    weight = weights_of(near, csr_array(present(x, words)), guesses, at, word)
    total = csr_array((weight, (group, word)), shape=held.means.shape)
    most = np.minimum(having * weight / values_at(total, group, word), 1)
    each = np.where(having == size, 1, most) * value
    rows.data = np.where(word < words, rows.data, each).astype(np.float32)
    return rows if issparse(x) else rows.toarray()


def weights_of(
    near: SparseMatrix, own: SparseMatrix, guesses: Guesses, at: NodeIds, word: NodeIds
) -> Float[Array, " entries"]:
    """How likely each of some nodes has a word, up to a factor."""
    count = np.asarray(near.sum(axis=1)).reshape(-1)
    near = csr_array(diags_array(1 / np.maximum(count, 1)) @ near)
    of_class = own.T @ (guesses / guesses.sum(axis=0))  # words × classes
    likely = np.einsum("ec,ec->e", (near @ guesses)[at], of_class[word])
    beside = values_at(csr_array(near @ own), at, word)
    usual = np.asarray(own.mean(axis=0)).reshape(-1)[word]
    found: Array = likely + NEIGHBORS * beside + ANYBODY * usual + LEAST
    return found


def values_at(rows: SparseMatrix, at: NodeIds, column: NodeIds) -> Float[Array, " entries"]:
    """Some values of a sparse matrix."""
    return np.asarray(rows[at, column]).reshape(-1)
