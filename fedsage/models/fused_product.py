"""Sparse × dense, compiled: sums of rows that are held in vectors."""

from __future__ import annotations

from typing import Any

from fedsage.compiled import kept_on_disk
from fedsage.models.fused_cache import SOURCES_STAMP
from fedsage.models.fused_rows import add_rows

# mypy: disable-error-code="no-untyped-def"


def with_stamp(stamp: int) -> Any:
    """The product, as a function that closes over ``stamp``; see ``kept_on_disk``."""

    def add_product(indptr, indices, data, h, out):
        """``out += a @ h``, where a has the rows that ``indptr`` tells of."""
        for i in range(len(indptr) - 1 if stamp > 0 else 0):
            add_rows(out, i, indices, data, 0, 1, indptr[i], indptr[i + 1], h)

    return add_product


add_product = kept_on_disk(with_stamp(SOURCES_STAMP))
