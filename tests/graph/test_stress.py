"""Stress on owners: what is lost, what is wrong, and what stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsage.config import DataConfig
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.graph.stress import stressed

SPLITS: dict[str, Any] = {"train": 0.6, "val": 0.2, "seed": 0}


def under(graph: Graph, owners: Partition, **knobs: float) -> Any:
    splits = [owners.split_of(i, **SPLITS) for i in range(owners.num_owners)]
    return splits, stressed(graph, owners, splits, DataConfig(**knobs), 0)


def test_without_stress_nothing_changes(graph: Graph, owners: Partition) -> None:
    assert not DataConfig().stressed
    splits, (same, cut, held) = under(graph, owners)
    assert same.same_nodes(graph) and np.array_equal(same.y, graph.y)
    assert cut.missing_links == owners.missing_links
    for one, other in zip(splits, held, strict=True):
        assert np.array_equal(one.train, other.train)


def test_wrong_labels_are_training_labels_and_as_many_as_asked(
    graph: Graph, owners: Partition
) -> None:
    splits, (worse, cut, _) = under(graph, owners, noisy_labels=0.5)
    train = np.concatenate([n[s.train] for n, s in zip(owners.nodes, splits, strict=True)])
    wrong = np.flatnonzero(worse.y != graph.y)
    assert len(wrong) == round(0.5 * len(train)) and set(wrong) <= set(train)
    assert worse.y.min() >= 0 and worse.y.max() < graph.num_classes
    for part, ids in zip(cut.subgraphs, owners.nodes, strict=True):
        assert np.array_equal(part.y, worse.y[ids])


@pytest.mark.parametrize("knob", ["missing_links", "missing_features"])
def test_what_is_lost_at_a_higher_level_contains_what_is_lost_at_a_lower_one(
    graph: Graph, owners: Partition, knob: str
) -> None:
    _, (some, _, _) = under(graph, owners, **{knob: 0.3})
    _, (more, cut, _) = under(graph, owners, **{knob: 0.7})

    def held(one: Graph) -> set[tuple[int, int]]:
        where = one.links if knob == "missing_links" else np.array(one.x.nonzero())
        return {(int(u), int(v)) for u, v in where.T}

    assert held(more) < held(some) < held(graph)
    assert len(held(more)) == pytest.approx(0.3 * len(held(graph)), rel=0.3)
    assert [part.num_nodes for part in cut.subgraphs] == [20, 20, 20]


def test_fewer_labels_leave_validation_and_test_nodes(graph: Graph, owners: Partition) -> None:
    splits, (_, _, fewer) = under(graph, owners, few_labels=0.75)
    for before, after in zip(splits, fewer, strict=True):
        assert len(after.train) == len(before.train) - round(0.75 * len(before.train))
        assert set(after.train) <= set(before.train)
        assert np.array_equal(before.val, after.val) and np.array_equal(before.test, after.test)
