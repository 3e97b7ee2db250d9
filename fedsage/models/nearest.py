"""Which real node is nearest to a generated one: exact, in bounded memory.

The squared distance ‖g − x_u‖² = ‖g‖² − 2 g·x_u + ‖x_u‖² has one term that does not depend
on u, so the search is one product of the features with all generated rows.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, issparse
from torch import Tensor

from fedsage.graph.arrays import positions, squared_norms
from fedsage.kernels.door import nearest_rows
from fedsage.shapes import Array, FeatureRows, NodeFeatures, NodeIds, SparseMatrix


def nearest(
    rows: Float[Tensor, "rows d_x"],
    x: NodeFeatures,
    squares: Float[Array, " V"],
    max_bytes: int,
) -> Int[Array, " rows"]:
    """For each row, the node of ``x`` at the smallest distance; the first if several are equal.

    Args:
        rows: Generated features.
        x: Features of all nodes to choose from.
        squares: Their ``squared_norms``.
        max_bytes: Memory for the table of distances on dense features, whose nodes are
            processed in chunks. Sparse ones need no table.
    """
    columns = np.ascontiguousarray(rows.detach().cpu().numpy().T)  # no copy of fGen's output
    if issparse(x):
        return nearest_rows(columns, (x.indptr, x.indices, x.data), squares)
    best = np.full(len(rows), np.inf, dtype=np.float32)
    found = np.zeros(len(rows), dtype=np.int64)
    size = max(1, max_bytes // (columns.itemsize * max(len(rows), 1)))
    for start in range(0, x.shape[0], size):
        part = slice(start, start + size)
        distance = x[part] @ columns
        distance *= -2
        distance += squares[part, None]
        candidate = distance.argmin(axis=0)
        value = np.take_along_axis(distance, candidate[None], axis=0)[0]
        closer = value < best
        best[closer] = value[closer]
        found[closer] = candidate[closer] + start
    return found


def nearest_hidden(
    rows: Float[Tensor, "rows d_x"],
    of: Int[Array, " rows"],
    missing: SparseMatrix,
    x_hidden: NodeFeatures,
) -> tuple[NodeIds, NodeIds]:
    """For each row, the nearest of its own node's hidden neighbors.

    Args:
        rows: Generated features.
        of: The node that each row was generated for: a row of ``missing``.
        missing: Row v marks the hidden neighbors of node v, columns are rows of ``x_hidden``.
        x_hidden: Features of the hidden nodes.

    Returns:
        The rows whose node has a hidden neighbor, and for each of them the nearest one.
    """
    count = np.diff(missing.indptr)[of]
    row = np.repeat(np.arange(len(of)), count)
    candidate = missing.indices[positions(missing.indptr[of], count)]
    picked = x_hidden[candidate]
    products = paired_products(picked, rows.detach().cpu().numpy(), row)
    distance = squared_norms(picked) - 2 * products
    order = np.lexsort((distance, row))
    with_any, first = np.unique(row[order], return_index=True)
    return with_any, candidate[order][first]


def paired_products(
    x: FeatureRows, rows: Float[Array, "generated d_x"], of: Int[Array, " rows"]
) -> Float[Array, " rows"]:
    """The product of each row k of ``x`` with the row ``of[k]`` of ``rows``."""
    if not issparse(x):
        products: Float[Array, " rows"] = np.einsum("kd,kd->k", x, rows[of])
        return products
    terms = x.data * rows[np.repeat(of, np.diff(x.indptr)), x.indices]
    return np.asarray(csr_array((terms, x.indices, x.indptr), shape=x.shape).sum(axis=1))
