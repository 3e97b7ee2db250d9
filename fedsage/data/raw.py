"""Reads the published raw files of the four datasets as graphs.

Cora comes as two text tables, CiteSeer and PubMed as Planetoid's pickles, MSAcademic as
``.npz``. A pickle is opened only after its checksum has been verified (``datasets.py``), and
then by an unpickler that admits the array classes in these files and nothing else.
"""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
from scipy.sparse import csr_array, vstack

from fedsage.errors import DataError
from fedsage.graph.graph import Graph
from fedsage.shapes import Array, SparseMatrix

PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
CITESEER_CLASSES = ("Agents", "AI", "DB", "IR", "ML", "HCI")
MSACADEMIC_CLASSES = (
    "bioinformatics", "machine_learning", "computer_vision", "NLP", "graphics", "networks",
    "security", "databases", "data_mining", "game_theory", "HCI", "information_theory",
    "medical_informatics", "robotics", "theoretical_cs",
)  # fmt: skip
PUBMED_CLASSES = ("Experimental", "Type1", "Type2")


class BareCsr:
    """A stand-in for SciPy's old CSR class: keeps the arrays it was pickled with."""

    def __setstate__(self, state: Mapping[str, Array]) -> None:
        self.matrix = csr_array(
            (state["data"], state["indices"], state["indptr"]), shape=state["_shape"]
        )


def empty_array(subtype: type, shape: tuple[int, ...], dtype: str) -> Array:
    """What NumPy's unpickling starts from: an array for its state to fill."""
    return np.ndarray.__new__(np.ndarray, shape, np.dtype(dtype))


ADMITTED: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy.core.multiarray", "_reconstruct"): empty_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("scipy.sparse.csr", "csr_matrix"): BareCsr,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}


class ArrayUnpickler(pickle.Unpickler):
    """Admits arrays, sparse matrices and dictionaries of lists; refuses everything else."""

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        """The stand-in for a class named in the file."""
        key = module.replace("builtins", "__builtin__"), name
        if key not in ADMITTED:
            raise DataError(
                f"The file asks for {module}.{name}, which no Planetoid file contains. "
                "Delete it and download it again."
            )
        return ADMITTED[key]


def unpickle(content: bytes) -> object:
    """The object in a Planetoid file; sparse matrices as SciPy arrays."""
    loaded = ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    return loaded.matrix if isinstance(loaded, BareCsr) else loaded


def read_cora(files: Mapping[str, bytes]) -> Graph:
    """Cora from ``cora.content`` (id, words, class) and ``cora.cites`` (cited, citing)."""
    table = [line.split("\t") for line in files["cora.content"].decode().splitlines()]
    ids = {row[0]: v for v, row in enumerate(table)}
    names = sorted({row[-1] for row in table})
    x = np.array([row[1:-1] for row in table], dtype=np.float32)
    y = np.array([names.index(row[-1]) for row in table])
    cites = [line.split() for line in files["cora.cites"].decode().splitlines()]
    links = np.array([[ids[a], ids[b]] for a, b in cites if a in ids and b in ids]).T
    return Graph.from_arrays(csr_array(x), links, y, names, name="cora")


def read_planetoid(
    files: Mapping[str, bytes], name: str, class_names: tuple[str, ...]
) -> Graph:
    """CiteSeer or PubMed from Planetoid's eight files, without nodes that have no label.

    The test rows are stored out of order: row ``k`` of ``tx`` is node ``test.index[k]``.
    """
    part = {key: files[f"ind.{name}.{key}"] for key in PLANETOID_PARTS}
    allx, tx = csr_of(part["allx"]), csr_of(part["tx"])
    ally, ty = array_of(part["ally"]), array_of(part["ty"])
    index = np.array(part["test.index"].decode().split(), dtype=np.int64)
    neighbors = unpickle(part["graph"])
    if not isinstance(neighbors, dict):
        raise DataError(f"ind.{name}.graph holds no dictionary. Download it again.")
    num_nodes = int(index.max()) + 1
    position = np.full(num_nodes, -1)
    position[: allx.shape[0]] = np.arange(allx.shape[0])
    position[index] = allx.shape[0] + np.arange(len(index))
    kept = np.flatnonzero(position >= 0)
    renumbered = np.full(num_nodes, -1)
    renumbered[kept] = np.arange(len(kept))
    source = np.repeat(list(neighbors), [len(row) for row in neighbors.values()])
    target = np.concatenate([np.array(row, dtype=np.int64) for row in neighbors.values()])
    links = renumbered[np.stack([source, target])]
    x = vstack([allx, tx]).tocsr()[position[kept]]
    y = np.concatenate([ally, ty])[position[kept]].argmax(axis=1)
    return Graph.from_arrays(x, links[:, (links >= 0).all(axis=0)], y, class_names, name=name)


def csr_of(content: bytes) -> SparseMatrix:
    """The sparse matrix in a Planetoid file."""
    matrix = unpickle(content)
    if not isinstance(matrix, csr_array):
        raise DataError(
            f"Expected a sparse matrix, found {type(matrix).__name__}. Download it again."
        )
    return matrix


def array_of(content: bytes) -> Array:
    """The array in a Planetoid file."""
    array = unpickle(content)
    if not isinstance(array, np.ndarray):
        raise DataError(f"Expected an array, found {type(array).__name__}. Download it again.")
    return array


def read_msacademic(files: Mapping[str, bytes]) -> Graph:
    """MSAcademic (Coauthor CS) from ``ms_academic_cs.npz``; the names in it are not read."""
    with np.load(io.BytesIO(files["ms_academic_cs.npz"]), allow_pickle=False) as raw:
        x = csr_array(
            (raw["attr_data"], raw["attr_indices"], raw["attr_indptr"]),
            shape=tuple(raw["attr_shape"]),
        )
        pointer, target = raw["adj_indptr"], raw["adj_indices"]
        links = np.stack([np.repeat(np.arange(len(pointer) - 1), np.diff(pointer)), target])
        y = raw["labels"].astype(np.int64)
    links = links.astype(np.int64)
    return Graph.from_arrays(x, links, y, MSACADEMIC_CLASSES, name="msacademic")
