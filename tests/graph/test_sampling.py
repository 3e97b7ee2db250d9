from __future__ import annotations

import numpy as np
import pytest

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import (
    full_mean,
    node_batches,
    sample_hop,
    sample_hops,
)
from fedsage.rng import generator


def with_isolated(graph: Graph) -> Graph:
    """The same graph, where the last node has no link."""
    last = graph.num_nodes - 1
    links = graph.links[:, (graph.links != last).all(axis=0)]
    return Graph.from_arrays(graph.x, links, graph.y, graph.class_names)


def test_every_node_comes_once_in_some_batch() -> None:
    batches = list(node_batches(np.arange(10, 33), 5, generator(0, "batches")))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert sorted(np.concatenate(batches).tolist()) == list(range(10, 33))


def test_a_hop_draws_neighbors_only_and_fanout_of_them(graph: Graph) -> None:
    graph = with_isolated(graph)
    targets = np.arange(graph.num_nodes)
    hop = sample_hop(graph, targets, 4, generator(0, "hop"))
    assert (hop.inputs[: len(targets)] == targets).all()
    assert len(np.unique(hop.inputs)) == len(hop.inputs)
    for v in targets:
        drawn = hop.inputs[hop.mean.indices[hop.mean.indptr[v] : hop.mean.indptr[v + 1]]]
        assert set(drawn) <= set(graph.neighbors(v))
        assert len(drawn) == (4 if len(graph.neighbors(v)) else 0)
    assert graph.degrees[-1] == 0  # isolated: its aggregate is zero
    assert hop.mean.sum(axis=1) == pytest.approx((graph.degrees > 0).astype(float))


def test_every_neighbor_is_drawn_equally_often() -> None:
    star = Graph.from_arrays(
        np.eye(5, dtype=np.float32), np.array([[0, 0, 0, 0], [1, 2, 3, 4]]), np.arange(5) % 2
    )
    hop = sample_hop(star, np.array([0]), 40_000, generator(0, "often"))
    counts = np.bincount(hop.inputs[hop.mean.indices], minlength=5)[1:]
    assert counts == pytest.approx(10_000, rel=0.05)


def test_hops_fit_together(graph: Graph) -> None:
    batch = np.array([7, 3, 11])
    first, second = sample_hops(graph, batch, (5, 2), generator(0, "hops"))
    assert (second.inputs[:3] == batch).all()
    assert (first.inputs[: len(second.inputs)] == second.inputs).all()
    assert first.mean.shape == (len(second.inputs), len(first.inputs))
    assert second.mean.shape == (3, len(second.inputs))


def test_the_full_mean_averages_over_all_neighbors(graph: Graph) -> None:
    graph = with_isolated(graph)
    h = np.arange(graph.num_nodes, dtype=np.float32)[:, None]
    averaged = full_mean(graph) @ h
    for v in range(graph.num_nodes):
        around = graph.neighbors(v)
        assert averaged[v, 0] == pytest.approx(around.mean() if len(around) else 0.0)
