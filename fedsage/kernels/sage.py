"""GraphSage compiled for CPUs: an epoch of training, and queries on full neighborhoods.

The same formulas and the same draws as ``train.py`` and ``graphsage.py``, for two layers; the
tests compare both. Called only through the door. All arrays are float32 and C-contiguous;
weights, moments and the random stream are changed in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fedsage.kernels.compiling import OPTIONS, kept_on_disk
from fedsage.kernels.formulas import (
    DIRECT,
    L2,
    RELU,
    add_means,
    add_means_gradient,
    add_product,
    add_products,
    add_products_gradient,
    add_row_sum,
    add_transposed_product,
    draw_hop,
    fill,
    fill_rows,
    find_rows,
    gather_means,
    loss_and_gradient,
    mark_picked,
    normalize,
    normalize_gradient,
    relu_and_drop,
    relu_and_drop_gradient,
    transpose,
    update,
)  # fmt: skip
from fedsage.kernels.lowlevel import add_rows

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"


@njit(inline="always", **OPTIONS)
def steps(rng, nodes, y, links, features, weights, firsts, seconds, work, settings):
    """One pass over ``nodes`` (in order), one step for each batch; returns the summed loss.

    ``weights``, ``firsts`` and ``seconds`` (the moments) are tuples in the same order; ``work``
    is scratch memory as ``workspace.py`` lays it out; ``settings`` begins with the number of
    steps that the optimizer has made. All are plain tuples: cached code names the types of its
    arguments, and a class of ours that has moved could not be found when it is loaded.
    """
    indptr, indices = links
    x_indptr, x_indices, x_data, x_dense = features
    step, kind, eta, weight_decay, head, threshold = settings
    w1_own, w1_near, b1, w2_own, w2_near, b2, w_head, b_head = weights
    (
        position, inputs, every, starts, ends, needed,
        picked_1, picked_2, shares_1, shares_2, words,
        x_own, x_near, near, dnear, h1, dh1, around, daround, h2, dh2, length,
        logits, dlogits, w2_own_t, w2_near_t, w_head_t,
        g1, gb1, g2_own, g2_near, gb2, g_head, gb_head,
    ) = work  # fmt: skip
    f32 = np.float32
    dense = x_dense.shape[0] > 0
    fan_1, fan_2 = picked_1.shape[1], picked_2.shape[1]
    batch_size = picked_2.shape[0]
    loss = 0.0

    for begin in range(0, len(nodes), batch_size):
        b = min(batch_size, len(nodes) - begin)
        for i in range(b):
            inputs[i] = nodes[begin + i]
            position[inputs[i]] = i
        t1 = draw_hop(rng, b, fan_2, indptr, indices, position, inputs, b, picked_2)
        t0 = draw_hop(rng, t1, fan_1, indptr, indices, position, inputs, t1, picked_1)
        for i in range(t0):
            position[inputs[i]] = -1
        key = np.uint64(0)
        if threshold > 0:
            key = np.uint64(rng.random() * 2.0**53) * np.uint64(256)

        # layer 1: a sparse x is weighted first, once for every node, and then averaged
        fill_rows(h1, t1, b1)
        if dense:
            gather_means(x_own, x_near, x_dense, inputs, t1, picked_1, f32(1 / fan_1))
            add_product(h1, t1, x_own, w1_own)
            add_product(h1, t1, x_near, w1_near)
        else:
            mark_picked(needed, t0, picked_1, t1)
            fill(near, t0, 0)
            find_rows(starts, ends, x_indptr, inputs, t0)
            add_products(h1, starts, ends, x_indices, x_data, every, t1, w1_own)
            add_products(near, starts, ends, x_indices, x_data, needed, t0, w1_near)
            add_means(h1, t1, picked_1, shares_1, near)
        relu_and_drop(h1, t1, threshold, key, words)

        # layer 2
        fill(around, b, 0)
        add_means(around, b, picked_2, shares_2, h1)
        fill_rows(h2, b, b2)
        add_product(h2, b, h1, w2_own)
        add_product(h2, b, around, w2_near)
        if head == RELU:
            relu_and_drop(h2, b, threshold, key + np.uint64(1), words)
        elif head == L2:
            normalize(h2, b, length)

        # head and loss
        if head == DIRECT:
            loss += loss_and_gradient(h2, y, begin, b, dh2)
        else:
            transpose(w_head_t, w_head)
            fill_rows(logits, b, b_head)
            add_product(logits, b, h2, w_head_t)
            loss += loss_and_gradient(logits, y, begin, b, dlogits)
            add_transposed_product(g_head, dlogits, b, h2)
            add_row_sum(gb_head, dlogits, b)
            fill(dh2, b, 0)
            add_product(dh2, b, dlogits, w_head)
        if head == RELU:
            relu_and_drop_gradient(dh2, h2, b, threshold)
        elif head == L2:
            normalize_gradient(dh2, h2, b, length)

        # back through layer 2
        add_row_sum(gb2, dh2, b)
        add_transposed_product(g2_own, h1, b, dh2)
        add_transposed_product(g2_near, around, b, dh2)
        transpose(w2_own_t, w2_own)
        transpose(w2_near_t, w2_near)
        fill(dh1, t1, 0)
        fill(daround, b, 0)
        add_product(dh1, b, dh2, w2_own_t)
        add_product(daround, b, dh2, w2_near_t)
        add_means_gradient(dh1, b, picked_2, shares_2, daround)

        # back through layer 1, and the optimizer; both weights share one table of gradients
        step += 1
        how = (step, kind, eta, weight_decay)
        relu_and_drop_gradient(dh1, h1, t1, threshold)
        add_row_sum(gb1, dh1, t1)
        if dense:
            add_transposed_product(g1, x_own, t1, dh1)
        else:
            add_products_gradient(g1, starts, ends, x_indices, x_data, every, t1, dh1)
        update(w1_own.ravel(), g1.ravel(), firsts[0], seconds[0], how)
        if dense:
            add_transposed_product(g1, x_near, t1, dh1)
        else:
            fill(dnear, t0, 0)
            add_means_gradient(dnear, t1, picked_1, shares_1, dh1)
            add_products_gradient(g1, starts, ends, x_indices, x_data, needed, t0, dnear)
        update(w1_near.ravel(), g1.ravel(), firsts[1], seconds[1], how)
        update(b1, gb1, firsts[2], seconds[2], how)
        update(w2_own.ravel(), g2_own.ravel(), firsts[3], seconds[3], how)
        update(w2_near.ravel(), g2_near.ravel(), firsts[4], seconds[4], how)
        update(b2, gb2, firsts[5], seconds[5], how)
        update(w_head.ravel(), g_head.ravel(), firsts[6], seconds[6], how)
        update(b_head, gb_head, firsts[7], seconds[7], how)
    return loss


def epoch_with_stamp(stamp: int) -> Any:
    """``steps`` as a function that closes over ``stamp``; see ``kept_on_disk``."""

    def epoch(rng, nodes, y, links, features, weights, firsts, seconds, work, settings):
        if stamp == 0:
            return 0.0
        return steps(rng, nodes, y, links, features, weights, firsts, seconds, work, settings)

    return epoch


epoch = kept_on_disk(epoch_with_stamp)


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
def to_unit_length(h, i):
    """Scale row i to unit length, in place."""
    square = np.float32(0)
    for k in range(h.shape[1]):
        square += h[i, k] * h[i, k]
    length = max(np.sqrt(square), np.float32(1e-12))
    for k in range(h.shape[1]):
        h[i, k] /= length


def logits_with_stamp(stamp: int) -> Any:
    """The query, as a function that closes over ``stamp``; see ``kept_on_disk``.

    If several owners query at a time, none blocks another: one call releases Python's lock
    once, many short ones would wait for it many times.
    """

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
                to_unit_length(h2, 0)
            else:
                relu(h2, 0)
            set_row(out, i, b_head)
            add_rows(out, i, None, h2, 0, 1, 0, d2, w_head_t)

    return logits


logits = kept_on_disk(logits_with_stamp)
