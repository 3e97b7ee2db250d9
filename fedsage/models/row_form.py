"""Generated rows made to look like real ones: as sparse, as long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, issparse
from torch import Tensor

from fedsage.graph.arrays import squared_norms
from fedsage.shapes import FeatureRows, NodeFeatures, SparseMatrix

ROWS_AT_A_TIME = 2048  # dense rows in memory at a time


@dataclass(frozen=True, slots=True)
class RowForm:
    """What real rows look like; generated ones adopt whatever is not None."""

    sparse: bool
    words: int | None  # values in a row that are not zero
    length: float | None


def row_form_of(x: NodeFeatures, keep_words: bool, match_norms: bool) -> RowForm:
    """The form of real features, computed once for everything that is generated.

    Args:
        x: Real features.
        keep_words: If they are sparse, keep only the largest values of each row, as many as
            real rows have on average.
        match_norms: Make every row as long as real ones are (root mean square).

    Note:
        The paper attaches fGen's output as it is. A mean of many neighbors is shorter and
        denser than any of them; the two switches undo that.
    """
    sparse = issparse(x)
    words = min(max(1, round(x.nnz / x.shape[0])), x.shape[1]) if sparse else None
    length = float(np.sqrt(squared_norms(x).mean())) if match_norms else None
    return RowForm(sparse, words if keep_words else None, length)


def like_real_rows(generated: Float[Tensor, "rows d_x"], form: RowForm) -> FeatureRows:
    """The rows as features of nodes."""
    if form.words is not None:
        return largest_values(generated, form.words, form.length)
    if form.length is not None:
        generated = generated * (form.length / lengths(generated))
    rows = generated.cpu().numpy()
    return csr_array(rows) if form.sparse else rows


def largest_values(
    generated: Float[Tensor, "rows d_x"], words: int, length: float | None
) -> SparseMatrix:
    """The ``words`` largest values of each row, scaled to ``length`` if one is given."""
    values, columns = generated.topk(words, dim=1)
    if length is not None:
        values = values * (length / lengths(values))
    pointer = np.arange(0, values.numel() + 1, words)
    rows = csr_array(
        (values.cpu().numpy().ravel(), columns.cpu().numpy().ravel(), pointer),
        shape=tuple(generated.shape),
    )
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def lengths(rows: Float[Tensor, "rows d"]) -> Float[Tensor, "rows 1"]:
    """The length of each row, as a column; never zero, so that one can divide by it."""
    return rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
