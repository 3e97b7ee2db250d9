from __future__ import annotations

import numpy as np
import pytest

from fedsage.graph.graph import Graph
from fedsage.graph.split import split_labels


def test_sixty_twenty_twenty_without_overlap(graph: Graph) -> None:
    split = split_labels(graph.y, 0.6, 0.2, seed=0, owner=0)
    assert [len(part) for part in (split.train, split.val, split.test)] == [36, 12, 12]
    together = np.concatenate([split.train, split.val, split.test])
    assert sorted(together.tolist()) == list(range(60))


def test_the_split_depends_on_seed_and_owner(graph: Graph) -> None:
    def test_nodes(seed: int, owner: int) -> list[int]:
        return split_labels(graph.y, 0.6, 0.2, seed, owner).test.tolist()

    assert test_nodes(0, 0) == test_nodes(0, 0)
    assert test_nodes(0, 0) != test_nodes(1, 0)
    assert test_nodes(0, 0) != test_nodes(0, 1)


@pytest.mark.parametrize("labelled", [0, 1, 2, 5])
def test_unlabelled_nodes_are_in_no_part(graph: Graph, labelled: int) -> None:
    y = np.where(np.arange(60) < labelled, graph.y, -1)
    part = Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names)
    split = split_labels(part.y, 0.6, 0.2, seed=0, owner=0)
    together = np.concatenate([split.train, split.val, split.test])
    assert sorted(together.tolist()) == list(range(labelled))
    assert len(split.train) >= min(labelled, 1)
