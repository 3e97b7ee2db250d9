from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsage.config import ModelConfig
from fedsage.data.synthetic import synthetic
from fedsage.errors import ConfigError, DataError
from fedsage.graph.graph import Graph
from fedsage.models.backbone import Shape, named, new_model
from fedsage.models.classifier import NodeClassifier
from fedsage.rng import generator

HEADS = ("relu", "l2", "direct")


class Own(nn.Module):
    """Sums over neighbors; its last layer is called head."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(num_features, 6), nn.Linear(6, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        near = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.head(torch.relu(self.first(x + near)))


class Headless(nn.Module):
    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.only = nn.Linear(num_features, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.only(x)


def classifier(
    graph: Graph, backbone: str | type[nn.Module] = "graphsage", **model: object
) -> NodeClassifier:
    """A model with weights as they are before training, and biases that are not zero."""
    config = ModelConfig(backbone=named(backbone), widths=(16, 8), **model)
    shape = Shape(graph.num_features, graph.num_classes, config)
    phi = new_model(shape, generator(0, "test")).state_dict()
    moved = {name: weight + 0.1 * ("bias" in name) for name, weight in phi.items()}
    return NodeClassifier(shape, moved, graph.class_names)


def links_of(graph: Graph) -> Tensor:
    source = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    return torch.from_numpy(np.stack([graph.indices.astype(np.int64), source]))


@pytest.fixture(scope="module")
def lonely() -> Graph:
    """A graph with nodes that have no neighbor."""
    some = synthetic(nodes=40, classes=3, features=30, degree=1.2)
    assert (some.degrees == 0).any()
    return some


@pytest.mark.parametrize("backbone", ["graphsage", "gcn", "gat", "propagate"])
def test_embeddings_are_what_the_head_turns_into_logits(graph: Graph, backbone: str) -> None:
    model = classifier(graph, backbone, head="relu", steps=1, teleport=1.0)
    rows = model.embeddings(graph)
    assert rows.shape == (60, 8) and (rows >= 0).all() and not rows.requires_grad
    logits = rows @ model.phi["head.weight"].T + model.phi["head.bias"]
    torch.testing.assert_close(logits, model.logits(graph))


def test_without_a_head_embeddings_are_the_logits(graph: Graph) -> None:
    model = classifier(graph, head="direct")
    assert torch.equal(model.embeddings(graph), model.logits(graph))


def test_a_module_of_ones_own_needs_a_head_for_embeddings(graph: Graph) -> None:
    assert classifier(graph, Own).embeddings(graph).shape == (60, 6)
    with pytest.raises(ConfigError, match=r"Headless has no layer called 'head'.*self\.head"):
        classifier(graph, Headless).embeddings(graph)


def test_a_graph_with_other_features_is_refused(graph: Graph, lonely: Graph) -> None:
    for ask in (NodeClassifier.logits, NodeClassifier.embeddings, NodeClassifier.predict):
        with pytest.raises(DataError, match="trained on 40 features, but this graph has 30"):
            ask(classifier(graph), lonely)


@pytest.mark.parametrize("norm", ["none", "l2", "layer"])
@pytest.mark.parametrize("head", HEADS)
def test_a_module_of_pyg_gives_the_same_logits(lonely: Graph, head: str, norm: str) -> None:
    nn_of_pyg = pytest.importorskip("torch_geometric.nn")
    model = classifier(lonely, head=head, norm=norm)
    module, data = model.to_pyg_module(), lonely.to_pyg()
    assert sum(isinstance(one, nn_of_pyg.SAGEConv) for one in module.modules()) == 2
    with torch.no_grad():
        found = module(data.x, data.edge_index)
    torch.testing.assert_close(found, model.logits(lonely), atol=1e-5, rtol=1e-5)


def test_a_module_of_ones_own_comes_back_as_it_is(graph: Graph) -> None:
    model = classifier(graph, Own)
    module = model.to_pyg_module()
    assert isinstance(module, Own) and not module.training
    found = module(torch.from_numpy(graph.x.toarray()), links_of(graph))
    torch.testing.assert_close(found.detach(), model.logits(graph))


def test_what_cannot_be_handed_on_is_said(graph: Graph, tmp_path: Path) -> None:
    for hand_on in (lambda one: one.to_pyg_module(), lambda one: one.to_onnx(tmp_path / "m")):
        with pytest.raises(ConfigError, match=r"this model is 'gcn'.*model\.phi"):
            hand_on(classifier(graph, "gcn"))


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["graphsage", Own])
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_onnx_gives_the_same_logits_on_graphs_of_any_size(
    graph: Graph, lonely: Graph, tmp_path: Path, backbone: str | type[nn.Module]
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = classifier(lonely, backbone, head="relu")
    model.to_onnx(tmp_path / "deep" / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "deep" / "model.onnx"))
    for asked in (lonely, synthetic(nodes=75, classes=3, features=30)):
        given = {"x": asked.x.toarray(), "edge_index": links_of(asked).numpy()}
        (found,) = session.run(["logits"], given)
        torch.testing.assert_close(
            torch.from_numpy(found), model.logits(asked), atol=1e-5, rtol=1e-4
        )


def test_a_classifier_says_what_it_is_in_a_line(graph: Graph) -> None:
    words = "NodeClassifier(graphsage, 40 features → 3 classes, 1,587 weights)"
    assert repr(classifier(graph, head="relu")) == words
