from __future__ import annotations

import numpy as np
import pytest

from fedsage.graph.graph import Graph
from fedsage.graph.split import Split, split_each, split_labels


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


def parts_by_id(split: Split, ids: list[str]) -> dict[str, str]:
    parts = {"train": split.train, "val": split.val, "test": split.test}
    return {ids[v]: name for name, nodes in parts.items() for v in nodes.tolist()}


def test_drawn_each_alone_no_node_moves_another() -> None:
    """Take out any node: all others stay in their part, which ``split_labels`` breaks."""
    y, ids = np.zeros(40, np.int64), [f"patient {i}" for i in range(40)]
    whole = parts_by_id(split_each(y, ids, 0.6, 0.2, 0, 1), ids)
    for out in range(40):
        fewer = ids[:out] + ids[out + 1 :]
        part = split_each(y[1:], fewer, 0.6, 0.2, 0, 1)
        assert parts_by_id(part, fewer) == {k: v for k, v in whole.items() if k != ids[out]}
    drawn = parts_by_id(split_labels(y[1:], 0.6, 0.2, 0, 1), ids[1:])
    assert drawn != {k: v for k, v in whole.items() if k != ids[0]}


def test_drawn_each_alone_the_shares_are_right() -> None:
    y, ids = np.zeros(20_000, np.int64), [str(i) for i in range(20_000)]
    y[:2_000] = -1
    split = split_each(y, ids, 0.6, 0.2, 0, 0)
    together = np.concatenate([split.train, split.val, split.test])
    assert sorted(together.tolist()) == list(range(2_000, 20_000))
    assert len(split.train) == pytest.approx(10_800, abs=330)  # five standard deviations
    assert len(split.val) == pytest.approx(3_600, abs=270)
