"""The parts of the compiled training step, each a formula of ``graphsage.py`` in loops.

All tables are float32 in C order. Whatever is called ``out``, or said to be changed, is changed
in place. Hot loops index with unsigned integers: numba lets negative ones count from the end,
and has to check the sign of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fedsage.kernels.compiling import OPTIONS
from fedsage.kernels.lowlevel import LINE, add_rows, prefetch, spread_row

RELU, L2, DIRECT = 0, 1, 2  # heads
ADAM, ADAMW, SGD = 0, 1, 2  # optimizers

AHEAD = 4  # nodes

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

part: Any = njit(fastmath={"contract"}, **OPTIONS)  # a · b + c may be rounded once


@part
def draw_hop(rng, count, fanout, indptr, indices, position, inputs, total, picked):
    """Draw ``fanout`` neighbors for each of ``inputs[:count]``; new ones join ``inputs``.

    ``position`` is the place of a node in ``inputs``, or -1 if it is not there.
    ``picked[i, 0]`` is -1 if node i has no neighbor. Returns how many inputs there are now.
    """
    for i in range(count):
        prefetch(indptr, inputs[min(i + 2 * AHEAD, count - 1)])
        soon = indptr[inputs[min(i + AHEAD, count - 1)]]
        prefetch(indices, soon)
        prefetch(indices, soon + LINE)
        start = indptr[inputs[i]]
        degree = indptr[inputs[i] + 1] - start
        if degree == 0:
            picked[i, 0] = -1
            continue
        for j in range(fanout):
            u = indices[start + np.int64(rng.random() * degree)]
            picked[i, j] = u
            prefetch(position, u)
    for i in range(count):
        if picked[i, 0] < 0:
            continue
        for j in range(fanout):
            u = picked[i, j]
            if position[u] < 0:
                position[u] = total
                inputs[total] = u
                total += 1
            picked[i, j] = position[u]
    return total


@part
def fill(out, count, value):
    """``out[i] = value`` for each i below ``count``."""
    for i in range(count):
        for k in range(out.shape[1]):
            out[i, k] = value


@part
def fill_rows(out, count, row):
    """``out[i] = row`` for each i below ``count``."""
    for i in range(count):
        for k in range(len(row)):
            out[i, k] = row[k]


@part
def add_means(out, count, picked, shares, h):
    """``out[i] +=`` the mean of ``h`` over the neighbors drawn for i."""
    fanout = picked.shape[1]
    flat = picked.ravel()
    for i in range(count):
        if picked[i, 0] >= 0:
            add_rows(out, i, flat, shares, 0, 1, i * fanout, (i + 1) * fanout, h)


@part
def add_means_gradient(out, count, picked, shares, gradient):
    """Backward of ``add_means``: each drawn neighbor gets its share of ``gradient[i]``."""
    fanout = picked.shape[1]
    flat = picked.ravel()
    for i in range(count):
        if picked[i, 0] >= 0:
            spread_row(gradient, i, flat, shares, 0, 1, i * fanout, (i + 1) * fanout, out)


@part
def mark_picked(needed, total, picked, count):
    """Mark which of ``total`` inputs are somebody's neighbor."""
    for i in range(total):
        needed[i] = False
    for i in range(count):
        if picked[i, 0] >= 0:
            for j in range(picked.shape[1]):
                needed[picked[i, j]] = True


@part
def find_rows(starts, ends, x_indptr, nodes, count):
    """Find where the features of each node begin and end."""
    for i in range(count):
        starts[i], ends[i] = x_indptr[nodes[i]], x_indptr[nodes[i] + 1]


@part
def prefetch_row(x_indices, x_data, start, end):
    """Prefetch the features of a node: rows are scattered in memory, which takes time."""
    for e in range(start, end, LINE):
        prefetch(x_indices, e)
        prefetch(x_data, e)


@part
def add_products(out, starts, ends, x_indices, x_data, wanted, count, weight):
    """``out[i] += x_node · weight`` for those of the first ``count`` nodes that are wanted."""
    for i in range(count):
        if wanted[i]:
            soon = min(i + AHEAD, count - 1)
            prefetch_row(x_indices, x_data, starts[soon], ends[soon])
            add_rows(out, i, x_indices, x_data, 0, 1, starts[i], ends[i], weight)


@part
def gather_means(own, near, x, nodes, count, picked, share):
    """Dense features of the first ``count`` nodes, and their means over neighbors drawn."""
    for i in range(count):
        for k in range(x.shape[1]):
            own[i, k] = x[nodes[i], k]
            near[i, k] = 0
        if picked[i, 0] >= 0:
            for j in range(picked.shape[1]):
                u = nodes[picked[i, j]]
                for k in range(x.shape[1]):
                    near[i, k] += share * x[u, k]


@part
def add_products_gradient(out, starts, ends, x_indices, x_data, wanted, count, gradient):
    """``out += xᵀ · gradient``, over the first ``count`` nodes that are wanted."""
    for i in range(count):
        if wanted[i]:
            soon = min(i + AHEAD, count - 1)
            prefetch_row(x_indices, x_data, starts[soon], ends[soon])
            spread_row(gradient, i, x_indices, x_data, 0, 1, starts[i], ends[i], out)


@part
def relu_and_drop(h, count, threshold, key, words):
    """ReLU, then dropout by ``key``; both in place. ``dropout.py`` defines what is kept.

    ``words`` is scratch memory for one number for each row and eight columns.
    """
    values = h.ravel()
    size = count * h.shape[1]
    if threshold == 0:
        for e in range(size):
            values[e] = max(values[e], np.float32(0))
        return
    start = np.uint64(key) * np.uint64(0xD1342543DE82EF95)
    for word in range((size + 7) // 8):
        z = start + np.uint64(word + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words[word] = z ^ (z >> np.uint64(31))
    scale = np.float32(256 / (256 - threshold))
    chances = words.view(np.uint8)
    for e in range(size):
        factor = scale if chances[e] >= threshold else np.float32(0)
        values[e] = max(values[e], np.float32(0)) * factor


@part
def relu_and_drop_gradient(gradient, h, count, threshold):
    """The gradient before ReLU and dropout, from the one after them; in place."""
    scale = np.float32(256 / (256 - threshold))
    before, behind = gradient.ravel(), h.ravel()
    for e in range(count * h.shape[1]):
        before[e] = before[e] * scale if behind[e] > 0 else np.float32(0)


@part
def normalize(h, count, length):
    """Scale each row to unit length, in place; stores its former length in ``length``."""
    for i in range(count):
        square = np.float32(0)
        for k in range(h.shape[1]):
            square += h[i, k] * h[i, k]
        length[i] = max(np.sqrt(square), np.float32(1e-12))
        for k in range(h.shape[1]):
            h[i, k] /= length[i]


@part
def normalize_gradient(gradient, h, count, length):
    """The gradient before ``normalize``, from the one after it; in place."""
    for i in range(count):
        along = np.float32(0)
        for k in range(h.shape[1]):
            along += h[i, k] * gradient[i, k]
        for k in range(h.shape[1]):
            gradient[i, k] = (gradient[i, k] - h[i, k] * along) / length[i]


@part
def add_product(out, count, a, table):
    """``out[i] += a[i] · table`` for each i below ``count``."""
    width = a.shape[1]
    for i in range(count):
        add_rows(out, i, None, a, i * width, 1, 0, width, table)


@part
def add_transposed_product(out, a, count, table):
    """``out += aᵀ · table``, both of ``count`` rows."""
    for k in range(out.shape[0]):
        add_rows(out, k, None, a, k, a.shape[1], 0, count, table)


@part
def transpose(out, table):
    """``out = tableᵀ``; if ``out`` has more columns, they stay as they are."""
    for k in range(table.shape[0]):
        for m in range(table.shape[1]):
            out[m, k] = table[k, m]


@part
def add_row_sum(out, rows, count):
    """``out += Σ_i rows[i]``, over the first ``count`` rows."""
    for i in range(count):
        for k in range(len(out)):
            out[k] += rows[i, k]


@part
def loss_and_gradient(logits, y, begin, count, gradient):
    """Eq. (2) summed over a batch whose labels begin at ``begin``.

    Writes the gradient of its mean to ``gradient``.
    """
    total = 0.0
    for i in range(count):
        top = logits[i, 0]
        for c in range(gradient.shape[1]):
            top = max(top, logits[i, c])
        norm = np.float32(0)
        for c in range(gradient.shape[1]):
            gradient[i, c] = np.exp(logits[i, c] - top)
            norm += gradient[i, c]
        total += np.log(norm) + top - logits[i, y[begin + i]]
        for c in range(gradient.shape[1]):
            gradient[i, c] = gradient[i, c] / norm / count
        gradient[i, y[begin + i]] -= np.float32(1) / count
    return total


@part
def update(weight, gradient, first, second, settings):
    """A step of the optimizer on one weight, as a flat array; resets its gradient to zero.

    ``settings`` are the step's number, the kind of optimizer, η and the weight decay.
    """
    t, kind, eta, weight_decay = settings
    eta, weight_decay = np.float32(eta), np.float32(weight_decay)
    one, eps = np.float32(1), np.float32(1e-8)
    beta_1, beta_2 = np.float32(0.9), np.float32(0.999)
    if kind == SGD:
        for e in range(len(weight)):
            weight[e] -= eta * (gradient[e] + weight_decay * weight[e])
            gradient[e] = 0
        return
    size = np.float32(eta / (1 - 0.9**t))
    root = np.float32(1 / np.sqrt(1 - 0.999**t))
    coupled = weight_decay if kind == ADAM else np.float32(0)
    shrink = one - eta * weight_decay if kind == ADAMW else one
    for e in range(len(weight)):
        g = gradient[e] + coupled * weight[e]
        m = beta_1 * first[e] + (one - beta_1) * g
        v = beta_2 * second[e] + (one - beta_2) * g * g
        first[e], second[e] = m, v
        weight[e] = shrink * weight[e] - size * m / (np.sqrt(v) * root + eps)
        gradient[e] = 0
