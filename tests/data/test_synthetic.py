from __future__ import annotations

import numpy as np
import pytest

from fedsage.data.npz import content_sha256
from fedsage.data.synthetic import synthetic


def test_the_graph_depends_on_its_seed_alone() -> None:
    first, again, other = (synthetic(nodes=200, seed=seed) for seed in (0, 0, 1))
    assert content_sha256(first) == content_sha256(again) != content_sha256(other)


@pytest.mark.parametrize(("nodes", "degree"), [(20, 2.0), (500, 4.0), (2000, 10.0)])
def test_it_has_the_size_that_was_asked_for(nodes: int, degree: float) -> None:
    graph = synthetic(nodes=nodes, degree=degree, classes=3, features=100)
    assert graph.num_nodes == nodes
    assert graph.num_links == round(nodes * degree / 2)
    assert (graph.num_features, graph.num_classes) == (100, 3)


def test_links_follow_communities_and_degrees_a_power_law() -> None:
    graph = synthetic(nodes=5000, degree=8.0, classes=5)
    a, b = graph.links
    assert (graph.y[a] == graph.y[b]).mean() > 0.7  # by chance it would be 0.2
    assert graph.degrees.max() > 10 * graph.degrees.mean()


def test_words_tell_the_topic() -> None:
    graph = synthetic(nodes=3000, classes=3, features=300)
    centers = np.stack([graph.x[graph.y == c].mean(axis=0) for c in range(3)])
    guessed = (graph.x @ (centers - centers.mean(axis=0)).T).argmax(axis=1)
    assert 0.5 < (guessed == graph.y).mean() < 0.99
    assert graph.x.nnz < 0.1 * graph.num_nodes * graph.num_features
