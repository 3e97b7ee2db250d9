"""Scratch memory for the compiled training step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

import numpy as np

from fedsage.kernels.lowlevel import LANES, LINE
from fedsage.shapes import Array

MOST_SIZES = 4  # kept at a time


class Workspace(NamedTuple):
    """Memory for one batch: what the kernel computes and forgets."""

    position: Array  # of a node among the inputs
    inputs: Array  # the distinct nodes of the batch, its neighbors and theirs
    every: Array  # of the inputs
    starts: Array  # of the features of each
    ends: Array
    needed: Array  # which of them are somebody's neighbor
    picked_1: Array
    picked_2: Array
    shares_1: Array
    shares_2: Array
    words: Array  # of random bits
    x_own: Array
    x_near: Array
    near: Array
    dnear: Array
    h1: Array
    dh1: Array
    around: Array
    daround: Array
    h2: Array
    dh2: Array
    length: Array
    logits: Array
    dlogits: Array
    w2_own_t: Array
    w2_near_t: Array
    w_head_t: Array
    g1: Array  # of one weight after the other
    gb1: Array
    g2_own: Array
    g2_near: Array
    gb2: Array
    g_head: Array
    gb_head: Array


class Sizes(NamedTuple):
    """What the memory for a batch depends on."""

    nodes: int  # of the graph, or more
    features: int
    dense: bool
    batch: int
    fanouts: tuple[int, int]
    widths: tuple[int, int]
    head: int  # width of the head's input, 0 if there is no head
    classes: int


def sizes_of(
    num_nodes: int,
    dense: bool,
    weights: tuple[Array, ...],
    batch_size: int,
    fanouts: tuple[int, ...],
) -> Sizes:
    """Sizes rounded up, so that graphs of about the same size share memory."""
    nodes = 1 << (num_nodes - 1).bit_length()
    first, second = fanouts
    d2 = len(weights[5])
    return Sizes(
        nodes=nodes,
        features=len(weights[0]),
        dense=dense,
        batch=min(batch_size, nodes),
        fanouts=(first, second),
        widths=(len(weights[2]), d2),
        head=d2 if len(weights) == 8 else 0,
        classes=len(weights[-1]),
    )


SPARE: dict[Sizes, list[Workspace]] = {}


@contextmanager
def borrowed(sizes: Sizes) -> Iterator[Workspace]:
    """Memory that nobody else uses until it is returned.

    Fresh memory costs up to a tenth of a short epoch, so it is kept for the next one. The
    kernel leaves it as it found it.
    """
    if len(SPARE) >= MOST_SIZES and sizes not in SPARE:
        SPARE.clear()
    spare = SPARE.setdefault(sizes, [])
    try:
        work = spare.pop()
    except IndexError:
        work = workspace(sizes)
    yield work
    spare.append(work)


def aligned(*size: int) -> Array:
    """Zeros that begin at a cache line, so that rows touch as few lines as possible."""
    count = prod(size)
    room = np.zeros(count + LINE, np.float32)
    start = -room.ctypes.data % (4 * LINE) // 4
    return room[start : start + count].reshape(size)


def workspace(sizes: Sizes) -> Workspace:
    """Memory for the largest possible batch."""
    fan_1, fan_2 = sizes.fanouts
    d_x, (d1, d2), classes, d_head = sizes.features, sizes.widths, sizes.classes, sizes.head
    b = sizes.batch
    t1 = min(b * (1 + fan_2), sizes.nodes)  # inputs are distinct nodes
    t0 = min(t1 * (1 + fan_1), sizes.nodes)
    dense = t1 if sizes.dense else 0
    padded = -(-classes // LANES) * LANES

    return Workspace(
        position=np.full(sizes.nodes, -1, np.int32),
        inputs=np.empty(t0, np.int64),
        every=np.ones(t0, np.bool_),
        starts=np.empty(t0, np.int64),
        ends=np.empty(t0, np.int64),
        needed=np.empty(t0, np.bool_),
        picked_1=np.empty((t1, fan_1), np.int32),
        picked_2=np.empty((b, fan_2), np.int32),
        shares_1=np.full(t1 * fan_1, 1 / fan_1, np.float32),
        shares_2=np.full(b * fan_2, 1 / fan_2, np.float32),
        words=np.empty(-(-max(t1 * d1, b * d2) // 8), np.uint64),
        x_own=aligned(dense, d_x),
        x_near=aligned(dense, d_x),
        near=aligned(t0, d1),
        dnear=aligned(t0, d1),
        h1=aligned(t1, d1),
        dh1=aligned(t1, d1),
        around=aligned(b, d1),
        daround=aligned(b, d1),
        h2=aligned(b, d2),
        dh2=aligned(b, d2),
        length=aligned(b),
        logits=aligned(b, padded),
        dlogits=aligned(b, classes),
        w2_own_t=aligned(d2, d1),
        w2_near_t=aligned(d2, d1),
        w_head_t=aligned(d_head, padded),
        g1=aligned(d_x, d1),
        gb1=aligned(d1),
        g2_own=aligned(d1, d2),
        g2_near=aligned(d1, d2),
        gb2=aligned(d2),
        g_head=aligned(classes, d_head),
        gb_head=aligned(classes if d_head else 0),
    )
