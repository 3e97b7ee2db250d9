"""The search for the nearest node on sparse features, compiled: no table of distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fedsage.compiled import OPTIONS, kept_on_disk
from fedsage.models.fused_cache import SOURCES_STAMP
from fedsage.models.fused_rows import add_rows

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@njit(**OPTIONS)
def keep_nearest(u, square, product, best, found):
    """Take over u, of that ‖x_u‖², where it is nearer than the best so far.

    Mostly it is not: to see that takes no branch and no store.
    """
    nearer = np.int32(0)
    for k in range(len(best)):
        nearer |= np.int32(square - np.float32(2) * product[k] < best[k])
    if nearer:
        for k in range(len(best)):
            distance = square - np.float32(2) * product[k]
            if distance < best[k]:
                best[k], found[k] = distance, u


def with_stamp(stamp: int) -> Any:
    """The search, as a function that closes over ``stamp``; see ``kept_on_disk``."""

    def search(x_indptr, x_indices, x_data, squares, queries, best, found):
        """For each column of ``queries`` the node at the smallest distance, first of equals.

        ``best`` becomes ‖x_u‖² − 2 x_u · query for that node u, ``found`` becomes u.
        """
        products = np.zeros((1, queries.shape[1]), np.float32)
        product = products[0]
        for u in range(len(squares) if stamp > 0 else 0):
            start, end = np.int64(x_indptr[u]), np.int64(x_indptr[u + 1])
            add_rows(products, 0, x_indices, x_data, 0, 1, start, end, queries)
            keep_nearest(u, squares[u], product, best, found)
            for k in range(len(product)):
                product[k] = 0

    return search


search = kept_on_disk(with_stamp(SOURCES_STAMP))
