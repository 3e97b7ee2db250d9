"""What one owner has on its own disk: tables or ``graph.npz``, perhaps with a split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from fedsage.data.load import GRAPH, check_same_schema, only_tables, read_owners
from fedsage.data.npz import load_graph
from fedsage.errors import DataError
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import NO_REMOTE, KnownLinks
from fedsage.graph.partition import Partition
from fedsage.graph.split import Split
from fedsage.shapes import NodeFeatures, NodeLabels
from fedsage.tables.compare import Marks, marks_of
from fedsage.tables.schema import SOURCE, Schema
from fedsage.tables.tables import Scale, Tables, graph_of, pooled_scale, read_tables

NO_SCALE = Scale(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class Owned:
    """One owner's data, before its columns of numbers are scaled."""

    tables: Tables | None
    whole: Graph | None  # if it came as ``graph.npz``, which is never scaled
    split: Split | None
    content: str  # checksum of its files

    @property
    def schema(self) -> Schema | None:
        """The schema of its tables, if it has tables."""
        return self.tables.schema if self.tables else None

    @property
    def names(self) -> tuple[int, tuple[str, ...]]:
        """d_x and the names of the classes."""
        if self.tables:
            return self.tables.schema.num_features, self.tables.schema.class_names
        assert self.whole is not None
        return self.whole.num_features, self.whole.class_names

    @property
    def sha256(self) -> str:
        """A checksum of what must be the same for all owners."""
        if self.tables:
            return self.tables.schema.sha256
        return hashlib.sha256(json.dumps(self.names).encode()).hexdigest()

    @property
    def marks(self) -> Marks:
        """What tells in which columns owners differ; nothing if it has no tables."""
        return marks_of(self.tables.schema) if self.tables else {}

    @property
    def num_nodes(self) -> int:
        """|V_i|."""
        held = self.tables or self.whole
        assert held is not None
        return held.num_nodes

    @property
    def y(self) -> NodeLabels:
        """The class of every node, -1 where it is not known."""
        held = self.tables or self.whole
        assert held is not None
        return held.y

    @property
    def num_numbers(self) -> int:
        """The number of columns that are scaled."""
        return self.tables.numbers.shape[1] if self.tables else 0

    @property
    def words(self) -> NodeFeatures:
        """What ``data.features`` applies to: sparse features of tables, or all of a graph."""
        if self.tables:
            return csr_array(self.tables.sparse, dtype=np.float32)
        assert self.whole is not None
        return self.whole.x

    @property
    def words_from(self) -> int:
        """The first column of X that is among the words."""
        return self.tables.schema.words_from if self.tables else 0

    @property
    def ids(self) -> Sequence[str]:
        """What the owner calls its nodes."""
        return self.tables.ids if self.tables else [str(v) for v in range(self.num_nodes)]

    @property
    def num_remote(self) -> int:
        """How many links to nodes of other owners it knows."""
        return len(self.tables.remote.here) if self.tables and self.tables.remote else 0

    @property
    def shared(self) -> bool:
        """Whether an id that another owner has, too, is the same node."""
        return self.schema is not None and self.schema.shared == "same"

    def known(self, names: Sequence[str]) -> KnownLinks | None:
        """What it knows of owners of those names; None if its schema allows nothing."""
        remote = self.tables.remote if self.tables else None
        if remote is None and not self.shared:
            return None
        return (remote or NO_REMOTE).known(self.ids, names, self.shared)

    def graph(self, scale: Scale) -> Graph:
        """G_i, its numbers scaled as agreed."""
        if self.tables:
            return graph_of(self.tables, scale)
        assert self.whole is not None
        return self.whole


def read_owned(folder: Path | str, schema: Schema | None = None) -> Owned:
    """Read and check an owner's folder; all problems in its tables are reported at once.

    Args:
        folder: Holds tables or ``graph.npz``.
        schema: Of the tables, if it is not the one in the folder or next to it.
    """
    folder = Path(folder)
    if only_tables(folder):
        tables = read_tables(folder, schema)
        content = content_of(sorted(folder.glob("*.*")))
        if (folder / SOURCE).exists():  # what a database holds may change
            content += tables.sha256
        return Owned(tables, None, tables.split, content)
    path = folder / GRAPH if folder.is_dir() else folder
    if not path.exists():
        raise DataError(
            f"{folder} holds no data: there is no nodes.csv, nodes.parquet or {GRAPH}. Give "
            "an owner's folder (see docs/own-data.md)."
        )
    whole = load_graph(path)
    return Owned(None, whole, whole.split, content_of([path]))


def content_of(files: Sequence[Path]) -> str:
    """One checksum over several files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode())
        with file.open("rb") as opened:
            while piece := opened.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def read_all(path: Path | str, schema: Schema | None = None) -> dict[str, Owned]:
    """Every owner in a folder, by name, once all have the same schema."""
    read = read_owners(path, lambda folder: read_owned(folder, schema))
    check_same_schema({folder: (one.sha256, one.marks) for folder, one in read.items()})
    return {folder.name: one for folder, one in read.items()}


def together(read: Mapping[str, Owned]) -> Partition:
    """Owners, by name, as one partition, with columns scaled over all of them."""
    owned = list(read.values())
    tables = [one.tables for one in owned if one.tables]
    scale = pooled_scale(tables) if tables else NO_SCALE
    graphs = tuple(one.graph(scale) for one in owned)
    ends = np.cumsum([0, *(graph.num_nodes for graph in graphs)])
    nodes = tuple(np.arange(a, b) for a, b in pairwise(ends))
    known = [links for one in owned if (links := one.known(list(read))) is not None]
    splits, ids = tuple(one.split for one in owned), tuple(one.ids for one in owned)
    read_by = (tables[0].schema, scale) if tables else None
    held = splits, tuple(known), ids, tuple(read), read_by
    return Partition(graphs, nodes, None, "folders", 0, *held)


def load_owners(path: Path | str) -> Partition:
    """The owners in a folder as :func:`fedsage.run` takes them, with tables scaled together.

    For a single process that may hold the data of all owners.
    """
    return together(read_all(path))
