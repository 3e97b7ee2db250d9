"""A graph by whatever a user calls it: a dataset's name, ``synthetic``, or a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsage.errors import ConfigError, nearest
from fedsage.graph.datasets import DATASETS, load_dataset
from fedsage.graph.graph import Graph
from fedsage.graph.io import load_graph
from fedsage.graph.synthetic import synthetic


def load(name: str, **synthetic_settings: Any) -> Graph:
    """The graph called ``name``.

    Args:
        name: ``cora``, ``citeseer``, ``pubmed``, ``msacademic``, ``synthetic``, or the path
            of an ``.npz`` file or of a folder that holds ``graph.npz``.
        synthetic_settings: For ``synthetic``: see :func:`fedsage.graph.synthetic.synthetic`.
    """
    if name == "synthetic":
        return synthetic(**synthetic_settings)
    if name in DATASETS:
        return load_dataset(name)
    path = Path(name)
    if path.is_dir():
        return load_graph(path / "graph.npz")
    if path.suffix == ".npz" or path.exists():
        return load_graph(path)
    names = [*DATASETS, "synthetic"]
    raise ConfigError(
        f"Unknown dataset '{name}': neither a name nor a file here.{nearest(name, names)}"
    )
