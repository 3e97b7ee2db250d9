"""The arrays that graphs are made of: rows of a CSR, pairs of nodes packed and sorted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array, issparse

from fedsage.shapes import Array, EdgeIndex, NodeFeatures, NodeIds

AT_ONCE = 2**17  # numbers: a cache holds this many, and what is computed from them


def frozen(array: Array) -> Array:
    """The same array, no longer writable."""
    array.setflags(write=False)
    return array


def symmetric(
    links: EdgeIndex, num_nodes: int
) -> tuple[Int[Array, " pointers"], Int[Array, " twice_E"]]:
    """``indptr`` and ``indices`` of a graph: links both ways, sorted, no loops or duplicates.

    Sorting pairs goes through memory in order; writing each into its row would jump around,
    which takes several times as long once the graph is larger than the cache.
    """
    links = links if (apart := links[0] != links[1]).all() else links[:, apart]
    keys = np.empty((2, links.shape[1]), dtype=np.int64)
    paired(links[0], links[1], out=keys[0])
    paired(links[1], links[0], out=keys[1])
    keys = distinct(keys.ravel())
    firsts_of_nodes = np.arange(num_nodes + 1, dtype=np.int64) << 32
    return np.searchsorted(keys, firsts_of_nodes), keys.astype(np.int32)


def paired(
    first: Int[Array, " n"], second: Int[Array, " n"], out: Int[Array, " n"] | None = None
) -> Int[Array, " n"]:
    """Pairs of numbers below 2³¹, each packed into one number; they sort as the pairs do."""
    keys = np.left_shift(first, 32, out=out, dtype=np.int64)
    keys |= second
    return keys


def parted(keys: Int[Array, " n"]) -> Int[Array, "2 n"]:
    """The pairs that :func:`paired` packed, as int32."""
    pairs = np.empty((2, len(keys)), dtype=np.int32)
    np.right_shift(keys, 32, out=pairs[0], casting="unsafe")
    pairs[1] = keys  # its lower half
    return pairs


def distinct(keys: Int[Array, " n"]) -> Int[Array, " m"]:
    """The distinct keys in order (sorts in place); faster than ``np.unique`` for many keys."""
    keys.sort()
    return keys if (new := firsts(keys)).all() else keys[new]


def firsts(keys: Int[Array, " n"]) -> Bool[Array, " n"]:
    """Which of the sorted keys differ from the one before."""
    new = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return new


def chunks(total: int, each: float = 1.0) -> Iterator[slice]:
    """Slices over ``total`` items of ``each`` numbers, few enough for a cache to hold."""
    size = int(AT_ONCE / max(each, 1.0)) + 1
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def positions(start: Int[Array, " rows"], count: Int[Array, " rows"]) -> Int[Array, " total"]:
    """``count[k]`` numbers from ``start[k]`` on, for every k: positions of rows in a CSR."""
    return np.repeat(start - np.cumsum(count) + count, count) + np.arange(count.sum())


def dense_columns(x: NodeFeatures, nodes: NodeIds) -> Float[Array, "d_x columns"]:
    """The features of some nodes as a dense matrix, one column per node.

    SciPy takes several times as long for this.
    """
    if not issparse(x):
        return np.ascontiguousarray(x[nodes].T)
    start, count = x.indptr[nodes], x.indptr[nodes + 1] - x.indptr[nodes]
    at = positions(start, count)
    columns = np.zeros((x.shape[1], len(nodes)), np.float32)
    columns[x.indices[at], np.repeat(np.arange(len(nodes)), count)] = x.data[at]
    return columns


def squared_norms(x: NodeFeatures) -> Float[Array, " V"]:
    """‖x_u‖² of every node."""
    if issparse(x):
        squared = csr_array((x.data**2, x.indices, x.indptr), shape=x.shape)
        return np.asarray(squared.sum(axis=1), dtype=np.float32).ravel()
    squares: Float[Array, " V"] = np.einsum("vd,vd->v", x, x)
    return squares
