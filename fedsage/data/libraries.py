"""Datasets of PyG and OGB, by their own loaders: ``pyg:Planetoid/Cora``, ``ogb:ogbn-arxiv``.

Both come with ``fedsage[data]``. They download and open their files in their own way, unlike
``datasets.py``, where every file has a checksum and no pickle is trusted.
"""

from __future__ import annotations

import contextlib
import csv
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from platformdirs import user_cache_path

from fedsage.data.interop import from_pyg
from fedsage.data.npz import load_graph, save_graph
from fedsage.errors import ConfigError, DataError, FedSageError, nearest, optional
from fedsage.graph.graph import Graph
from fedsage.shapes import Array, NodeLabels

Load: TypeAlias = Callable[[str], Graph]
EXTRA = "fedsage[data]"
NAMES_IN_DOC = re.compile(
    r"\n +name(?: \([^\n]*?\))?: .*?(?=\n +\w+(?: \([^\n]*?\))?: |\n\s*\n)", re.DOTALL
)
KEPT = "fedsage.npz"  # what was read from OGB's tables, in its folder


def library_of(name: str) -> str | None:
    """``pyg`` or ``ogb``, if that is where a dataset of this name comes from."""
    library = name.partition(":")[0]
    return library if ":" in name and library in LIBRARIES else None


def load_from_library(name: str) -> Graph:
    """The dataset called ``pyg:CLASS``, ``pyg:CLASS/NAME`` or ``ogb:NAME``.

    Links are taken as undirected. If the dataset comes with a split, the graph has it.
    """
    library, _, rest = name.partition(":")
    return LIBRARIES[library](rest)


def folder_of(library: str, dataset: str) -> Path:
    """Where a library keeps a dataset: in ``$FEDSAGE_DATA`` if it is there, or in the cache."""
    given = os.environ.get("FEDSAGE_DATA")
    if given and (there := Path(given) / library / dataset).is_dir():
        return there
    return user_cache_path("fedsage") / library / dataset


@contextlib.contextmanager
def speaking(name: str, folder: Path) -> Iterator[None]:
    """Another library at work: what it prints goes to stderr, what it raises is explained."""
    try:
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except FedSageError:
        raise
    except (Exception, SystemExit) as error:  # a loader of its own may raise anything
        words = " ".join(str(error).split())[:200] or "no reason given"
        raise DataError(
            f"{name} could not be loaded ({type(error).__name__}: {words}). If it has to be "
            f"downloaded, check the network; or put its files into {folder}."
        ) from error


def from_pyg_dataset(rest: str) -> Graph:
    """A dataset of ``torch_geometric.datasets``, by its class and perhaps a name."""
    name, (kind, _, inner) = f"pyg:{rest}", rest.partition("/")
    known = optional("torch_geometric.datasets", f"--dataset {name}", EXTRA)
    if kind not in known.__all__:
        raise ConfigError(f"PyG has no dataset '{kind}'.{nearest(kind, known.__all__)}")
    made = getattr(known, kind)
    folder = folder_of("pyg", kind)
    given = {"root": str(folder), **checked_name(kind, made, inner)}
    with speaking(name, folder):
        folder.mkdir(parents=True, exist_ok=True)
        dataset = made(**given)
        if len(dataset) != 1:
            raise DataError(
                f"{name} holds {len(dataset)} graphs, but owners hold parts of one. Choose a "
                "dataset of a single graph."
            )
        return from_pyg(dataset[0])


def checked_name(kind: str, made: type, inner: str) -> dict[str, str]:
    """The argument ``name`` of a class of PyG, if it takes one and its documentation has it."""
    taken = inspect.signature(made).parameters
    if "root" not in taken:
        raise ConfigError(
            f"PyG's {kind} has no files to load. In Python, give it to Graph.from_pyg."
        )
    if "name" not in taken:
        if inner:
            raise ConfigError(f"PyG's {kind} is one dataset. Leave out '/{inner}'.")
        return {}
    found = NAMES_IN_DOC.search(made.__doc__ or "")
    names = re.findall(r'"([^"`]+)"', found[0]) if found else []
    spelled = {one.lower(): one for one in names}
    if not inner and taken["name"].default is inspect.Parameter.empty:
        example = names[0] if names else "NAME"
        raise ConfigError(f"PyG's {kind} is several datasets. Say which: pyg:{kind}/{example}")
    if inner and names and inner.lower() not in spelled:
        raise ConfigError(f"PyG's {kind} has no dataset '{inner}'.{nearest(inner, names)}")
    return {"name": spelled.get(inner.lower(), inner)} if inner else {}


def from_ogb_dataset(rest: str) -> Graph:
    """A dataset for node classification of the Open Graph Benchmark."""
    name = f"ogb:{rest}"
    ogb = optional("ogb.nodeproppred", f"--dataset {name}", EXTRA)
    about = ogb_table(Path(ogb.__file__).with_name("master.csv"))
    if rest not in about:
        raise ConfigError(f"OGB has no dataset '{rest}'.{nearest(rest, about)}")
    if about[rest]["is hetero"] == "True" or about[rest]["num tasks"] != "1":
        raise ConfigError(
            f"{name} has several kinds of nodes or several labels for a node; owners hold one "
            "kind, with one class each. Use ogb:ogbn-arxiv or ogb:ogbn-products."
        )
    folder = folder_of("ogb", rest.replace("-", "_"))
    if not (folder / KEPT).is_file():
        with speaking(name, folder):
            keep_ogb(name, ogb.NodePropPredDataset, folder)
    return load_graph(folder / KEPT)


def keep_ogb(name: str, made: Callable[..., Any], folder: Path) -> None:
    """Let OGB download and read its tables, and keep the graph and its split as ``.npz``.

    OGB's own cache is a pickle. It is not opened; OGB writes it again from its tables.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    if (folder / "raw").is_dir():
        (folder / "processed" / "data_processed").unlink(missing_ok=True)
    dataset = made(name.removeprefix("ogb:"), root=str(folder.parent))
    (held, labels), split = dataset[0], dataset.get_idx_split()
    graph = Graph.from_arrays(
        held["node_feat"], held["edge_index"], classes_of(labels), name=name
    )
    parts = (np.asarray(split[part]) for part in ("train", "valid", "test"))
    save_graph(graph.with_split(*parts), folder / KEPT)


def ogb_table(path: Path) -> Mapping[str, Mapping[str, str]]:
    """What OGB says of its datasets, by name and by property."""
    with path.open(newline="") as file:
        (_, *names), *rows = csv.reader(file)
    return {name: {row[0]: row[k + 1] for row in rows} for k, name in enumerate(names)}


def classes_of(labels: Array) -> NodeLabels:
    """One class a node; -1 where OGB has none."""
    y = np.asarray(labels)[:, 0]
    return np.where(np.isnan(y), -1, y).astype(np.int64)


LIBRARIES: Mapping[str, Load] = {"pyg": from_pyg_dataset, "ogb": from_ogb_dataset}
