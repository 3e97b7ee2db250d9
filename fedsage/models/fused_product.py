"""Sparse × dense and its gradient, compiled: sums of rows that are held in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsage.models.fused_cache import SOURCES_STAMP, kept_on_disk
from fedsage.models.fused_rows import add_rows, spread_row

# mypy: disable-error-code="no-untyped-def"


def with_stamp(stamp: int) -> tuple[Any, Any]:
    """Both products, as functions that close over ``stamp``; see ``kept_on_disk``."""

    def forward(indptr, indices, data, h, out):
        """``out += a @ h``, for the rows of ``a`` that ``indptr`` tells of."""
        for i in range(len(indptr) - 1 if stamp > 0 else 0):
            start, end = np.int64(indptr[i]), np.int64(indptr[i + 1])
            add_rows(out, i, indices, data, 0, 1, start, end, h)

    def backward(indptr, indices, data, gradient, out):
        """``out += aᵀ @ gradient``."""
        for i in range(len(indptr) - 1 if stamp > 0 else 0):
            start, end = np.int64(indptr[i]), np.int64(indptr[i + 1])
            spread_row(gradient, i, indices, data, 0, 1, start, end, out)

    return forward, backward


forward, backward = (kept_on_disk(function) for function in with_stamp(SOURCES_STAMP))
