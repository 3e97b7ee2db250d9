"""A graph by name or by path: a dataset, ``synthetic``, a file or a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedsage.data.datasets import DATASETS, load_dataset
from fedsage.data.libraries import library_of, load_from_library
from fedsage.data.npz import load_graph
from fedsage.data.synthetic import synthetic
from fedsage.errors import ConfigError, DataError, DataErrors, nearest
from fedsage.graph.graph import Graph
from fedsage.readable import counted, natural
from fedsage.tables.compare import Marks, differences, marks_of
from fedsage.tables.tables import Tables, graph_of, pooled_scale, read_tables

T = TypeVar("T")

GRAPH = "graph.npz"
TABLES = (
    "nodes.csv", "nodes.parquet", "nodes.xlsx", "edges.csv", "edges.parquet", "edges.xlsx",
    "source.toml",
)  # fmt: skip


def load(name: str, **synthetic_settings: Any) -> Graph:
    """The graph called ``name``.

    Args:
        name: ``cora``, ``citeseer``, ``pubmed``, ``msacademic``, ``synthetic``; a dataset of
            another library, ``pyg:Planetoid/Cora`` or ``ogb:ogbn-arxiv``; or the path of an
            ``.npz`` file, of a folder of tables, or of a folder with ``graph.npz``. The numbers
            in tables are scaled by that folder alone.
        synthetic_settings: For ``synthetic``: see :func:`fedsage.data.synthetic.synthetic`.
    """
    if name == "synthetic":
        return synthetic(**synthetic_settings)
    if name in DATASETS:
        return load_dataset(name)
    if library_of(name):
        return load_from_library(name)
    path = Path(name)
    if path.is_dir():
        return load_folder(path)
    if path.suffix == ".npz" or path.exists():
        return load_graph(path)
    names = [*DATASETS, "synthetic"]
    raise ConfigError(
        f"Unknown dataset '{name}': no dataset has that name, and there is no such "
        f"file.{nearest(name, names)}"
    )


def is_path(name: str) -> bool:
    """Whether :func:`load` would look for a file or a folder."""
    return name != "synthetic" and name not in DATASETS and not library_of(name)


def load_folder(folder: Path) -> Graph:
    """The graph of one folder: its tables, or its ``graph.npz``."""
    if only_tables(folder):
        tables = read_tables(folder)
        return graph_of(tables, pooled_scale([tables]))
    if owners := owner_folders(folder):
        raise DataError(
            f"{folder} holds the graphs of {counted(len(owners), 'owner')}, not one graph: "
            f"{owners[0].name} to {owners[-1].name}. Give one of these folders."
        )
    if not (folder / GRAPH).exists():
        raise DataError(
            f"{folder} holds no graph: there is no nodes.csv, nodes.parquet or {GRAPH}. Give "
            "a folder of tables (see docs/own-data.md)."
        )
    return load_graph(folder / GRAPH)


def has_tables(folder: Path) -> bool:
    """Whether a folder holds tables, even if only some of them."""
    return any((folder / name).is_file() for name in TABLES)


def only_tables(folder: Path) -> bool:
    """Whether a folder holds tables; refuses a folder that also holds ``graph.npz``."""
    tables = has_tables(folder)
    if tables and (folder / GRAPH).exists():
        raise DataError(
            f"{folder} holds tables and {GRAPH}. Remove the one that is out of date."
        )
    return tables


def tables_folder(name: str) -> Path | None:
    """The folder of tables that :func:`load` would read for ``name``, if it reads tables."""
    return Path(name) if is_path(name) and has_tables(Path(name)) else None


def owner_folders(path: Path | str) -> list[Path]:
    """The owners in a folder, sorted by name: folders with tables or ``graph.npz``.

    Empty if there are none, or if the folder itself holds a graph.
    """
    path = Path(path)
    if not path.is_dir() or has_tables(path) or (path / GRAPH).exists():
        return []
    inside = [p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")]
    found = [p for p in inside if has_tables(p) or (p / GRAPH).exists()]
    return sorted(found, key=lambda p: natural(p.name))


def load_owner_tables(path: Path | str) -> list[Tables]:
    """The tables of every owner in a folder, all with one schema.

    The problems of all owners are reported at once. Scale the tables with
    :func:`fedsage.tables.tables.pooled_scale` where one process holds them all.
    """
    read = read_owners(path, read_tables)
    check_same_schema(
        {folder: (one.schema.sha256, marks_of(one.schema)) for folder, one in read.items()}
    )
    return list(read.values())


def read_owners(path: Path | str, read: Callable[[Path], T]) -> dict[Path, T]:
    """What ``read`` makes of every owner's folder; the problems of all are reported at once."""
    found: dict[Path, T] = {}
    lines: list[str] = []
    count = 0
    for folder in owner_folders(path):
        try:
            found[folder] = read(folder)
        except DataErrors as errors:
            lines += [f"{folder.name}/{line}" for line in errors.lines]
            count += errors.count
    if lines:
        raise DataErrors(str(path), lines, count)
    if not found:
        raise DataError(f"{path} holds no owners. Give a folder with one folder per owner.")
    return found


def check_same_schema(seen: Mapping[Path, tuple[str, Marks]]) -> None:
    """Refuse owners whose features or classes differ, by checksum and marks of each."""
    first = next(iter(seen))
    for folder, (sha256, marks) in seen.items():
        if sha256 != seen[first][0]:
            where = ", ".join(differences(seen[first][1], marks))
            raise DataError(
                f"{folder} has other features or classes than {first.name}"
                f"{f': {where}' if where else ''}. Give all owners the same schema.toml; "
                "'fedsage data merge' makes one from theirs."
            )
