from __future__ import annotations

import numpy as np
import pytest

from fedsage.data.synthetic import synthetic
from fedsage.graph import assign as found
from fedsage.graph.assign import by_igraph, communities, contracted, louvain_membership
from fedsage.graph.graph import Graph
from fedsage.kernels import door
from fedsage.rng import generator
from fedsage.shapes import NodeIds


def modularity(graph: Graph, membership: NodeIds) -> float:
    """Newman's: the share of links inside communities, less what chance would put there."""
    inside = (membership[graph.links[0]] == membership[graph.links[1]]).mean()
    share = np.bincount(membership, weights=graph.degrees) / graph.degrees.sum()
    return float(inside - (share**2).sum())


def first_pass(graph: Graph) -> NodeIds:
    """The communities after which no node wants to move."""
    order = generator(0, "order").permutation(graph.num_nodes)
    ends = graph.adjacency
    membership = door.first_pass(
        ends.indptr.astype(np.int64), ends.indices.astype(np.int32), order, 1
    )
    return np.unique(membership, return_inverse=True)[1]


def test_after_the_first_pass_no_move_of_one_node_is_a_gain(graph: Graph) -> None:
    membership = first_pass(graph)
    before = modularity(graph, membership)
    for v in range(graph.num_nodes):
        for c in set(membership[graph.neighbors(v)].tolist()):
            other = membership.copy()
            other[v] = c
            assert modularity(graph, other) <= before + 1e-12


def test_a_contracted_graph_has_the_links_of_the_communities(graph: Graph) -> None:
    membership = first_pass(graph)
    table = contracted(graph.adjacency, membership).toarray()
    for a in range(len(table)):
        for b in range(a, len(table)):
            ends = np.sort(membership[graph.links], axis=0)
            assert table[a, b] == ((ends[0] == a) & (ends[1] == b)).sum()
    assert table.sum() == graph.num_links


@pytest.mark.parametrize("seed", range(3))
def test_our_first_pass_leads_to_communities_as_good_as_igraph_s(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    graph = synthetic(nodes=3000, degree=6, seed=seed)
    draws = generator(seed, "communities")
    theirs = by_igraph(graph.links, None, graph.num_nodes, draws)
    monkeypatch.setattr(found, "LARGE", 1000)
    ours = louvain_membership(graph.adjacency, draws)
    assert modularity(graph, ours) > 0.97 * modularity(graph, theirs)


def test_a_large_graph_is_cut_by_seed(monkeypatch: pytest.MonkeyPatch, graph: Graph) -> None:
    monkeypatch.setattr(found, "LARGE", 10)
    everyone = np.arange(graph.num_nodes)
    first, again = (
        communities(graph.adjacency, everyone, generator(0, "cut")) for _ in range(2)
    )
    assert [part.tolist() for part in first] == [part.tolist() for part in again]
    assert sorted(np.concatenate(first).tolist()) == everyone.tolist()
