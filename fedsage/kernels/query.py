"""Queries on full neighborhoods compiled for CPUs: two layers and the head in one call.

The same formulas as ``GraphSage.on_graph``; the tests compare both. If several owners query at
a time, none blocks another: one call releases Python's lock once, many short ones would wait
for it many times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fedsage.kernels.compiling import OPTIONS, kept_on_disk
from fedsage.kernels.formulas import DIRECT, L2
from fedsage.kernels.lowlevel import add_rows

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

part: Any = njit(inline="always", **OPTIONS)


@part
def mark_neighbors(out, v, links):
    """``out[u] = True`` for each neighbor u of v."""
    indptr, indices = links
    for e in range(indptr[v], indptr[v + 1]):
        out[indices[e]] = True


@part
def set_row(out, i, row):
    """``out[i] = row``."""
    for k in range(len(row)):
        out[i, k] = row[k]


@part
def add_features(out, v, features, weight):
    """``out[v] += x_v · weight``, for sparse or dense x."""
    x_indptr, x_indices, x_data, x_dense = features
    if x_dense.shape[0] > 0:
        width = x_dense.shape[1]
        add_rows(out, v, None, x_dense, v * width, 1, 0, width, weight)
    else:
        add_rows(out, v, x_indices, x_data, 0, 1, x_indptr[v], x_indptr[v + 1], weight)


@part
def add_mean(out, i, h, v, links, share):
    """``out[i] +=`` the mean of ``h`` over the neighbors of v; ``share`` is scratch memory."""
    indptr, indices = links
    share[0] = np.float32(1 / max(indptr[v + 1] - indptr[v], 1))
    add_rows(out, i, indices, share, 0, 0, indptr[v], indptr[v + 1], h)


@part
def relu(h, i):
    """ReLU of row i, in place."""
    for k in range(h.shape[1]):
        h[i, k] = max(h[i, k], np.float32(0))


@part
def normalize(h, i):
    """Scale row i to unit length, in place."""
    square = np.float32(0)
    for k in range(h.shape[1]):
        square += h[i, k] * h[i, k]
    length = max(np.sqrt(square), np.float32(1e-12))
    for k in range(h.shape[1]):
        h[i, k] /= length


def with_stamp(stamp: int) -> Any:
    """The query, as a function that closes over ``stamp``; see ``kept_on_disk``."""

    def logits(nodes, links, features, weights, head, out):
        """Write the logits of ``nodes[i]``, from all neighbors, to ``out[i]``.

        Layer 1 is computed only for ``nodes`` and their neighbors. The arguments are those of
        ``epoch``, except that the head's weights are transposed.
        """
        w1_own, w1_near, b1, w2_own, w2_near, b2, w_head_t, b_head = weights
        count, d1, d2 = len(links[0]) - 1 if stamp > 0 else 0, len(b1), len(b2)
        f32 = np.float32
        near, h1 = np.empty((count, d1), f32), np.empty((count, d1), f32)
        around, h2 = np.empty((1, d1), f32), np.empty((1, d2), f32)
        share, zero = np.empty(1, f32), np.zeros(d1, f32)
        asked, handing_on = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        for v in nodes:
            asked[v] = True
            mark_neighbors(asked, v, links)
        for v in range(count):
            if asked[v]:
                mark_neighbors(handing_on, v, links)

        # layer 1
        for v in range(count):
            if handing_on[v]:
                set_row(near, v, zero)
                add_features(near, v, features, w1_near)
        for v in range(count):
            if asked[v]:
                set_row(h1, v, b1)
                add_features(h1, v, features, w1_own)
                add_mean(h1, v, near, v, links, share)
                relu(h1, v)

        # layer 2 and the head
        for i in range(len(nodes)):
            v = nodes[i]
            set_row(around, 0, zero)
            add_mean(around, 0, h1, v, links, share)
            set_row(h2, 0, b2)
            add_rows(h2, 0, None, h1, v * d1, 1, 0, d1, w2_own)
            add_rows(h2, 0, None, around, 0, 1, 0, d1, w2_near)
            if head == DIRECT:
                set_row(out, i, h2[0])
                continue
            if head == L2:
                normalize(h2, 0)
            else:
                relu(h2, 0)
            set_row(out, i, b_head)
            add_rows(out, i, None, h2, 0, 1, 0, d2, w_head_t)

    return logits


logits = kept_on_disk(with_stamp)
