from __future__ import annotations

import math
import time

import numpy as np
import pytest

from fedsage.data.synthetic import synthetic
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.rng import generator
from fedsage.theory.bound import (
    generalization_bound,
    label_norm,
    label_norm_bound,
    predict_by_kernel,
    trace_bound,
)
from fedsage.theory.gntk import (
    aggregate,
    distinct_nodes,
    gntk,
    neighborhood_sums,
    relu_covariance,
)
from fedsage.theory.gntk import relu_covariance_dot as dot


@pytest.mark.parametrize("rho", [-0.9, -0.3, 0.0, 0.3, 0.99])
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_covariances_of_relus_are_what_samples_say(rho: float, scale: float) -> None:
    cov = np.array([[2.0, rho * math.sqrt(2 * 0.5)], [rho * math.sqrt(2 * 0.5), 0.5]])
    a, b = generator(0, "monte carlo").multivariate_normal([0, 0], cov, 2_000_000).T
    product = np.maximum(a, 0) * np.maximum(b, 0)
    both = (a > 0) & (b > 0)
    found = relu_covariance(cov, scale)[0, 1], dot(cov, scale)[0, 1]
    assert found[0] == pytest.approx(scale * product.mean(), abs=4e-3)
    assert found[1] == pytest.approx(scale * both.mean(), abs=2e-3)


def test_the_value_that_the_paper_s_formula_misses() -> None:
    cov = np.array([[1.0, 0.3], [0.3, 1.0]])
    assert relu_covariance(cov)[0, 1] == pytest.approx(0.2413, abs=1e-3)


@pytest.mark.parametrize(("layers", "transforms"), [(1, 1), (2, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("node_scale", ["unit", "mean", "sum"])
def test_theta_is_the_definition_in_plain_loops(
    layers: int, transforms: int, node_scale: str
) -> None:
    graph = synthetic(nodes=20, classes=2, features=12, words=4.0)
    x = graph.x.toarray().astype(np.float64)
    around = [[u, *graph.neighbors(u).tolist()] for u in range(20)]
    sums = np.array([x[near].sum(axis=0) for near in around])
    c = {
        "unit": 1 / np.linalg.norm(sums, axis=1),
        "mean": np.array([1 / len(near) for near in around]),
        "sum": np.ones(20),
    }[node_scale]
    cov = theta = x @ x.T
    for _ in range(layers):
        cov, theta = (
            np.array(
                [
                    [c[u] * c[v] * sum(k[p, q] for p in around[u] for q in around[v])
                     for v in range(20)]
                    for u in range(20)
                ]
            )
            for k in (cov, theta)
        )  # fmt: skip
        for _ in range(transforms):
            new, first = np.zeros((20, 20)), np.zeros((20, 20))
            for u in range(20):
                for v in range(20):
                    size = math.sqrt(cov[u, u] * cov[v, v])
                    r = min(max(cov[u, v] / size, -1.0), 1.0)
                    new[u, v] = size * (r * (math.pi - math.acos(r)) + math.sqrt(1 - r * r))
                    first[u, v] = math.pi - math.acos(r)
            cov, theta = (
                new / (2 * math.pi),
                theta * first / (2 * math.pi) + new / (2 * math.pi),
            )
    found = gntk(graph, layers, transforms, node_scale)
    np.testing.assert_allclose(found, theta, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("layers", "transforms"), [(1, 1), (2, 2)])
def test_theta_is_symmetric_and_positive_semidefinite(
    graph: Graph, layers: int, transforms: int
) -> None:
    theta = gntk(graph, layers, transforms, act_scale=2.0)
    np.testing.assert_allclose(theta, theta.T, rtol=1e-9, atol=1e-12)
    values = np.linalg.eigvalsh(theta)
    assert values.min() > -1e-9 * values.max()


def test_the_trace_stays_below_its_bound(graph: Graph) -> None:
    theta = gntk(graph)
    assert np.trace(theta) <= trace_bound(60)
    assert theta.max() <= 2
    np.testing.assert_allclose(np.diag(theta), 1.0, atol=1e-6)  # 1 · 1/2 + 1/2


def test_the_label_norm_stays_below_its_bound() -> None:
    """Labels made as the assumption has them, from aggregates of length one."""
    stream = generator(0, "labels")
    graph = synthetic(nodes=80, classes=2, features=200, words=10.0)
    around = neighborhood_sums(graph, "unit")
    h = (around @ graph.x).toarray()
    beta_1, beta_2 = stream.standard_normal((2, 200)) / 10
    y = 0.7 * h @ beta_1 + 0.4 * (h @ beta_2) ** 2
    lengths = [float(np.linalg.norm(beta)) for beta in (beta_1, beta_2)]
    bound = label_norm_bound((0.7, lengths[0]), [0.4], [lengths[1]])
    assert 0 < label_norm(gntk(graph), y) <= bound


def test_the_bound_is_its_formula() -> None:
    stream = generator(0, "kernel")
    half = stream.standard_normal((60, 60))
    theta, y = half @ half.T + np.eye(60), stream.standard_normal(60)
    norm = math.sqrt(y @ np.linalg.inv(theta) @ y)
    expected = norm * math.sqrt(np.trace(theta)) / 60 + math.sqrt(math.log(20) / 60)
    assert generalization_bound(theta, y, 0.05) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ConfigError, match="failure_prob is 2"):
        generalization_bound(theta, y, 2.0)


def test_aggregation_from_both_sides_is_a_product(graph: Graph) -> None:
    around = neighborhood_sums(graph, "mean")
    kernel = generator(0, "k").standard_normal((60, 60))
    dense = around.toarray()
    np.testing.assert_allclose(aggregate(around, kernel), dense @ kernel @ dense.T, atol=1e-12)


def test_of_nodes_that_the_kernel_cannot_tell_apart_one_is_kept() -> None:
    x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0], [3.0, 1.0]])
    graph = Graph.from_arrays(x, np.array([[0], [1]]), np.array([0, 1, 0, 1]))  # 0 – 1
    theta = gntk(graph)
    assert distinct_nodes(theta).tolist() == [0, 2, 3]
    assert np.linalg.eigvalsh(theta)[0] < 1e-12
    assert np.linalg.eigvalsh(theta[np.ix_([0, 2, 3], [0, 2, 3])])[0] > 1e-3


def test_kernel_regression_learns() -> None:
    graph = synthetic(nodes=300, classes=3, features=200)
    theta = gntk(graph, 2)
    train, test = np.arange(200), np.arange(200, 300)
    said = predict_by_kernel(theta, train, test, np.eye(3)[graph.y[train]])
    assert (said.argmax(axis=1) == graph.y[test]).mean() > 0.7
    again = predict_by_kernel(theta, train, train, np.eye(3)[graph.y[train]])
    assert (again.argmax(axis=1) == graph.y[train]).mean() > 0.95


@pytest.mark.dataset
def test_a_thousand_nodes_of_cora_take_seconds() -> None:
    from fedsage.data.load import load

    graph = load("cora").induced(np.arange(1000))
    start = time.perf_counter()
    theta = gntk(graph, 2, 2)
    assert theta.shape == (1000, 1000) and time.perf_counter() - start < 10
