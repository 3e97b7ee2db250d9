from __future__ import annotations

import numpy as np

from fedsage.graph.graph import Graph
from fedsage.mending.classes import class_links, class_neighbors
from fedsage.rng import generator


def test_links_are_counted_between_training_nodes_in_both_directions(graph: Graph) -> None:
    train = np.arange(0, 60, 2)
    expected = np.zeros((3, 3))
    for v in train:
        for u in graph.neighbors(v):
            if u in train:
                expected[graph.y[v], graph.y[u]] += 1
    found = class_links(graph, train)
    assert np.array_equal(found, expected)
    assert np.array_equal(found, found.T)
    assert found.sum() > 0


def test_labels_of_other_nodes_change_nothing(graph: Graph) -> None:
    train = np.arange(0, 60, 2)
    y = graph.y.copy()
    y[1::2] = (y[1::2] + 1) % 3
    other = Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names)
    links = class_links(graph, train)
    assert np.array_equal(links, class_links(other, train))
    drawn = [class_neighbors(g, train, links, 2, generator(0, "c")) for g in (graph, other)]
    assert np.array_equal(drawn[0].parents, drawn[1].parents)
    assert (drawn[0].x != drawn[1].x).nnz == 0


def test_the_class_of_a_neighbor_follows_the_links(graph: Graph) -> None:
    train = np.arange(60)
    links = np.array([[0, 3, 1], [1, 0, 0], [0, 0, 5]], dtype=np.float32)
    drawn = class_neighbors(graph, train, links, 400, generator(0, "classes"))
    assert np.array_equal(drawn.parents, np.repeat(train, 400))
    rows = {row.tobytes(): c for row, c in zip(graph.x.toarray(), graph.y, strict=True)}
    classes = np.array([rows[row.tobytes()] for row in drawn.x.toarray()])
    for c in range(3):
        found = np.bincount(classes[graph.y[drawn.parents] == c], minlength=3)
        share = links[c] / links[c].sum()
        assert np.abs(found / found.sum() - share).max() < 0.03
        assert found[share == 0].sum() == 0


def test_a_class_that_nobody_is_linked_to_gives_no_neighbors(graph: Graph) -> None:
    train = np.arange(60)
    links = np.array([[0, 0, 0], [0, 2, 0], [0, 0, 2]], dtype=np.float32)
    drawn = class_neighbors(graph, train, links, 1, generator(0, "classes"))
    assert set(graph.y[drawn.parents].tolist()) == {1, 2}


def test_a_class_without_a_training_node_here_is_never_drawn(graph: Graph) -> None:
    train = np.flatnonzero(graph.y != 2)
    drawn = class_neighbors(
        graph, train, np.ones((3, 3), np.float32), 5, generator(0, "classes")
    )
    assert len(drawn.parents) == 5 * len(train)
    rows = {row.tobytes() for row in graph.x[train].toarray()}
    assert all(row.tobytes() in rows for row in drawn.x.toarray())
