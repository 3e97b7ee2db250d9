"""Train, validation and test nodes inside one owner's subgraph, by seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsage.graph.graph import Graph, frozen
from fedsage.rng import generator
from fedsage.shapes import NodeIds, NodeLabels


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Which labelled nodes are for training, validation and testing. They never overlap."""

    train: NodeIds
    val: NodeIds
    test: NodeIds


def split_nodes(graph: Graph, train: float, val: float, seed: int, owner: int) -> Split:
    """A split of an owner's labelled nodes; what ``train`` and ``val`` leave is for testing.

    Note:
        The paper only gives the ratio, 60-20-20. We draw uniformly among the labelled nodes
        of each owner; the draw depends on the seed and the owner, never on the method. An
        owner with any labelled node trains on at least one.
    """
    return split_labels(graph.y, train, val, seed, owner)


def split_labels(y: NodeLabels, train: float, val: float, seed: int, owner: int) -> Split:
    """The same from the labels alone."""
    labelled = np.flatnonzero(y >= 0)
    nodes = generator(seed, "split", owner).permutation(labelled)
    num_train = max(round(train * len(nodes)), min(1, len(nodes)))
    num_val = min(round(val * len(nodes)), len(nodes) - num_train)
    parts = np.split(nodes, [num_train, num_train + num_val])
    return Split(*(frozen(np.sort(part)) for part in parts))
