from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import Hop, full_mean, sample_hops
from fedsage.models.backbone import feature_rows, infer_sampled
from fedsage.models.graphsage import GraphSage, SageLayer
from fedsage.models.sparse import (
    add_compiled_product,
    bag_product,
    compiled_product,
    sparse_product,
)
from fedsage.rng import generator
from tests.graph.test_sampling import with_isolated
from tests.models.conftest import everyone, shape_of


def new_sage(graph: Graph, **settings: object) -> GraphSage:
    """One that takes torch, never compiled code."""
    model = GraphSage(shape_of(graph, **settings), generator(0, "phi"))
    model.kernel = "torch"
    return model


def on_hops(
    model: GraphSage, graph: Graph, hops: list[Hop], stream: np.random.Generator | None = None
) -> torch.Tensor:
    rows = feature_rows(graph.x, hops[0].inputs, model.device)
    return model.on_hops(rows, hops, stream)


def test_a_layer_is_equation_1(graph: Graph) -> None:
    graph = with_isolated(graph)
    layer = SageLayer(graph.num_features, 5, generator(0, "layer"))
    torch.nn.init.normal_(layer.bias)
    x = torch.from_numpy(graph.x.toarray())
    phi = torch.cat([layer.phi_own, layer.phi_neighbors])
    expected = []
    for v in range(graph.num_nodes):
        around = graph.neighbors(v)
        zero = torch.zeros(graph.num_features)
        mean = torch.stack([x[u] for u in around]).mean(0) if len(around) else zero
        expected.append(torch.cat([x[v], mean]) @ phi + layer.bias)
    for h in (graph.x, x):  # sparse and dense features
        out = layer(h, h, full_mean(graph))
        torch.testing.assert_close(out, torch.stack(expected))


@pytest.mark.parametrize("product", [sparse_product, bag_product])
def test_a_sparse_product_has_the_value_and_gradient_of_the_dense_one(
    graph: Graph, product: object
) -> None:
    h = torch.randn(graph.num_features, 6, requires_grad=True)
    dense = torch.from_numpy(graph.x.toarray())
    target = torch.randn(graph.num_nodes, 6)
    out = product(graph.x, h)  # type: ignore[operator]
    torch.testing.assert_close(out, dense @ h)
    (gradient,) = torch.autograd.grad((out * target).sum(), h)
    torch.testing.assert_close(gradient, dense.T @ target)


@pytest.mark.parametrize("head", ["relu", "l2", "direct"])
@pytest.mark.parametrize("norm", ["none", "l2", "layer"])
def test_inference_by_layers_is_the_forward_pass_on_full_neighborhoods(
    graph: Graph, head: str, norm: str
) -> None:
    graph = with_isolated(graph)
    model = new_sage(graph, head=head, norm=norm)
    hop = everyone(graph)
    torch.testing.assert_close(model.on_graph(graph), model.on_hops(graph.x, [hop, hop]))


@pytest.mark.parametrize("nodes", [[], [59], [3, 0, 17, 59]])
@pytest.mark.parametrize("widths", [(4,), (8, 4), (8, 6, 4)])
def test_some_nodes_get_the_same_logits_as_among_all(
    graph: Graph, nodes: list[int], widths: tuple[int, ...]
) -> None:
    graph = with_isolated(graph)
    model = new_sage(graph, widths=widths)
    some = model.on_graph(graph, np.array(nodes, dtype=np.int64))
    torch.testing.assert_close(some, model.on_graph(graph)[nodes])


def test_nodes_in_batches_give_the_same_logits(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = new_sage(graph)
    whole = model.on_graph(graph)
    monkeypatch.setattr("fedsage.models.graphsage.ROWS", 7)
    torch.testing.assert_close(model.on_graph(graph), whole)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_some_nodes_have_the_logits_they_have_among_all(graph: Graph, layers: int) -> None:
    model = new_sage(graph, widths=(8, 6, 4)[:layers])
    nodes = np.array([5, 3, 3, 40])
    some = model.on_graph(graph, nodes)
    torch.testing.assert_close(some, model.on_graph(graph)[torch.from_numpy(nodes)])


def test_sampled_inference_approaches_full_inference_with_a_large_fanout(graph: Graph) -> None:
    model = new_sage(graph)
    nodes = np.arange(10)
    many = infer_sampled(model, graph, nodes, (3000, 3000), generator(0, "many"))
    torch.testing.assert_close(many, model.on_graph(graph)[:10], atol=0.05, rtol=0.05)
    assert infer_sampled(model, graph, nodes[:0], (5, 5), generator(0, "none")).shape == (0, 3)


def test_renumbering_nodes_changes_nothing_but_the_order(graph: Graph) -> None:
    model = new_sage(graph)
    order = generator(0, "order").permutation(graph.num_nodes)
    permuted = model.on_graph(graph.induced(order))
    torch.testing.assert_close(permuted, model.on_graph(graph)[torch.from_numpy(order)])


def test_dense_and_sparse_features_give_the_same_gradients(graph: Graph) -> None:
    dense = Graph.from_arrays(graph.x.toarray(), graph.links, graph.y, graph.class_names)
    hops = sample_hops(graph, np.arange(20), (5, 5), generator(0, "hops"))
    gradients = []
    for one in (graph, dense):
        model = new_sage(one, dropout=0.5)
        loss = on_hops(model, one, hops, generator(0, "drop")).square().sum()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    for sparse, full in zip(*gradients, strict=True):
        torch.testing.assert_close(sparse, full)


def test_dropout_keeps_the_mean_and_draws_from_its_own_stream(graph: Graph) -> None:
    model, plain = new_sage(graph, dropout=0.5), new_sage(graph)
    hops = sample_hops(graph, np.arange(20), (5, 5), generator(0, "hops"))
    first, again, other = (
        on_hops(model, graph, hops, generator(seed, "drop")) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    undisturbed = on_hops(plain, graph, hops, generator(2, "drop"))
    assert torch.equal(on_hops(model, graph, hops), undisturbed)


def test_no_dense_matrix_of_all_features_is_ever_made(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("sparse features were made dense")

    monkeypatch.setattr(type(graph.x), "toarray", refuse)
    monkeypatch.setattr(type(graph.x), "todense", refuse)
    model = new_sage(graph)
    hops = sample_hops(graph, np.arange(20), (5, 5), generator(0, "hops"))
    on_hops(model, graph, hops).sum().backward()
    model.on_graph(graph)


@pytest.mark.parametrize("widths", [(4,), (8, 4, 4)])
def test_any_depth_works(graph: Graph, widths: tuple[int, ...]) -> None:
    model = new_sage(graph, widths=widths)
    hops = sample_hops(graph, np.arange(5), (3,) * len(widths), generator(0, "hops"))
    assert on_hops(model, graph, hops).shape == (5, graph.num_classes)
    assert model.on_graph(graph).shape == (graph.num_nodes, graph.num_classes)


def test_a_product_of_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="No product"):
        compiled_product(csr_array(np.eye(3, dtype=np.float32)), torch.ones(2, 4))
    with pytest.raises(ValueError, match="for 2 rows"):
        three = csr_array(np.eye(3, dtype=np.float32))
        add_compiled_product(torch.zeros(2, 4), three, torch.ones(3, 4))
