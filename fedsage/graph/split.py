"""Train, validation and test nodes of a graph: a user's own, or drawn by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsage.errors import DataError
from fedsage.graph.arrays import frozen
from fedsage.readable import counted
from fedsage.rng import generator, uniform
from fedsage.shapes import Array, NodeIds, NodeLabels

PARTS = ("train", "val", "test")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Split:
    """Which labelled nodes are for training, validation and testing. They never overlap."""

    train: NodeIds
    val: NodeIds
    test: NodeIds

    def __repr__(self) -> str:
        """How many of each."""
        return f"Split({len(self.train)} train, {len(self.val)} val, {len(self.test)} test)"

    def within(self, place: NodeIds) -> Split:
        """The same nodes by their ``place`` in a subgraph; those at -1 are not in it."""
        parts = (place[getattr(self, part)] for part in PARTS)
        return Split(*(frozen(np.sort(one[one >= 0]).astype(np.int64)) for one in parts))


def split_labels(y: NodeLabels, train: float, val: float, seed: int, owner: int) -> Split:
    """A split of an owner's labelled nodes; what ``train`` and ``val`` leave is for testing.

    Note:
        The paper only gives the ratio, 60-20-20. We draw uniformly among the labelled nodes
        of each owner; the draw depends on the seed and the owner, never on the method. An
        owner with any labelled node trains on at least one.
    """
    labelled = np.flatnonzero(y >= 0)
    nodes = generator(seed, "split", owner).permutation(labelled)
    num_train = max(round(train * len(nodes)), min(1, len(nodes)))
    num_val = min(round(val * len(nodes)), len(nodes) - num_train)
    parts = np.split(nodes, [num_train, num_train + num_val])
    return Split(*(frozen(np.sort(part)) for part in parts))


def split_each(
    y: NodeLabels, ids: Sequence[str], train: float, val: float, seed: int, owner: int
) -> Split:
    """A split in which every node is drawn by itself, from its id.

    Whether one node is there changes no other node's part, as node-level privacy needs; in
    turn, the shares are ``train`` and ``val`` only roughly.
    """
    labelled = np.flatnonzero(y >= 0)
    draw = np.array([uniform(seed, "split", owner, ids[v]) for v in labelled.tolist()])
    part = np.searchsorted([train, train + val], draw, side="right")
    return Split(*(frozen(labelled[part == one]) for one in range(len(PARTS))))


def checked_split(y: NodeLabels, train: Any, val: Any, test: Any) -> Split:
    """A split of your own, from masks or node numbers.

    Refuses nodes that do not exist, that have no label, or that are in two parts.
    """
    parts = [checked_part(len(y), *one) for one in zip(PARTS, (train, val, test), strict=True)]
    for name, nodes in zip(PARTS, parts, strict=True):
        bare = nodes[y[nodes] < 0]
        if len(bare):
            raise DataError(
                f"Split: {name} holds {counted(len(bare), 'node')} without a label, the first "
                f"is node {bare[0]}. Take out the nodes whose label is -1."
            )
    everyone = np.concatenate(parts)
    found, count = np.unique(everyone, return_counts=True)
    if len(twice := found[count > 1]):
        where = [name for name, nodes in zip(PARTS, parts, strict=True) if twice[0] in nodes]
        raise DataError(
            f"Split: {counted(len(twice), 'node')} in more than one part, the first is node "
            f"{twice[0]} (in {' and '.join(where)}). Put each node into one part only."
        )
    return Split(*(frozen(nodes) for nodes in parts))


def checked_part(num_nodes: int, name: str, given: Any) -> NodeIds:
    """Node numbers, in order, from a mask or from node numbers."""
    nodes: Array = np.asarray(given)
    if nodes.dtype == np.bool_:
        if nodes.shape != (num_nodes,):
            raise DataError(
                f"Split: the mask {name} has shape {nodes.shape}, but the graph has "
                f"{counted(num_nodes, 'node')}. Give one True or False for each node."
            )
        return np.flatnonzero(nodes)
    if nodes.size == 0:
        return np.empty(0, dtype=np.int64)
    if nodes.ndim != 1 or not np.issubdtype(nodes.dtype, np.integer):
        raise DataError(
            f"Split: {name} has type {nodes.dtype} and shape {nodes.shape}. Give a mask of "
            "True and False, or a list of node numbers."
        )
    if nodes.min() < 0 or nodes.max() >= num_nodes:
        wrong = nodes[(nodes < 0) | (nodes >= num_nodes)][0]
        raise DataError(
            f"Split: {name} names node {wrong}, but nodes are numbered 0 to {num_nodes - 1}."
        )
    return np.unique(nodes).astype(np.int64)
