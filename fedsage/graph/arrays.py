"""The arrays that graphs are made of: rows of a CSR, pairs packed and sorted, and checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array, issparse

from fedsage.errors import DataError
from fedsage.readable import counted
from fedsage.shapes import Array, EdgeIndex, NodeFeatures, NodeIds, NodeLabels, SparseMatrix

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


def checked_size(x: Array | SparseMatrix, name: str) -> int:
    """The number of nodes that have features; refuses anything but a table of numbers."""
    if len(x.shape) != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise DataError(
            f"{name}: features must be a table of nodes × features, but have shape "
            f"{tuple(x.shape)}. Give at least one node and one feature."
        )
    if x.dtype.kind not in "fiub":
        raise DataError(
            f"{name}: features must be numbers, but have type {x.dtype}. Turn words into "
            "numbers (one column per word) and complex numbers into pairs."
        )
    return int(x.shape[0])


def checked_features(x: Array | SparseMatrix, name: str) -> NodeFeatures:
    """Features as float32, sparse if they came sparse; refuses NaN and infinity."""
    sparse = issparse(x)
    features: NodeFeatures = (
        csr_array(x, dtype=np.float32, copy=True)
        if sparse
        else np.array(x, dtype=np.float32, order="C")
    )
    values: Array = features.data if sparse else features.ravel()
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        starts: Array = features.indptr if sparse else np.arange(0, values.size, x.shape[1])
        row = int(np.searchsorted(starts, bad[0], side="right")) - 1
        raise DataError(
            f"{name}: found {counted(len(bad), 'NaN or infinite feature value')}, the first "
            f"at node {row}. Replace them (by 0 or the mean of the column) and try again."
        )
    if not sparse:
        features.setflags(write=False)
        return features
    features.sum_duplicates()
    features.eliminate_zeros()
    if max(features.nnz, *features.shape) < 2**31:  # short positions make products faster
        features.indices = features.indices.astype(np.int32, copy=False)
        features.indptr = features.indptr.astype(np.int32, copy=False)
    for array in (features.data, features.indices, features.indptr):
        array.setflags(write=False)
    return features


def checked_labels(
    y: Array, class_names: Sequence[str], num_nodes: int, name: str
) -> tuple[NodeLabels, tuple[str, ...]]:
    """Labels as int64 and a name for each class; refuses labels without a class."""
    if np.ndim(y) != 1:
        raise DataError(
            f"{name}: labels must be one number per node, but have shape {np.shape(y)}. Give "
            "the number of the class, starting at 0, and -1 where it is not known."
        )
    if len(y) != num_nodes:
        raise DataError(
            f"{name}: there are {counted(num_nodes, 'node')} with features, but "
            f"{counted(len(y), 'label')}. Give one label per node, -1 where it is not known."
        )
    if not np.issubdtype(np.asarray(y).dtype, np.integer):
        raise DataError(
            f"{name}: labels must be whole numbers, but have type {np.asarray(y).dtype}. "
            "Number the classes from 0, and write -1 where the class is not known."
        )
    labels = np.array(y, dtype=np.int64)
    most = min(int(labels.max(initial=-1)) + 1, num_nodes)
    names = tuple(str(c) for c in class_names) or tuple(str(c) for c in range(most))
    bad = np.flatnonzero((labels < -1) | (labels >= len(names)))
    if len(bad):
        raise DataError(
            f"{name}: found {counted(len(bad), 'label')} out of range, the first, "
            f"{labels[bad[0]]}, at node {bad[0]}; the {len(names)} classes are numbered 0 to "
            f"{len(names) - 1}. Write -1 where the class is not known."
        )
    return labels, names


def checked_links(edge_index: Array, num_nodes: int, name: str) -> EdgeIndex:
    """Links as int32 pairs; refuses links to nodes that do not exist."""
    links = np.asarray(edge_index)
    if links.ndim != 2 or links.shape[0] != 2 or not np.issubdtype(links.dtype, np.integer):
        raise DataError(
            f"{name}: links must be 2 × E whole numbers, but have shape {links.shape} and "
            f"type {links.dtype}. Put one end of each link in row 0, the other in row 1."
        )
    if links.size and (links.min() < 0 or links.max() >= num_nodes):
        bad = np.flatnonzero(((links < 0) | (links >= num_nodes)).any(axis=0))
        first = links[:, bad[0]].tolist()
        raise DataError(
            f"{name}: found {counted(len(bad), 'link')} to nodes that do not exist, the first "
            f"{first[0]}–{first[1]} (link {bad[0]}); nodes are numbered 0 to "
            f"{num_nodes - 1}. Remove these links or add the nodes."
        )
    return links.astype(np.int32, copy=False)
