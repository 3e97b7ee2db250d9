"""Compiled queries agree with the readable ones, for every graph and head there is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsage.graph.graph import Graph
from fedsage.kernels import sage
from fedsage.models import compiled
from fedsage.models.backbone import query_each
from fedsage.models.graphsage import GraphSage
from fedsage.rng import generator
from tests.kernels.test_epoch import random_graph
from tests.models.conftest import shape_of


def model_for(graph: Graph, widths: tuple[int, ...] = (8, 4), head: str = "relu") -> GraphSage:
    """A model whose biases are not zero."""
    model = GraphSage(shape_of(graph, widths=widths, head=head), generator(0, "phi"))
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.uniform_(weight, -0.5, 0.5, torch.Generator().manual_seed(1))
    return model


@pytest.mark.slow
@settings(max_examples=100)
@given(
    nodes=st.integers(4, 40),
    features=st.integers(1, 12),
    classes=st.integers(2, 20),
    links=st.integers(0, 80),
    dense=st.booleans(),
    widths=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    head=st.sampled_from(["relu", "l2", "direct"]),
    asked=st.lists(st.integers(0, 3), max_size=6),
)
def test_a_compiled_query_is_the_readable_one_to_rounding(
    nodes: int, features: int, classes: int, links: int, dense: bool, widths: tuple[int, int],
    head: str, asked: list[int],
) -> None:  # fmt: skip
    graph = random_graph(nodes, features, classes, links, dense)
    model = model_for(graph, widths, head)
    some = np.array([*asked, nodes - 1], np.int64)  # the last node has no link
    for which in (some, some[:0], np.arange(nodes)):
        torch.testing.assert_close(
            model.on_graph(graph, which),
            model.torch_logits(graph, which),
            rtol=1e-4,
            atol=1e-5,
        )


def test_some_nodes_get_the_same_bits_as_among_all(graph: Graph) -> None:
    model = model_for(graph)
    some = np.array([3, 0, 17, 3])
    among_all = model.on_graph(graph, np.arange(graph.num_nodes))
    assert torch.equal(model.on_graph(graph, some), among_all[some])


def test_queries_in_several_threads_give_the_same_bits(graph: Graph) -> None:
    model, nodes = model_for(graph), np.arange(graph.num_nodes)
    alone = model.on_graph(graph, nodes)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: model.on_graph(graph, nodes), range(16)))
    assert all(torch.equal(one, alone) for one in together)


def test_a_query_leaves_weights_and_graph_as_they_are(graph: Graph) -> None:
    model = model_for(graph)
    before = [weight.detach().clone() for weight in model.parameters()]
    first = model.on_graph(graph, np.arange(5))
    assert not first.requires_grad
    assert torch.equal(first, model.on_graph(graph, np.arange(5)))
    for weight, held in zip(model.parameters(), before, strict=True):
        assert torch.equal(weight, held)


def test_queries_take_the_kernel_that_trains(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_says, kernel_says = torch.zeros(3, 3), torch.ones(3, 3)
    monkeypatch.setattr(GraphSage, "torch_logits", lambda *_: torch_says)
    monkeypatch.setattr(compiled, "logits", lambda *_: kernel_says)
    nodes, two, three = np.arange(3), model_for(graph), model_for(graph, (8, 6, 4))
    assert two.on_graph(graph, nodes) is kernel_says
    assert three.on_graph(graph, nodes) is torch_says
    two.kernel = "torch"
    assert two.on_graph(graph, nodes) is torch_says


def test_parts_are_queried_together(graph: Graph) -> None:
    model, parts = model_for(graph), [np.array([4, 1]), np.array([2]), np.array([], np.int64)]
    for kernel in ("auto", "torch"):
        model.kernel = kernel  # type: ignore[assignment]
        each = query_each(model, graph, parts, "full", (), [])
        assert [len(one) for one in each] == [2, 1, 0]
        assert torch.equal(torch.cat(each), model.on_graph(graph, np.array([4, 1, 2])))


def test_nothing_compiles_the_query_again(graph: Graph) -> None:
    dense = random_graph(20, 6, 3, 30, dense=True)
    read_only = np.arange(4)
    read_only.setflags(write=False)
    for one, head in ((graph, "relu"), (dense, "l2"), (dense, "direct")):
        for nodes in (np.arange(3), read_only, np.arange(8)[::2]):
            model_for(one, head=head).on_graph(one, nodes)
    assert len(sage.logits.signatures) == 1
