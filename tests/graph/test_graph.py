from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from fedsage.errors import DataError
from fedsage.graph.graph import Graph

X = np.eye(4, dtype=np.float32)
Y = np.array([0, 1, 0, -1])


def test_links_are_undirected_without_loops_and_doubles() -> None:
    graph = Graph.from_arrays(X, np.array([[0, 1, 2, 0, 3], [1, 0, 2, 2, 0]]), Y)
    assert graph.links.tolist() == [[0, 0, 0], [1, 2, 3]]
    assert graph.num_links == 3
    assert [graph.neighbors(v).tolist() for v in range(4)] == [[1, 2, 3], [0], [0], [0]]


def test_a_graph_cannot_be_changed() -> None:
    graph = Graph.from_arrays(X, np.array([[0], [1]]), Y)
    for array in (graph.indices, graph.indptr, graph.y, graph.x):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40), st.randoms())
def test_an_induced_subgraph_has_the_links_among_its_nodes(
    pairs: list[tuple[int, int]], random: st.DataObject
) -> None:
    links = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    x = csr_array(np.arange(20, dtype=np.float32).reshape(10, 2) + 1)
    graph = Graph.from_arrays(x, links, np.arange(10) % 2)
    nodes = np.array(random.sample(range(10), 6))  # type: ignore[attr-defined]
    part = graph.induced(nodes)
    expected = {
        frozenset((int(a), int(b))) for a, b in graph.links.T if {a, b} <= set(nodes.tolist())
    }
    assert {frozenset(nodes[pair].tolist()) for pair in part.links.T} == expected
    assert part.num_links == len(expected)
    assert all((np.diff(part.neighbors(v)) > 0).all() for v in range(6))
    assert (part.x.toarray() == x.toarray()[nodes]).all()
    assert (part.y == graph.y[nodes]).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_nan_in_features_is_refused_with_its_node(sparse: bool) -> None:
    x = X.copy()
    x[2, 2] = np.nan
    with pytest.raises(
        DataError, match="found 1 NaN or infinite feature value, the first at node 2"
    ):
        Graph.from_arrays(csr_array(x) if sparse else x, np.array([[0], [1]]), Y)


@pytest.mark.parametrize(
    ("links", "y", "names", "says"),
    [
        ([[0], [4]], Y, (), "found 1 link to nodes that do not exist, the first 0–4"),
        ([[-1], [1]], Y, (), "the first -1–1"),
        ([[0, 1, 2]], Y, (), "2 × E"),
        ([[0.5], [1.0]], Y, (), "float64"),
        ([[0], [1]], Y[:3], (), "4 nodes with features, but 3 labels"),
        ([[0], [1]], np.array([0, 1, 2, 0]), ("a", "b"), "the first, 2, at node 2"),
        ([[0], [1]], np.array([0, 1, -2, 0]), (), "the first, -2, at node 2"),
        ([[0], [1]], np.array([0.0, 1.0, 0.0, 1.0]), (), "whole numbers"),
        ([[0], [1]], Y[:, None], (), "one number per node, but have shape (4, 1)"),
        ([[0], [1]], np.array([0, 1, 9, 0]), (), "the first, 9, at node 2"),
    ],
)
def test_bad_arrays_are_refused_with_what_is_wrong(
    links: list[list[float]], y: np.ndarray, names: tuple[str, ...], says: str
) -> None:
    with pytest.raises(DataError) as caught:
        Graph.from_arrays(X, np.array(links), y, names)
    assert says in str(caught.value)


def test_sparse_features_stay_sparse_and_lose_stored_zeros() -> None:
    x = csr_array((np.array([1.0, 0.0]), np.array([1, 0]), np.array([0, 2, 2])), shape=(2, 3))
    graph = Graph.from_arrays(x, np.array([[0], [1]]), np.array([0, 1]))
    assert graph.x.nnz == 1
    assert graph.x.dtype == np.float32
    assert x.nnz == 2, "the user's own matrix is left as it was"
    x.data[:] = np.nan
    assert np.isfinite(graph.x.data).all(), "and what becomes of it later is no matter"


@pytest.mark.parametrize("x", [np.array([["a"], ["b"]]), np.array([[1j], [2j]])])
def test_features_that_are_no_numbers_are_refused(x: np.ndarray) -> None:
    with pytest.raises(DataError, match="must be numbers"):
        Graph.from_arrays(x, np.array([[0], [1]]), np.array([0, 1]))
