"""One epoch of GraphSage training compiled for CPUs: sampling, forward, backward, optimizer.

The same formulas and the same draws as ``train.py`` and ``graphsage.py``, for two layers;
the tests hold both together. Called through ``fused.py`` and by nobody else. All arrays are
float32 and C-contiguous; weights, moments and the random stream are changed in place.

Inner loops are written out, for slices such as ``g[j] += x * d`` are several times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
RELU, L2, DIRECT = 0, 1, 2  # heads
ADAM, ADAMW, SGD = 0, 1, 2  # optimizers

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"


def compiled(**more: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function; keep it on disk for the next process where that can be written."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **OPTIONS, **more)(function)
        except RuntimeError:  # no folder for the cache
            return njit(**OPTIONS, **more)(function)

    return decorate


@compiled(forceinline=True)
def add_row(out, scale, row):
    """Out += scale · row."""
    for k in range(len(out)):
        out[k] += scale * row[k]


@compiled()
def draw_hop(rng, count, fanout, indptr, indices, position, inputs, total, picked):
    """Draw ``fanout`` neighbors for each of ``inputs[:count]``; new ones join ``inputs``.

    ``position`` says where a node stands in ``inputs``, -1 if it does not. ``picked[i, 0]``
    is -1 where node i has no neighbor. Returns how many inputs there are now.
    """
    for i in range(count):
        start = indptr[inputs[i]]
        degree = indptr[inputs[i] + 1] - start
        if degree == 0:
            picked[i, 0] = -1
            continue
        for j in range(fanout):
            u = indices[start + np.int64(rng.random() * degree)]
            if position[u] < 0:
                position[u] = total
                inputs[total] = u
                total += 1
            picked[i, j] = position[u]
    return total


@compiled()
def add_features(x_indptr, x_indices, x_data, node, weight, out):
    """Out += x_node · weight, over the filled columns."""
    for e in range(x_indptr[node], x_indptr[node + 1]):
        add_row(out, x_data[e], weight[x_indices[e]])


@compiled()
def add_feature_gradient(x_indptr, x_indices, x_data, node, gradient, out):
    """Out += x_nodeᵀ · gradient, over the filled columns."""
    for e in range(x_indptr[node], x_indptr[node + 1]):
        add_row(out[x_indices[e]], x_data[e], gradient)


@compiled()
def relu_and_drop(h, count, threshold, key):
    """ReLU, then dropout by ``key``; both in place."""
    width = h.shape[1]
    scale = np.float32(256 / (256 - threshold))
    word = np.uint64(0)
    start = np.uint64(key) * np.uint64(0xD1342543DE82EF95)
    e = 0
    for i in range(count):
        for k in range(width):
            if h[i, k] < 0:
                h[i, k] = 0
            if threshold > 0:
                if e & 7 == 0:
                    z = start + np.uint64((e >> 3) + 1) * np.uint64(0x9E3779B97F4A7C15)
                    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                    word = z ^ (z >> np.uint64(31))
                byte = (word >> np.uint64(8 * (e & 7))) & np.uint64(0xFF)
                h[i, k] = h[i, k] * scale if byte >= np.uint64(threshold) else np.float32(0)
                e += 1


@compiled()
def loss_and_gradient(logits, y, count, gradient):
    """Eq. (2) summed over the batch; ``gradient`` becomes that of its mean."""
    total = 0.0
    for i in range(count):
        top = logits[i, 0]
        for c in range(logits.shape[1]):
            top = max(top, logits[i, c])
        norm = np.float32(0)
        for c in range(logits.shape[1]):
            gradient[i, c] = np.exp(logits[i, c] - top)
            norm += gradient[i, c]
        total += np.log(norm) + top - logits[i, y[i]]
        for c in range(logits.shape[1]):
            gradient[i, c] = gradient[i, c] / norm / count
        gradient[i, y[i]] -= np.float32(1) / count
    return total


@compiled()
def update(weight, gradient, first, second, t, kind, eta, weight_decay):
    """One step of the optimizer on one weight; the gradient is set to zero."""
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


@compiled()
def epoch(
    rng, nodes, y, batch_size, fan_1, fan_2, indptr, indices,
    x_indptr, x_indices, x_data, x_dense,
    w1_own, w1_near, b1, w2_own, w2_near, b2, w_head, b_head,
    firsts, seconds, steps, kind, eta, weight_decay, head, threshold,
):  # fmt: skip
    """One pass over ``nodes`` (in order), one optimizer step a batch; the summed loss.

    ``firsts`` and ``seconds`` hold the moments of all weights one after the other, in the
    order of the arguments; ``steps`` counts the optimizer's steps, as a float.
    """
    f32 = np.float32
    dense = x_dense.shape[0] > 0
    d1, d2, num_classes = w1_own.shape[1], w2_own.shape[1], w_head.shape[0]
    batch_size = min(batch_size, len(nodes))
    most_1 = min(batch_size * (1 + fan_2), len(indptr) - 1)  # inputs are distinct nodes
    most_0 = min(most_1 * (1 + fan_1), len(indptr) - 1)
    position = np.full(len(indptr) - 1, -1, np.int32)
    inputs = np.empty(most_0, np.int64)
    picked_1 = np.empty((most_1, fan_1), np.int32)
    picked_2 = np.empty((batch_size, fan_2), np.int32)
    h1, dh1 = np.empty((most_1, d1), f32), np.empty((most_1, d1), f32)
    near, dnear = np.empty((most_0, d1), f32), np.empty((most_0, d1), f32)
    needed = np.zeros(most_0, np.bool_)
    around, daround = np.empty((batch_size, d1), f32), np.empty((batch_size, d1), f32)
    h2, dh2 = np.empty((batch_size, d2), f32), np.empty((batch_size, d2), f32)
    length = np.empty(batch_size, f32)
    dlogits = np.empty((batch_size, num_classes), f32)
    g1_own, g1_near, gb1 = np.zeros_like(w1_own), np.zeros_like(w1_near), np.zeros_like(b1)
    g2_own, g2_near, gb2 = np.zeros_like(w2_own), np.zeros_like(w2_near), np.zeros_like(b2)
    g_head, gb_head = np.zeros_like(w_head), np.zeros_like(b_head)
    share_1, share_2 = f32(1 / fan_1), f32(1 / fan_2)
    back_scale = f32(256 / (256 - threshold))
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
            needed[i] = False
        key = np.uint64(0)
        if threshold > 0:
            key = np.uint64(rng.random() * 2.0**53) * np.uint64(256)

        # layer 1
        for i in range(t1):
            h1[i] = b1
        if dense:
            own_rows = np.empty((t1, x_dense.shape[1]), f32)
            near_rows = np.zeros((t1, x_dense.shape[1]), f32)
            for i in range(t1):
                own_rows[i] = x_dense[inputs[i]]
                if picked_1[i, 0] >= 0:
                    for j in range(fan_1):
                        add_row(near_rows[i], share_1, x_dense[inputs[picked_1[i, j]]])
            h1[:t1] += np.dot(own_rows, w1_own) + np.dot(near_rows, w1_near)
        else:
            for i in range(t1):
                add_features(x_indptr, x_indices, x_data, inputs[i], w1_own, h1[i])
                if picked_1[i, 0] >= 0:
                    for j in range(fan_1):
                        needed[picked_1[i, j]] = True
            for i in range(t0):
                if needed[i]:
                    near[i] = 0
                    dnear[i] = 0
                    add_features(x_indptr, x_indices, x_data, inputs[i], w1_near, near[i])
            for i in range(t1):
                if picked_1[i, 0] >= 0:
                    for j in range(fan_1):
                        add_row(h1[i], share_1, near[picked_1[i, j]])
        relu_and_drop(h1, t1, threshold, key)

        # layer 2
        for i in range(b):
            around[i] = 0
            if picked_2[i, 0] >= 0:
                for j in range(fan_2):
                    add_row(around[i], share_2, h1[picked_2[i, j]])
        z2 = np.dot(h1[:b], w2_own) + np.dot(around[:b], w2_near)
        for i in range(b):
            for k in range(d2):
                h2[i, k] = z2[i, k] + b2[k]
        if head == RELU:
            relu_and_drop(h2, b, threshold, key + np.uint64(1))
        elif head == L2:
            for i in range(b):
                square = f32(0)
                for k in range(d2):
                    square += h2[i, k] * h2[i, k]
                length[i] = max(np.sqrt(square), f32(1e-12))
                for k in range(d2):
                    h2[i, k] /= length[i]

        # head and loss
        if head == DIRECT:
            loss += loss_and_gradient(h2, y[begin:], b, dlogits)
            dh2[:b] = dlogits[:b]
        else:
            logits = np.dot(h2[:b], w_head.T)
            for i in range(b):
                for c in range(num_classes):
                    logits[i, c] += b_head[c]
            loss += loss_and_gradient(logits, y[begin:], b, dlogits)
            g_head += np.dot(dlogits[:b].T, h2[:b])
            for i in range(b):
                for c in range(num_classes):
                    gb_head[c] += dlogits[i, c]
            dh2[:b] = np.dot(dlogits[:b], w_head)
        if head == RELU:
            for i in range(b):
                for k in range(d2):
                    dh2[i, k] = dh2[i, k] * back_scale if h2[i, k] > 0 else f32(0)
        elif head == L2:
            for i in range(b):
                along = f32(0)
                for k in range(d2):
                    along += h2[i, k] * dh2[i, k]
                for k in range(d2):
                    dh2[i, k] = (dh2[i, k] - h2[i, k] * along) / length[i]

        # back through layer 2
        for i in range(b):
            add_row(gb2, f32(1), dh2[i])
        g2_own += np.dot(h1[:b].T, dh2[:b])
        g2_near += np.dot(around[:b].T, dh2[:b])
        dh1[:b] = np.dot(dh2[:b], w2_own.T)
        dh1[b:t1] = 0
        daround[:b] = np.dot(dh2[:b], w2_near.T)
        for i in range(b):
            if picked_2[i, 0] >= 0:
                for j in range(fan_2):
                    add_row(dh1[picked_2[i, j]], share_2, daround[i])

        # back through layer 1
        for i in range(t1):
            for k in range(d1):
                dh1[i, k] = dh1[i, k] * back_scale if h1[i, k] > 0 else f32(0)
            add_row(gb1, f32(1), dh1[i])
        if dense:
            g1_own += np.dot(own_rows.T, dh1[:t1])
            g1_near += np.dot(near_rows.T, dh1[:t1])
        else:
            for i in range(t1):
                add_feature_gradient(x_indptr, x_indices, x_data, inputs[i], dh1[i], g1_own)
                if picked_1[i, 0] >= 0:
                    for j in range(fan_1):
                        add_row(dnear[picked_1[i, j]], share_1, dh1[i])
            for i in range(t0):
                if needed[i]:
                    add_feature_gradient(
                        x_indptr, x_indices, x_data, inputs[i], dnear[i], g1_near
                    )

        steps[0] += 1
        at = 0
        for weight, gradient in (
            (w1_own.ravel(), g1_own.ravel()), (w1_near.ravel(), g1_near.ravel()),
            (b1, gb1), (w2_own.ravel(), g2_own.ravel()), (w2_near.ravel(), g2_near.ravel()),
            (b2, gb2), (w_head.ravel(), g_head.ravel()), (b_head, gb_head),
        ):  # fmt: skip
            end = at + len(weight)
            update(
                weight, gradient, firsts[at:end], seconds[at:end], steps[0], kind, eta,
                weight_decay,
            )  # fmt: skip
            at = end
    return loss
