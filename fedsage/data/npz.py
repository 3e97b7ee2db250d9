"""Graphs ↔ plain ``.npz`` files: arrays only, no pickles, written all or nothing."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from fedsage.errors import DataError
from fedsage.files import write_atomically
from fedsage.graph.graph import Graph
from fedsage.graph.split import PARTS
from fedsage.shapes import Array

VALUES = ("edge_weight", "edge_time")


def graph_arrays(graph: Graph) -> dict[str, Array]:
    """The arrays that make up a graph file."""
    arrays = {
        "edge_index": graph.links,
        "y": graph.y,
        "class_names": np.array(graph.class_names),
    }
    for key, values in zip(VALUES, graph.link_values.both, strict=True):
        if values is not None:
            arrays[key] = values
    if issparse(graph.x):
        arrays |= {
            "x_data": graph.x.data,
            "x_indices": graph.x.indices,
            "x_indptr": graph.x.indptr,
            "x_shape": np.array(graph.x.shape),
        }
    else:
        arrays["x"] = graph.x
    return arrays


def save_graph(graph: Graph, path: Path | str, **extra: Array) -> None:
    """Write ``graph`` and its split as ``.npz``, together with any ``extra`` arrays."""
    split = {part: getattr(graph.split, part) for part in PARTS} if graph.split else {}
    arrays: dict[str, Any] = graph_arrays(graph) | split | extra
    write_atomically(Path(path), lambda file: np.savez_compressed(file, **arrays))


def load_graph(path: Path | str) -> Graph:
    """Read and check a graph written by :func:`save_graph` or by hand.

    Keys: ``edge_index`` (2 × E), optional ``y`` and ``class_names``, and the features either
    dense as ``x`` or as CSR in ``x_data``, ``x_indices``, ``x_indptr``, ``x_shape``; for a
    split of its own ``train``, ``val`` and ``test``, masks or node numbers; for links
    ``edge_weight``, positive numbers, and ``edge_time``, days since 2000.
    """
    path = Path(path)
    return graph_in(read_arrays(path), path)


def graph_in(arrays: dict[str, Array], path: Path) -> Graph:
    """Check the arrays of a graph file, and make the graph."""
    sparse = {"x_data", "x_indices", "x_indptr", "x_shape"}
    if "edge_index" not in arrays or not ("x" in arrays or sparse <= set(arrays)):
        raise DataError(
            f"{path} is not a graph file: it holds {', '.join(sorted(arrays)) or 'nothing'}. "
            f"It needs edge_index, and x (dense) or {', '.join(sorted(sparse))} (CSR); "
            "training also needs y."
        )
    x = arrays["x"] if "x" in arrays else checked_csr(arrays, path)
    y = arrays.get("y", np.full(x.shape[0] if x.ndim else 0, -1))
    names = [str(name) for name in np.atleast_1d(arrays.get("class_names", []))]
    values = (arrays.get(key) for key in VALUES)
    graph = Graph.from_arrays(x, arrays["edge_index"], y, names, path.name, *values)
    own = set(PARTS) <= set(arrays)
    return graph.with_split(*(arrays[part] for part in PARTS)) if own else graph


def read_arrays(path: Path) -> dict[str, Array]:
    """Every array of an ``.npz`` file."""
    try:
        with path.open("rb") as opened, np.lib.npyio.NpzFile(opened) as file:
            arrays = {key: file[key] for key in file.files}
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Check the path.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read as .npz of plain arrays ({error}). "
            "It may be truncated or hold Python objects: write it again with numpy.savez."
        ) from None
    if strange := [key for key, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise DataError(f"{path}: {strange[0]} is not an array. Write it with numpy.savez.")
    return arrays


def checked_csr(arrays: dict[str, Array], path: Path) -> csr_array:
    """The sparse features, provided that the three arrays fit together."""
    try:
        shape = tuple(int(n) for n in arrays["x_shape"])
        x = csr_array((arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]), shape=shape)
        x.check_format(full_check=True)
    except (ValueError, IndexError, TypeError) as error:
        raise DataError(
            f"{path}: the sparse features are inconsistent ({error}). "
            "x_data, x_indices and x_indptr must be one CSR matrix of shape x_shape."
        ) from None
    return x


def content_sha256(graph: Graph) -> str:
    """A checksum of a graph's content, however its file is compressed."""
    digest = hashlib.sha256()
    for key, array in sorted(graph_arrays(graph).items()):
        wide = array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array
        digest.update(f"{key} {wide.shape} {wide.dtype.str}".encode())
        digest.update(np.ascontiguousarray(wide).tobytes())
    return digest.hexdigest()
