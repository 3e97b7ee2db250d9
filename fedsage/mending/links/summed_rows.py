"""What of a node's row is summed: nothing that tells the rows of a sum apart.

Rows of words have few values each: 1, or one over the row's length. In a sum of two such rows
the values are those of one row, those of the other, and their totals, so whoever gets the sum
could read off which word is in which row. So of words only their presence is summed, and the
receiver weighs them by what they count in its own rows. Other columns are summed as they are.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, issparse

from fedsage.graph.feature_forms import FeatureForm, lengths_of
from fedsage.shapes import Array, NodeFeatures, NodeIds

MOSTLY = 0.25  # words: no larger share of the values differs from zero
SHORTEST, LONGEST = 0.6, 2.0  # of the mean length: a sum of such rows is near none of them


def words_from(x: NodeFeatures, form: FeatureForm) -> int:
    """The first column of words; as many as there are columns if none are."""
    first, columns = form.first, x.shape[1]
    words = x[:, first:]
    filled = words.nnz if issparse(words) else np.count_nonzero(words)
    scaled = form.length > 0  # each row by itself
    mostly_zero = filled <= MOSTLY * words.shape[0] * words.shape[1]
    return first if scaled or mostly_zero else columns


def summed_rows(x: NodeFeatures, words: int) -> NodeFeatures:
    """Rows as they are summed: of the columns from ``words`` on, only where they are not 0."""
    if not issparse(x):
        return np.concatenate([x[:, :words], np.sign(np.abs(x[:, words:]))], axis=1)
    made = csr_array(x, copy=True)
    made.eliminate_zeros()
    made.data[made.indices >= words] = 1
    return made


def may_be_summed(rows: NodeFeatures) -> NodeIds:
    """The nodes that are neither so short nor so long that a sum is nearly one row of it."""
    lengths = lengths_of(rows)
    mean = lengths.mean()
    fits = (lengths >= SHORTEST * mean) & (lengths <= LONGEST * mean) & (lengths > 0)
    return np.flatnonzero(fits)


def usual_values(x: NodeFeatures, words: int) -> Float[Array, " d_x"]:
    """What a word counts where it occurs, on average; 1 for all other columns.

    A word that occurs in no row here counts what words count on average.
    """
    total, present = (
        np.asarray(one.sum(axis=0), dtype=np.float64).reshape(-1)
        for one in (x, summed_rows(x, 0))
    )
    average = total[words:].sum() / max(present[words:].sum(), 1)
    found = np.where(present > 0, total / np.maximum(present, 1), average)
    found[:words] = 1
    return found.astype(np.float32)
