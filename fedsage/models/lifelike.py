"""Generated rows in the form of real ones: sparse where those are, as long, as full."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, issparse
from torch import Tensor

from fedsage.graph.graph import squared_norms
from fedsage.shapes import FeatureRows, NodeFeatures, SparseMatrix

ROWS_AT_A_TIME = 2048  # dense rows that are there at once


def lifelike(
    generated: Float[Tensor, "rows d_x"], x: NodeFeatures, keep_words: bool, match_norms: bool
) -> FeatureRows:
    """The rows as features of nodes.

    Args:
        generated: What a generator put out.
        x: Real features.
        keep_words: Where those are sparse, keep only the largest values of each row, as many
            as real rows have on average.
        match_norms: Make every row as long as real ones are (root mean square).

    Note:
        The paper attaches fGen's output as it is. A mean of many neighbors is shorter and
        fuller than any of them; the two switches undo that.
    """
    if keep_words and issparse(x):
        return largest_values(generated, x, match_norms)
    if match_norms:
        generated = generated * (typical_length(x) / lengths(generated))
    rows = generated.cpu().numpy()
    return csr_array(rows) if issparse(x) else rows


def largest_values(
    generated: Float[Tensor, "rows d_x"], x: SparseMatrix, match_norms: bool
) -> SparseMatrix:
    """The largest values of each row, as many as rows of ``x`` have on average."""
    words = min(max(1, round(x.nnz / x.shape[0])), generated.shape[1])
    values, columns = generated.topk(words, dim=1)
    if match_norms:
        values = values * (typical_length(x) / lengths(values))
    pointer = np.arange(0, values.numel() + 1, words)
    rows = csr_array(
        (values.cpu().numpy().ravel(), columns.cpu().numpy().ravel(), pointer),
        shape=tuple(generated.shape),
    )
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def typical_length(x: NodeFeatures) -> float:
    """How long real rows are: root mean square."""
    return float(np.sqrt(squared_norms(x).mean()))


def lengths(rows: Float[Tensor, "rows d"]) -> Float[Tensor, "rows 1"]:
    """How long each row is, as a column; nothing is divided by zero with them."""
    return rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
