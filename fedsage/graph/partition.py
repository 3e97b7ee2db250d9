"""The owners' subgraphs, cut from one graph: by a user's own assignment, or by ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fedsage.config import DataConfig, RunConfig
from fedsage.errors import ConfigError, DataError
from fedsage.graph.arrays import frozen
from fedsage.graph.assign import assign
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import KnownLinks
from fedsage.graph.split import Split, split_each, split_labels
from fedsage.readable import counted, html_table, owners_of
from fedsage.shapes import Array, NodeIds

HOW, SEED = DataConfig().partition, RunConfig().seed  # unless said


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Partition:
    """The owners' subgraphs, and which nodes of the whole graph each of them holds."""

    subgraphs: tuple[Graph, ...]
    nodes: tuple[NodeIds, ...]  # of each owner, by index in G
    missing_links: int | None  # |ΔE|; unknown where owners came with their own data
    how: str
    seed: int
    splits: tuple[Split | None, ...] = ()  # the owners' own, where they have any
    known: tuple[KnownLinks, ...] = ()  # links to others that owners came with
    ids: tuple[Sequence[str], ...] = ()  # what owners call their nodes, if not by index in G
    names: tuple[str, ...] = ()  # of the owners, if not by number
    tables: Any = None  # schema and scale, if they were read from tables

    @property
    def num_owners(self) -> int:
        """The number of owners, M."""
        return len(self.subgraphs)

    def split_of(
        self, owner: int, train: float, val: float, seed: int, by_id: bool = False
    ) -> Split:
        """An owner's own split, or one that is drawn by ``seed`` where it has none.

        ``by_id`` draws every node by itself, as owners of a private run do.
        """
        if own := self.splits[owner] if self.splits else None:
            return own
        y = self.subgraphs[owner].y
        if self.known and self.known[owner].shared:  # the same part at all who hold a node
            return split_each(y, self.ids_of(owner), train, val, seed, 0)
        if by_id:
            return split_each(y, self.ids_of(owner), train, val, seed, owner)
        return split_labels(y, train, val, seed, owner)

    def ids_of(self, owner: int) -> Sequence[str]:
        """What an owner calls its nodes; by default, their index in G."""
        return self.ids[owner] if self.ids else [str(v) for v in self.nodes[owner].tolist()]

    def name_of(self, owner: int) -> str:
        """The name of an owner; by default, its number."""
        return self.names[owner] if self.names else str(owner)

    def __repr__(self) -> str:
        """How many owners there are, how large, and how many links are between them."""
        sizes = [f"{graph.num_nodes:,}" for graph in self.subgraphs]
        shown = [*sizes[:5], "…", sizes[-1]] if len(sizes) > 7 else sizes
        missing = self.missing_links
        between = "" if missing is None else f", {counted(missing, 'link')} between owners"
        who = owners_of(self.num_owners, self.how)
        return f"Partition({who} of {', '.join(shown)} nodes{between})"

    def _repr_html_(self) -> str:
        """The same with a row for each owner, for notebooks."""
        skew = label_skew_of(self)
        rows = [
            [str(i), f"{one.num_nodes:,}", f"{one.num_links:,}", f"{(one.y >= 0).sum():,}",
             f"{skew[i]:.2f}"]
            for i, one in enumerate(self.subgraphs)
        ]  # fmt: skip
        columns = ["owner", "nodes", "links", "labelled", "label skew"]
        return html_table(repr(self), columns, rows)


def partition(
    graph: Graph,
    num_owners: int | None = None,
    how: str = HOW,
    seed: int = SEED,
    *,
    owner: Any = None,
) -> Partition:
    """Cut ``graph`` into subgraphs that share no node (Sec. 3.1).

    Every owner keeps the links among its own nodes. The links between owners, ΔE, are not
    stored anywhere; only their number is kept. If the graph has a split, owners keep it.

    Args:
        graph: The whole graph.
        num_owners: The number of owners, M.
        how: ``louvain``, ``metis``, ``random`` or ``label``, or ``label:0.1`` to set the
            concentration of the Dirichlet distribution (0.5 by default).
        seed: Decides all random choices.
        owner: Your own assignment, in place of the other arguments: one entry for each node,
            as numbers or names. Owners are sorted by these.
    """
    if owner is not None:
        given, count = checked_owners(graph, owner, num_owners)
        return by_owner(graph, given, count, "own", SEED)
    if num_owners is None:
        raise ConfigError(
            "partition was told neither how many owners there are nor who they are. Give "
            "num_owners=3, or owner=vector with one entry for each node."
        )
    return by_owner(graph, assign(graph, num_owners, how, seed), num_owners, how, seed)


def checked_owners(graph: Graph, owner: Any, num_owners: int | None) -> tuple[NodeIds, int]:
    """A user's own assignment: the owner of every node from 0 on, and how many there are."""
    given: Array = np.asarray(owner)
    if given.shape != (graph.num_nodes,):
        raise DataError(
            f"owner has shape {given.shape}, but the graph has "
            f"{counted(graph.num_nodes, 'node')}. Give one owner for each node."
        )
    words = given.dtype.kind in "US" or all(isinstance(one, str) for one in given.tolist())
    if not words and given.dtype.kind not in "iu":
        raise DataError(
            f"owner holds values of type {given.dtype}, but owners are whole numbers or names. "
            "Every node needs one: fill in what is missing, and convert with astype(int)."
        )
    if not words and given.min() < 0:
        first = int(np.flatnonzero(given < 0)[0])
        raise DataError(
            f"owner is {given[first]} at node {first}. Number owners from 0, and leave out of "
            "the graph what belongs to nobody."
        )
    names, numbers = np.unique(given.astype(str) if words else given, return_inverse=True)
    if num_owners not in (None, len(names)):
        raise DataError(
            f"owner names {counted(len(names), 'owner')}, but num_owners is {num_owners}. "
            "Leave num_owners out."
        )
    return numbers.astype(np.int64), len(names)


def with_splits(part: Partition, how: str) -> Partition:
    """The same, with owners' own splits; without any where ``how`` is ``drawn``."""
    return replace(part, splits=()) if how == "drawn" else part


def by_owner(graph: Graph, owner: NodeIds, num_owners: int, how: str, seed: int) -> Partition:
    """The subgraphs that a list of owners, one per node, stands for."""
    short = owner.astype(np.min_scalar_type(num_owners))  # sorted by counting
    order = np.argsort(short, kind="stable")
    last = np.cumsum(np.bincount(owner, minlength=num_owners))
    nodes = tuple(frozen(ids.copy()) for ids in np.split(order, last[:-1]))
    subgraphs = graph.cut(nodes)
    splits = tuple(part.split for part in subgraphs) if graph.split else ()
    return Partition(subgraphs, nodes, missing_links(graph, subgraphs), how, seed, splits)


def missing_links(graph: Graph, subgraphs: Sequence[Graph]) -> int:
    """|ΔE| of Sec. 3.1: links of G that are in no subgraph."""
    return graph.num_links - sum(part.num_links for part in subgraphs)


def label_counts(graph: Graph) -> Int[Array, " d_y"]:
    """The number of nodes of each class."""
    return np.bincount(graph.y[graph.y >= 0], minlength=graph.num_classes)


def label_skew_of(part: Partition) -> Float[Array, " M"]:
    """How far each owner's labels are from all labels: total variation, 0 (same) to 1."""
    counts = np.stack([label_counts(graph) for graph in part.subgraphs])
    whole = counts.sum(axis=0) / counts.sum()
    own = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.abs(own - whole).sum(axis=1) / 2
