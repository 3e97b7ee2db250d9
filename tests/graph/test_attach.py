from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated, mend
from fedsage.graph.partition import Partition
from fedsage.mending.copies import copies
from fedsage.mending.oracle import true_neighbors
from fedsage.models.graphsage import GraphSage
from fedsage.rng import generator
from tests.models.conftest import shape_of


def dense(graph: Graph) -> Graph:
    return Graph.from_arrays(graph.x.toarray(), graph.links, graph.y, graph.class_names)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_generated_neighbors_hang_on_their_nodes_in_both_directions(
    graph: Graph, kind: str
) -> None:
    graph = dense(graph) if kind == "dense" else graph
    parents = np.array([3, 3, 10])
    mended = mend(graph, Generated(parents, graph.x[[7, 8, 9]]))
    assert mended.num_nodes == graph.num_nodes + 3
    assert mended.num_links == graph.num_links + 3
    for k, parent in enumerate(parents):
        new = graph.num_nodes + k
        assert mended.neighbors(new).tolist() == [parent]
        assert new in mended.neighbors(parent)
        assert (mended.x[[new]] != graph.x[[7 + k]]).sum() == 0
        assert mended.y[new] == -1
    for v in set(range(graph.num_nodes)) - {3, 10}:
        assert mended.neighbors(v).tolist() == graph.neighbors(v).tolist()
    assert (mended.y[: graph.num_nodes] == graph.y).all()


def test_generated_neighbors_change_the_logits_of_real_nodes(graph: Graph) -> None:
    model = GraphSage(shape_of(graph), generator(0, "phi"))
    before = model.on_graph(graph)
    mended = mend(graph, Generated(np.array([3]), graph.x[[7]]))
    after = model.on_graph(mended)[: graph.num_nodes]
    changed = (before != after).any(dim=1)
    assert changed[3]
    near = {3, *graph.neighbors(3).tolist()}
    assert set(torch.nonzero(changed).flatten().tolist()) <= near


def test_a_mended_graph_without_generated_neighbors_is_the_graph(graph: Graph) -> None:
    mended = mend(graph, Generated(np.empty(0, dtype=np.int64), graph.x[:0]))
    assert (mended.indices == graph.indices).all()
    assert (mended.x != graph.x).nnz == 0


def test_a_copy_has_its_node_s_own_features(graph: Graph) -> None:
    mended = mend(graph, copies(graph, 1))
    assert mended.num_nodes == 2 * graph.num_nodes
    assert (mended.x[graph.num_nodes :] != graph.x).nnz == 0


def test_true_neighbors_are_the_other_ends_of_missing_links(
    graph: Graph, owners: Partition
) -> None:
    found = true_neighbors(graph, owners.nodes)
    assert sum(len(one.parents) for one in found) == 2 * owners.missing_links
    for ids, one in zip(owners.nodes, found, strict=True):
        mine = set(ids.tolist())
        for v in range(len(ids)):
            missing = [u for u in graph.neighbors(ids[v]) if u not in mine]
            rows = one.x[np.flatnonzero(one.parents == v)].toarray()
            expected = graph.x[missing].toarray()
            assert sorted(map(tuple, rows)) == sorted(map(tuple, expected))
