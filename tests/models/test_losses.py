"""Each equation against the formula in plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fedsage.graph.arrays import squared_norms
from fedsage.graph.graph import Graph
from fedsage.graph.mend import impair
from fedsage.models.losses import (
    classification_loss,
    cross_subgraph_feature_loss,
    degree_loss,
    feature_loss,
    joint_loss,
    neighgen_loss,
)
from fedsage.models.nearest import nearest
from fedsage.rng import generator

PLENTY = 2**20


def rows_and_owners(
    num_nodes: int, width: int, d_x: int, seed: int
) -> tuple[torch.Tensor, np.ndarray]:
    stream = generator(seed, "rows")
    of = np.repeat(np.arange(num_nodes), stream.integers(0, width + 1, num_nodes))
    rows = torch.from_numpy(stream.standard_normal((len(of), d_x), dtype=np.float32))
    return rows.requires_grad_(), of


def test_the_classification_loss_is_equation_2() -> None:
    logits = torch.tensor([[1.0, -0.5, 2.0], [0.0, 0.3, -1.0]])
    y = torch.tensor([2, 0])
    expected = 0.0
    for v in range(2):
        total = sum(math.exp(value) for value in logits[v].tolist())
        expected -= math.log(math.exp(float(logits[v, y[v]])) / total)
    torch.testing.assert_close(classification_loss(logits, y), torch.tensor(expected / 2))


def test_the_degree_loss_is_equation_4() -> None:
    predicted, true = [0.2, 3.0, 1.0, 0.0], [0.0, 1.0, 1.0, 4.0]
    expected = 0.0
    for a, b in zip(predicted, true, strict=True):
        gap = abs(a - b)
        expected += 0.5 * gap**2 if gap < 1 else gap - 0.5
    found = degree_loss(torch.tensor(predicted), torch.tensor(true))
    assert found.item() == pytest.approx(expected / 4)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("width", [0, 1, 4])
def test_the_feature_loss_is_equation_4(graph: Graph, width: int, kind: str) -> None:
    impaired = impair(graph, 0.4, generator(0, "impair"))
    batch = np.array([5, 0, 17, 30, 8, 21])
    generated, of = rows_and_owners(len(batch), width, graph.num_features, seed=width)
    dense = impaired.x_hidden.toarray()
    expected = 0.0
    for row, v in zip(generated.detach().numpy(), of, strict=True):
        hidden = impaired.missing[[batch[v]]].indices
        if len(hidden):
            expected += min(float(((row - dense[u]) ** 2).sum()) for u in hidden)
    x_hidden = impaired.x_hidden if kind == "sparse" else dense
    loss = feature_loss(generated, of, impaired.missing[batch], x_hidden)
    assert loss.item() == pytest.approx(expected / len(batch), rel=1e-5)
    assert width == 0 or expected > 0


def test_a_node_with_no_hidden_neighbor_adds_nothing(graph: Graph) -> None:
    impaired = impair(graph, 0.1, generator(0, "impair"))
    alone = np.flatnonzero(impaired.num_missing == 0)[:4]
    generated, of = rows_and_owners(4, 3, graph.num_features, seed=1)
    loss = feature_loss(generated, of, impaired.missing[alone], impaired.x_hidden)
    loss.backward()
    assert loss.item() == 0
    assert generated.grad is not None and not generated.grad.any()


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("num_owned", [1, 7, 60])
@pytest.mark.parametrize("width", [1, 3])
def test_the_cross_subgraph_loss_is_equation_6(
    graph: Graph, num_owned: int, width: int, kind: str
) -> None:
    generated, _ = rows_and_owners(4, width, graph.num_features, seed=num_owned)
    dense = graph.x[:num_owned].toarray()
    expected = 0.0
    for row in generated.detach().numpy():
        expected += min(float(((row - x) ** 2).sum()) for x in dense)
    x = csr_array(dense) if kind == "sparse" else dense
    loss, found = cross_subgraph_feature_loss(generated, 4, x, squared_norms(x), PLENTY)
    assert loss.item() == pytest.approx(expected / 4, rel=1e-5)
    loss.backward()
    assert generated.grad is not None
    gap = generated.detach().numpy() - dense[found]
    np.testing.assert_allclose(generated.grad.numpy(), 2 * gap / 4, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("max_bytes", [1, 200, 2000, PLENTY])
def test_chunks_find_the_same_nearest_node(graph: Graph, max_bytes: int) -> None:
    rows, _ = rows_and_owners(9, 4, graph.num_features, seed=3)
    squares = squared_norms(graph.x)
    found = nearest(rows, graph.x, squares, max_bytes)
    distance = torch.cdist(rows.detach(), torch.from_numpy(graph.x.toarray()))
    assert found.tolist() == distance.argmin(dim=1).tolist()
    assert nearest(rows[:0], graph.x, squares, max_bytes).shape == (0,)


def test_the_lambdas_weigh_their_terms() -> None:
    d, f, c = torch.tensor(2.0), torch.tensor(3.0), torch.tensor(5.0)
    assert neighgen_loss(d, f, 0.5, 10).item() == 31
    assert joint_loss(neighgen_loss(d, f, 0.5, 10), c, 0.1).item() == 31.5
