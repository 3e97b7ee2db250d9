"""Train, validation and test nodes inside one owner's subgraph, by seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsage.graph.graph import Graph, frozen
from fedsage.rng import generator
from fedsage.shapes import NodeIds, NodeLabels


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Which labelled nodes are trained on, chosen on and tested on. They never overlap."""

    train: NodeIds
    val: NodeIds
    test: NodeIds


def split_nodes(graph: Graph, train: float, val: float, seed: int, owner: int) -> Split:
    """60-20-20 of the paper for ``train=0.6, val=0.2``: the rest is for testing.

    Note:
        The paper gives the ratio only. We draw uniformly among the labelled nodes of each
        owner; it depends on the seed and the owner, never on the method. An owner with any
        labelled node trains on at least one.
    """
    return split_labels(graph.y, train, val, seed, owner)


def split_labels(y: NodeLabels, train: float, val: float, seed: int, owner: int) -> Split:
    """The same, of labels alone."""
    labelled = np.flatnonzero(y >= 0)
    nodes = generator(seed, "split", owner).permutation(labelled)
    num_train = max(round(train * len(nodes)), min(1, len(nodes)))
    num_val = min(round(val * len(nodes)), len(nodes) - num_train)
    parts = np.split(nodes, [num_train, num_train + num_val])
    return Split(*(frozen(np.sort(part)) for part in parts))
