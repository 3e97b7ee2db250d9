"""The only entrance to compiled code: one function each, on arrays alone.

Callers turn a model, a graph and settings into these arrays. A graph's links are
``(indptr, indices)``; features are ``(indptr, indices, values)`` if sparse, else one dense
table. All weights and tables are float32 in C order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from fedsage.kernels import formulas, linear, louvain, nearest, product, sage
from fedsage.kernels.lowlevel import WIDTHS
from fedsage.kernels.workspace import borrowed, sizes_of
from fedsage.shapes import Array, NodeIds

Arrays: TypeAlias = tuple[Array, ...]
HEADS = {"relu": formulas.RELU, "l2": formulas.L2, "direct": formulas.DIRECT}
OPTIMIZERS = {"adam": formulas.ADAM, "adamw": formulas.ADAMW, "sgd": formulas.SGD}


class Training(NamedTuple):
    """The settings of an epoch of two GraphSage layers."""

    head: str
    optimizer: str
    eta: float
    weight_decay: float
    threshold: int  # of dropout: so many of 256 hidden values become zero
    batch_size: int
    fanouts: tuple[int, ...]


def epoch(
    rng: np.random.Generator,
    nodes: NodeIds,
    y: Int[Array, " nodes"],
    links: Arrays,
    features: Arrays,
    weights: Arrays,
    moments: tuple[Arrays, Arrays],
    step: float,
    how: Training,
) -> float:
    """One pass over ``nodes`` in that order; returns the summed loss.

    Weights, both moments (flat) and the stream are changed in place. ``weights`` are those of
    two layers (own, neighbors', bias) and of the head, if there is one; ``step`` is how many
    steps the optimizer has made before.
    """
    classes = weights[-1].shape[0]
    settings = (
        step, OPTIMIZERS[how.optimizer], float(how.eta), float(how.weight_decay),
        HEADS[how.head], how.threshold,
    )  # fmt: skip
    sizes = sizes_of(
        len(links[0]) - 1, len(features) == 1, weights, how.batch_size, how.fanouts
    )
    with borrowed(sizes) as work:
        return float(
            sage.epoch(
                rng,
                nodes,
                y,
                frozen(links),
                in_one_form(features),
                *(with_head(arrays, classes) for arrays in (weights, *moments)),
                tuple(work),
                settings,
            )
        )


def linear_epoch(
    rows: Arrays,
    y: Int[Array, " rows"],
    weights: Arrays,
    moments: tuple[Arrays, Arrays],
    step: float,
    how: tuple[str, float, float],
    batch_size: int,
) -> float:
    """One pass of softmax regression over sparse rows in their order; the summed loss.

    Weights (a table and a bias) and both moments (flat) are changed in place. ``how`` is the
    optimizer, η and the weight decay.
    """
    optimizer, eta, weight_decay = how
    settings = step, OPTIMIZERS[optimizer], float(eta), float(weight_decay)
    given = frozen(as_indices(rows)), y, weights, *moments
    return float(linear.epoch(*given, batch_size, settings))


def logits(
    nodes: NodeIds, links: Arrays, features: Arrays, weights: Arrays, head: str
) -> Float[Array, "_ d_y"]:
    """The logits of ``nodes`` from two GraphSage layers and a head, with all neighbors."""
    out = np.empty((len(nodes), weights[-1].shape[0]), np.float32)
    *layers, w_head, b_head = with_head(weights, out.shape[1])
    sage.logits(
        read_only(np.ascontiguousarray(nodes)),
        frozen(links),
        in_one_form(features),
        (*layers, np.ascontiguousarray(w_head.T), b_head),
        HEADS[head],
        out,
    )
    return out


def nearest_rows(
    columns: Float[Array, "d_x columns"], features: Arrays, squares: Float[Array, " V"]
) -> Int[Array, " columns"]:
    """For each column, the nearest row of sparse features; the first if several are equal.

    ``squares`` are the squared lengths of those rows.
    """
    count = columns.shape[1]
    lacking = max(0, min(WIDTHS) - count)
    table = np.pad(columns, ((0, 0), (0, lacking))) if lacking else columns
    best = np.full(count + lacking, -np.inf, dtype=np.float32)
    found = np.zeros(count + lacking, dtype=np.int32)
    arrays = (*as_indices(features), squares / 2, table)
    nearest.search(*frozen(arrays), np.array([*spans(table.shape[1])]), best, found)
    return found[:count].astype(np.int64)


def spans(count: int) -> Iterator[tuple[int, int]]:
    """Where to begin, and how many columns to take, so that all are covered.

    The last span may overlap the one before it: searching for a column twice costs less than
    scanning all nodes for a few.
    """
    fitting = [width for width in WIDTHS if width <= count]
    start = 0
    while start < count:
        enough = [width for width in fitting if width >= count - start]
        width = min(enough, default=max(fitting))
        yield min(start, count - width), width
        start += width


def add_product(
    out: Float[Array, "rows d"],
    starts: Int[Array, " rows"],
    ends: Int[Array, " rows"],
    picked: Int[Array, " entries"],
    scale: Float[Array, " factors"],
    h: Float[Array, "_ d"],
    shared: bool = False,
) -> None:
    """``out[i] += Σ_e scale[e] · h[picked[e]]``, e from ``starts[i]`` to ``ends[i]``.

    With ``shared``, all of row i has the factor ``scale[i]``.
    """
    given = starts, ends, picked.astype(np.int32, copy=False), scale
    arrays = frozen(tuple(np.ascontiguousarray(array) for array in given))
    product.add_product(*arrays, shared, read_only(h), out)


def first_pass(
    indptr: Int[Array, " pointers"], indices: Int[Array, " twice_E"], order: NodeIds, least: int
) -> NodeIds:
    """Louvain's first pass, until fewer than ``least`` nodes move in a sweep: communities.

    Nodes are visited in ``order``. Moving v, of degree d, into community c adds
    (links from v to c) / m − d · (degrees in c) / 2m² to modularity; times 2m² both terms are
    integers, so that comparing them is exact, and every move is a gain.
    """
    degrees = np.diff(indptr)
    short = np.int32 if len(indices) < 2**31 else np.int64
    tally = np.zeros((len(order), 2), dtype=short)
    tally[:, 1] = degrees
    community = np.arange(len(order), dtype=np.int32)
    near = np.empty(int(degrees.max(initial=0)) + 1, dtype=np.int32)
    louvain.move(*frozen((indptr, indices)), order, least, community, tally, near)
    return community


@cache
def warm_up() -> None:
    """Compile, or load from the cache, what runs need, so that the first call need not."""
    links = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1], np.int32)
    eye = np.eye(3, dtype=np.float32)
    sparse = np.arange(4), np.arange(3, dtype=np.int32), np.ones(3, np.float32)
    shapes = (3, 2), (3, 2), 2, (2, 2), (2, 2), 2, (2, 2), 2
    weights = tuple(np.ones(shape, np.float32) for shape in shapes)
    moments = tuple(tuple(np.zeros(one.size, np.float32) for one in weights) for _ in range(2))
    how = Training("relu", "adam", 1e-3, 0.0, 0, 2, (1, 1))
    nodes, y = np.arange(3), np.array([0, 1, 0])
    rng = np.random.Generator(np.random.PCG64(0))
    epoch(rng, nodes, y, links, (eye,), weights, (moments[0], moments[1]), 0.0, how)
    logits(nodes, links, (eye,), weights, "relu")
    nearest_rows(eye, sparse, np.ones(3, np.float32))
    add_product(np.zeros((3, 3), np.float32), sparse[0][:-1], sparse[0][1:], *sparse[1:], eye)


def frozen(arrays: Arrays) -> Arrays:
    """Read-only views."""
    return tuple(read_only(array) for array in arrays)


def read_only(array: Array) -> Array:
    """A read-only view: the compiler treats it as a type of its own."""
    view = array.view()
    view.setflags(write=False)
    return view


def as_indices(features: Arrays) -> Arrays:
    """Sparse features with pointers and columns of the widths that compiled code expects."""
    pointers, columns, values = features
    return pointers.astype(np.int64, copy=False), columns.astype(np.int32, copy=False), values


def in_one_form(features: Arrays) -> Arrays:
    """The sparse features with an empty dense table, or the other way round."""
    if len(features) == 1:
        nothing = np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
        return frozen((*nothing, np.ascontiguousarray(features[0])))
    return frozen((*as_indices(features), np.empty((0, 0), np.float32)))


def with_head(arrays: Arrays, classes: int) -> Arrays:
    """The arrays with a placeholder for the head, if h^K are the logits."""
    if len(arrays) == 8:
        return arrays
    shape = (0,) if arrays[0].ndim == 1 else (classes, 0)
    return *arrays, np.empty(shape, np.float32), np.empty(0, np.float32)
