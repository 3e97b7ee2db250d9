"""Self-training: where few nodes have labels, sure answers of the classifier count as more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedsage.graph.arrays import frozen
from fedsage.graph.graph import Graph
from fedsage.models.parameters import Logits
from fedsage.rng import Stream
from fedsage.shapes import NodeIds, NodeLabels

BEGIN = 0.4  # the share of the rounds before: the first sure answers are too often wrong


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


def has_begun(t: int, rounds_c: int) -> bool:
    """Whether answers count in round ``t``."""
    return t >= BEGIN * rounds_c


def guesses(answers: Logits, train: NodeIds, sureness: float, stream: Stream) -> Guesses:
    """The answers for other nodes than ``train`` that are at least that sure.

    Args:
        answers: The logarithm of each class's probability, for every node.
        train: The training nodes; there are at most as many guesses.
        sureness: The least probability of the class.
        stream: Draws among the nodes, if there are more.
    """
    sure, classes = answers.exp().max(dim=1)
    found = sure.numpy() >= sureness
    found[train] = False
    nodes = np.sort(stream.permutation(np.flatnonzero(found))[: len(train)])
    return Guesses(nodes, classes.numpy()[nodes])
