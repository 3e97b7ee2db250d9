"""Generated rows in the form of real ones: sparse where those are, as long, as full."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, issparse
from torch import Tensor

from fedsage.graph.graph import squared_norms
from fedsage.shapes import FeatureRows, NodeFeatures

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
        words = max(1, round(x.nnz / x.shape[0]))
        least = generated.topk(min(words, generated.shape[1]), dim=1).values[:, -1:]
        generated = generated * (generated >= least)
    if match_norms:
        typical = float(np.sqrt(squared_norms(x).mean()))
        length = generated.norm(dim=1, keepdim=True).clamp_min(1e-12)
        generated = generated * (typical / length)
    rows = generated.cpu().numpy()
    return csr_array(rows) if issparse(x) else rows
