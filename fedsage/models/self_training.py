"""Self-training: where few nodes have labels, sure answers of the classifier count as more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedsage.graph.arrays import frozen
from fedsage.graph.graph import Graph
from fedsage.models.parameters import Logits
from fedsage.rng import Stream
from fedsage.shapes import NodeIds, NodeLabels

FEW = 1 / 3  # the share of labelled nodes from which labels are enough by themselves
BEGIN = 0.4  # the share of the rounds before: the first sure answers are too often wrong
ASKED = 10  # for each label at most, so that a round on a large graph stays a short one


@dataclass(frozen=True, slots=True, eq=False)
class Guesses:
    """Nodes without a training label, and the classes that the classifier gives them."""

    nodes: NodeIds
    classes: NodeLabels

    def on(self, graph: Graph) -> Graph:
        """The same graph with these classes as labels."""
        if not len(self.nodes):
            return graph
        y = graph.y.copy()
        y[self.nodes] = self.classes
        return replace(graph, y=frozen(y))


NO_GUESSES = Guesses(np.empty(0, np.int64), np.empty(0, np.int64))


def labels_are_few(labels: int, nodes: int) -> bool:
    """Whether so many labels for so many nodes leave something to gain."""
    return 0 < labels < FEW * nodes


def has_begun(t: int, rounds_c: int) -> bool:
    """Whether answers count in round ``t``."""
    return t >= BEGIN * rounds_c


def candidates(num_nodes: int, train: NodeIds, stream: Stream) -> NodeIds:
    """The nodes without a training label that are asked about: all of them, or some."""
    others = np.ones(num_nodes, dtype=bool)
    others[train] = False
    return np.sort(stream.permutation(np.flatnonzero(others))[: ASKED * len(train)])


def guesses(
    nodes: NodeIds, answers: Logits, most: int, sureness: float, stream: Stream
) -> Guesses:
    """The answers that are at least that sure.

    Args:
        nodes: Who was asked about.
        answers: The logarithm of each class's probability, for each of them.
        most: How many guesses there may be.
        sureness: The least probability of the class.
        stream: Draws among the sure ones, if there are more.
    """
    sure, classes = answers.exp().max(dim=1)
    found = np.sort(stream.permutation(np.flatnonzero(sure.numpy() >= sureness))[:most])
    return Guesses(nodes[found], classes.numpy()[found])
