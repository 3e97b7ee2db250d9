"""The search for the nearest node on sparse features, compiled: no table of distances.

With s_u = g·x_u − ½‖x_u‖² the squared distance ‖g − x_u‖² is ‖g‖² − 2 s_u: the nearest node
has the largest s_u. That sum is held in vectors, one lane for each g, like sums of rows.
"""

from __future__ import annotations

from typing import Any

from fedsage.kernels.compiling import kept_on_disk
from fedsage.kernels.lowlevel import keep_nearest

# mypy: disable-error-code="no-untyped-def"


def with_stamp(stamp: int) -> Any:
    """The search, as a function that closes over ``stamp``; see ``kept_on_disk``."""

    def search(indptr, indices, data, halves, table, parts, best, found):
        """Run ``keep_nearest`` for parts of the table: pairs of a start and a width."""
        for start, width in parts if stamp > 0 else parts[:0]:
            keep_nearest(indptr, indices, data, halves, table, start, width, best, found)

    return search


search = kept_on_disk(with_stamp)
