"""What of a node's row is summed: nothing that tells the rows of a sum apart.

Rows of words have few values each: 1, or one over the row's length. In a sum of two such rows
the values are those of one row, those of the other, and their totals, so whoever gets the sum
could read off which word is in which row. So of words only their presence is summed, and the
receiver weighs them by what they count in its own rows. Other columns are summed as they are.

If all words of a short row are in a long one, the words that a sum has twice are the short row.
So rows have nearly the same number of words: short ones are not summed, and of long ones some
words are left out. A row whose words are all in another one is then like it, and rows that are
alike stay hidden (``privacy/unlike.py``).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, hstack, issparse

from fedsage.graph.feature_forms import FeatureForm, lengths_of
from fedsage.rng import scrambled
from fedsage.shapes import Array, NodeFeatures, NodeIds

MOSTLY = 0.25  # words: no larger share of the values differs from zero
FEWEST, MOST = 0.6, 1.2  # words of a row, of the usual number
SHORTEST, LONGEST = 0.6, 2.0  # of the mean length: a sum of such rows is near none of them


def words_from(x: NodeFeatures, form: FeatureForm) -> int:
    """The first column of words; as many as there are columns if none are."""
    first, columns = form.first, x.shape[1]
    words = x[:, first:]
    filled = words.nnz if issparse(words) else np.count_nonzero(words)
    scaled = form.length > 0  # each row by itself
    mostly_zero = filled <= MOSTLY * words.shape[0] * words.shape[1]
    return first if scaled or mostly_zero else columns


def present(x: NodeFeatures, words: int) -> NodeFeatures:
    """Rows with 1 for what is not 0, in the columns from ``words`` on."""
    if not issparse(x):
        return np.concatenate([x[:, :words], np.sign(np.abs(x[:, words:]))], axis=1)
    made = csr_array(x, copy=True)
    made.eliminate_zeros()
    made.data[made.indices >= words] = 1
    return made


def usual_count(x: NodeFeatures, words: int) -> int:
    """How many words a row has: the median of those that have any."""
    count = words_in(x, words)
    return int(np.median(count[count > 0])) if count.any() else 0


def words_in(x: NodeFeatures, words: int) -> NodeIds:
    """How many words each row has."""
    return np.asarray((x[:, words:] != 0).sum(axis=1), dtype=np.int64).reshape(-1)


def may_be_summed(x: NodeFeatures, words: int, usual: int) -> NodeIds:
    """The nodes whose rows do not stand out in a sum.

    They have enough words, and rows with numbers are neither very short nor very long.
    """
    rows = present(x, words)
    lengths = lengths_of(rows)
    fits = (lengths > 0) & (words_in(x, words) >= FEWEST * usual)
    if words:
        mean = lengths.mean()
        fits &= (lengths >= SHORTEST * mean) & (lengths <= LONGEST * mean)
    return np.flatnonzero(fits)


def summed_rows(x: NodeFeatures, words: int, usual: int) -> NodeFeatures:
    """Rows as they are summed: presence of words, no more of them than ``MOST`` allows."""
    rows, most = present(x, words), int(MOST * usual)
    if (words_in(x, words) <= most).all():
        return rows
    kept = some_words(csr_array(rows[:, words:]), most)
    if not issparse(rows):
        return np.concatenate([rows[:, :words], kept.toarray()], axis=1)
    return hstack([rows[:, :words], kept]).tocsr()


def some_words(rows: csr_array, most: int) -> csr_array:
    """At most so many words of each row; which ones depends on the row alone."""
    count, row = np.diff(rows.indptr), np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    each = scrambled(rows.indices)
    total = np.zeros(rows.shape[0], np.uint64)
    np.add.at(total, row, each)
    order = np.lexsort((scrambled(each ^ total[row]), row))
    rank = np.arange(len(order)) - np.repeat(rows.indptr[:-1], count)
    kept = np.sort(order[rank < most])
    return csr_array((rows.data[kept], (row[kept], rows.indices[kept])), shape=rows.shape)


def usual_values(x: NodeFeatures, words: int) -> Float[Array, " d_x"]:
    """What a word counts where it occurs, on average; 1 for all other columns.

    A word that occurs in no row here counts what words count on average.
    """
    total, count = (
        np.asarray(one.sum(axis=0), dtype=np.float64).reshape(-1) for one in (x, present(x, 0))
    )
    average = total[words:].sum() / max(count[words:].sum(), 1)
    found = np.where(count > 0, total / np.maximum(count, 1), average)
    found[:words] = 1
    return found.astype(np.float32)
