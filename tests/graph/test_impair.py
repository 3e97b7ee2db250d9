from __future__ import annotations

import numpy as np
import pytest

from fedsage.graph.graph import Graph
from fedsage.graph.mend import impair
from fedsage.rng import generator


@pytest.mark.parametrize("ratio", [0.001, 0.15, 0.5, 0.999])
def test_hidden_and_kept_nodes_are_all_nodes_and_neither_is_empty(
    graph: Graph, ratio: float
) -> None:
    impaired = impair(graph, ratio, generator(0, "impair"))
    assert sorted([*impaired.kept, *impaired.hidden]) == list(range(graph.num_nodes))
    assert len(impaired.hidden) == min(max(round(ratio * 60), 1), 59)
    assert (impaired.x_hidden != graph.x[impaired.hidden]).nnz == 0


def test_the_impaired_graph_is_what_is_left_when_hidden_nodes_go(graph: Graph) -> None:
    impaired = impair(graph, 0.3, generator(0, "impair"))
    hidden = set(impaired.hidden.tolist())
    for v, original in enumerate(impaired.kept):
        left = [u for u in graph.neighbors(original).tolist() if u not in hidden]
        assert sorted(impaired.kept[impaired.graph.neighbors(v)].tolist()) == sorted(left)
    assert (impaired.graph.x != graph.x[impaired.kept]).nnz == 0
    assert (impaired.graph.y == graph.y[impaired.kept]).all()


def test_missing_neighbors_are_the_hidden_ones(graph: Graph) -> None:
    impaired = impair(graph, 0.3, generator(0, "impair"))
    hidden = set(impaired.hidden.tolist())
    for v, original in enumerate(impaired.kept):
        expected = [u for u in graph.neighbors(original).tolist() if u in hidden]
        assert sorted(impaired.hidden[impaired.missing[[v]].indices]) == sorted(expected)
        assert impaired.num_missing[v] == len(expected)
    assert impaired.num_missing.sum() > 0


def test_the_seed_decides_who_is_hidden(graph: Graph) -> None:
    one, again, other = (
        impair(graph, 0.3, generator(seed, "impair")).hidden for seed in (0, 0, 1)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
