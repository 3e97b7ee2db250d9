"""Sparse × dense, compiled: sums of rows that are held in vectors."""

from __future__ import annotations

from typing import Any

from fedsage.kernels.compiling import kept_on_disk
from fedsage.kernels.lowlevel import add_rows

# mypy: disable-error-code="no-untyped-def"


def with_stamp(stamp: int) -> Any:
    """The product, as a function that closes over ``stamp``; see ``kept_on_disk``."""

    def add_product(starts, ends, indices, scale, shared, h, out):
        """``out[i] += Σ_e scale[e] · h[indices[e]]``, e from ``starts[i]`` to ``ends[i]``.

        With ``shared``, all of row i has the factor ``scale[i]``.
        """
        for i in range(len(starts) if stamp > 0 else 0):
            first, stride = (i, 0) if shared else (0, 1)
            add_rows(out, i, indices, scale, first, stride, starts[i], ends[i], h)

    return add_product


add_product = kept_on_disk(with_stamp)
