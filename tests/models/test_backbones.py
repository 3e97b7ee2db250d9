"""Every backbone, ours and a user's: the same interface, the same rights, the same bits."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedsage as fs
from fedsage.config import ClassifierConfig
from fedsage.errors import ConfigError, DataError
from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated, mend
from fedsage.graph.partition import Partition
from fedsage.graph.sampling import Hop, sample_hops
from fedsage.models.backbone import (
    BACKBONES,
    Backbone,
    Shape,
    dense,
    feature_rows,
    infer_sampled,
    named,
    new_model,
)
from fedsage.models.classifier import load_models, save_models
from fedsage.models.optimizer import make_optimizer
from fedsage.models.parameters import Stacked, parameters_of, sha256_of
from fedsage.models.row_form import like_real_rows, row_form_of
from fedsage.models.train import train_epoch
from fedsage.rng import generator
from fedsage.runs.result import RunResult
from tests.graph.test_sampling import with_isolated
from tests.models.conftest import everyone, shape_of

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "my_backbone.py")
OURS = ("graphsage", "mix", "gcn", "gat", "propagate")
ALL = (*OURS, EXAMPLE)
GEN = {"widths": [8, 6], "hidden": [10], "batch_size": 12, "rounds_gen": 2, "min_batch": 4}
Train = Callable[..., RunResult]
each = pytest.mark.parametrize("name", ALL, ids=lambda name: Path(name).stem)


class Mean(nn.Module):
    """The simplest module: a linear layer on a node and the sum of its neighbors."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.own, self.near = (nn.Linear(num_features, num_classes) for _ in range(2))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        u, v = edge_index
        return self.own(x) + torch.zeros_like(self.near(x)).index_add(0, v, self.near(x)[u])


def model_of(graph: Graph, name: str, **settings: object) -> Backbone:
    model = new_model(shape_of(graph, backbone=name, **settings), generator(0, "phi"))
    model.kernel = "torch"
    with torch.no_grad():
        for weight in model.parameters():  # biases that are not zero
            weight.add_(0.05)
    return model


@pytest.mark.slow
@each
@pytest.mark.parametrize("method", ["fedsage", "fedsage+neighgen", "locsage"])
def test_every_backbone_goes_through_every_kind_of_method(
    train: Train, name: str, method: str
) -> None:
    model = {"backbone": name, "dropout": 0.3}
    first, again = (
        train(method, model=model, neighgen=GEN, run={"workers": workers}) for workers in (1, 2)
    )
    assert first.record.backbone == BACKBONES.find(name).name
    assert first.record.model_sha256 == again.record.model_sha256, "whatever the workers"
    assert first.accuracy == again.accuracy
    assert 0 <= (first.accuracy["global"] or 0) <= 1
    untrained = new_model(first.models[0].shape, generator(0, "phi"))
    assert sha256_of(parameters_of(untrained)) != sha256_of(first.models[0].phi)


@pytest.mark.slow
@each
def test_every_backbone_learns(train: Train, name: str) -> None:
    classifier = {"rounds_c": 40, "eta": 0.02, "batch_size": 16, "small_epochs": 1}
    found = train("fedsage", model={"backbone": name}, classifier=classifier)
    losses = [line.loss for line in found.history]
    assert losses[-1] < 0.5 * losses[0]


@each
def test_a_batch_with_all_neighbors_gets_what_it_gets_in_the_graph(
    graph: Graph, name: str
) -> None:
    graph = with_isolated(graph)
    model = model_of(graph, name)
    rows, hops = feature_rows(graph.x, slice(None), model.device), [everyone(graph)] * 2
    torch.testing.assert_close(model.on_hops(rows, hops), model.on_graph(graph))


@pytest.mark.parametrize("name", ["graphsage", "gcn", "gat", EXAMPLE])
def test_two_hops_are_enough_for_two_layers(graph: Graph, name: str) -> None:
    graph = with_isolated(graph)
    batch = np.array([3, 0, 17, graph.num_nodes - 1])
    hops: list[Hop] = []
    targets = batch
    for _ in range(2):  # all neighbors in place of drawn ones
        near = np.concatenate([graph.neighbors(int(v)) for v in targets])
        inputs = np.array([*targets, *sorted({*near.tolist()} - {*targets.tolist()})])
        mean = everyone(graph).mean[targets][:, inputs]
        hops.insert(0, Hop(inputs, mean, graph.degrees[inputs]))
        targets = inputs
    model = model_of(graph, name)
    found = model.on_hops(feature_rows(graph.x, hops[0].inputs, model.device), hops)
    torch.testing.assert_close(found, model.on_graph(graph, batch), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["graphsage", "gcn", "gat"])
def test_many_draws_come_near_to_all_neighbors(graph: Graph, name: str) -> None:
    model, nodes = model_of(graph, name), np.arange(10)
    many = infer_sampled(model, graph, nodes, (3000, 3000), generator(0, "many"))
    torch.testing.assert_close(many, model.on_graph(graph)[:10], atol=0.05, rtol=0.05)


@each
def test_renumbering_nodes_changes_nothing_but_the_order(graph: Graph, name: str) -> None:
    model, order = model_of(graph, name), generator(0, "order").permutation(graph.num_nodes)
    permuted = model.on_graph(graph.induced(order))
    torch.testing.assert_close(permuted, model.on_graph(graph)[torch.from_numpy(order)])


@each
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_a_mended_batch_gets_what_it_gets_in_the_mended_graph(
    graph: Graph, name: str, kind: str
) -> None:
    if kind == "dense":
        graph = Graph.from_arrays(graph.x.toarray(), graph.links, graph.y, graph.class_names)
    model, parents = model_of(graph, name), np.array([0, 0, 7, 12, 59])
    rows = generator(0, "rows").standard_normal((5, 40), dtype=np.float32)
    like_x = like_real_rows(torch.from_numpy(rows), row_form_of(graph.x, False, False))
    expected = model.on_graph(mend(graph, Generated(parents, like_x)))[:60]
    h = feature_rows(graph.x, slice(None), model.device)
    found = model.on_mended(h, [everyone(graph)] * 2, torch.from_numpy(rows), parents)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@each
def test_the_classifier_teaches_the_generator(graph: Graph, name: str) -> None:
    model, rows = model_of(graph, name), torch.ones(2, 40, requires_grad=True)
    hops = sample_hops(graph, np.arange(9), (5, 5), generator(0, "hops"))
    h = feature_rows(graph.x, hops[0].inputs, model.device)
    model.on_mended(h, hops, rows, np.array([1, 2]))[[1, 2]].square().sum().backward()
    assert rows.grad is not None and (rows.grad != 0).any(dim=1).all()


@pytest.mark.parametrize("name", OURS)
def test_features_that_are_sparse_stay_sparse(
    graph: Graph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("sparse features were made dense")

    model = model_of(graph, name)
    monkeypatch.setattr(type(graph.x), "toarray", refuse)
    monkeypatch.setattr(type(graph.x), "todense", refuse)
    hops = sample_hops(graph, np.arange(9), (5, 5), generator(0, "hops"))
    h = feature_rows(graph.x, hops[0].inputs, model.device)
    model.on_hops(h, hops, generator(0, "drop")).sum().backward()
    model.on_mended(h, hops, torch.ones(2, 40), np.array([1, 2]))
    model.on_graph(graph)


def test_gcn_is_its_formula(graph: Graph) -> None:
    graph = with_isolated(graph)
    model = model_of(graph, "gcn")
    linked = torch.from_numpy(graph.adjacency.toarray()).float() + torch.eye(graph.num_nodes)
    scale = linked.sum(dim=1).rsqrt()
    mixing = scale[:, None] * linked * scale
    h = torch.from_numpy(graph.x.toarray())
    for layer in model.layers:  # type: ignore[union-attr]
        h = torch.relu(mixing @ h @ layer.weight + layer.bias)
    torch.testing.assert_close(model.on_graph(graph), model.head(h))  # type: ignore[operator]


def test_gat_is_its_formula(graph: Graph) -> None:
    model = model_of(graph, "gat", widths=(8,), heads=2)
    (layer,), x = model.layers, torch.from_numpy(graph.x.toarray())  # type: ignore[misc]
    values, expected = x @ layer.weight, torch.zeros(graph.num_nodes, 8)
    for v in range(graph.num_nodes):
        near = [v, *graph.neighbors(v).tolist()]
        for k, part in enumerate((slice(0, 4), slice(4, 8))):
            mine, theirs = values[v, part] @ layer.to_hear[k], values[near, part]
            scores = nn.functional.leaky_relu(mine + theirs @ layer.to_be_heard[k], 0.2)
            expected[v, part] = scores.softmax(dim=0) @ theirs
    h = torch.relu(expected + layer.bias)
    torch.testing.assert_close(model.on_graph(graph), model.head(h))  # type: ignore[operator]


def test_heads_that_do_not_fit_are_refused(graph: Graph) -> None:
    with pytest.raises(ConfigError, match=r"widths \[8, 5\] cannot be divided .*model.heads 4"):
        model_of(graph, "gat", widths=(8, 5))
    assert model_of(graph, "gat", widths=(8, 5), head="direct").on_graph(graph).shape == (60, 3)


def test_propagation_that_always_teleports_is_the_mlp_alone(graph: Graph) -> None:
    alone = model_of(graph, "propagate", teleport=1.0)
    h = torch.from_numpy(graph.x.toarray())
    for layer in alone.layers:  # type: ignore[union-attr]
        h = torch.relu(h @ layer.weight + layer.bias)
    torch.testing.assert_close(alone.on_graph(graph), alone.head(h))  # type: ignore[operator]
    mixed = model_of(graph, "propagate", teleport=0.1)
    assert not torch.allclose(mixed.on_graph(graph), alone.on_graph(graph))


def test_propagate_looks_at_no_link_in_training(graph: Graph) -> None:
    other = Graph.from_arrays(graph.x, graph.links[:, :20], graph.y, graph.class_names)
    for name, same in (("propagate", True), ("gcn", False)):
        trained = []
        for one in (graph, other):
            model = model_of(one, name, dropout=0.3)
            optimizer = make_optimizer(model, "adam", 0.01, 0.0)
            how, stream = ClassifierConfig(batch_size=16), generator(0, "epoch")
            train_epoch(model, optimizer, one, np.arange(40), how, stream)
            trained.append(sha256_of(parameters_of(model)))
        assert (trained[0] == trained[1]) == same


@pytest.mark.slow
@each
def test_a_saved_model_comes_back_and_predicts_the_same(
    train: Train, graph: Graph, name: str, tmp_path: Path
) -> None:
    models = train("locsage", model={"backbone": name}).models
    save_models(models, tmp_path)
    back = load_models(tmp_path, None if name in OURS else name)
    assert back[0].shape == models[0].shape
    for one, other in zip(models, back, strict=True):
        assert torch.equal(one.logits(graph), other.logits(graph))


def example_class() -> type[nn.Module]:
    spec = importlib.util.spec_from_file_location("imported_backbone", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[nn.Module] = module.MyGAT
    return found


@pytest.mark.slow
def test_no_code_that_a_folder_names_is_run_by_itself(
    train: Train, graph: Graph, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(Path(EXAMPLE).read_text())
    model = train("fedsage", model={"backbone": str(mine)}).model
    expected = model.predict(graph)
    save_models([model], tmp_path)
    card = json.loads((tmp_path / "model.json").read_text())
    assert card["shape"]["backbone"] == str(mine) and len(card["own"]["sha256"]) == 64
    mine.write_text("raise SystemExit('this was run')")
    with pytest.raises(DataError, match=r"Say where it is.*--backbone path.py"):
        load_models(tmp_path)
    with pytest.raises(DataError, match="another version of"):
        load_models(tmp_path, str(mine))
    (back,) = load_models(tmp_path, example_class())
    assert (back.predict(graph) == expected).all()
    with pytest.raises(DataError, match="cannot be read"):
        load_models(tmp_path, Mean)


def test_a_card_of_format_1_is_a_graphsage(train: Train, graph: Graph, tmp_path: Path) -> None:
    model = train("fedsage").model
    save_models([model], tmp_path)
    card = json.loads((tmp_path / "model.json").read_text())
    known = ("num_features", "num_classes", "widths", "head", "norm")
    card |= {"format": 1, "shape": {key: card["shape"][key] for key in known}}
    (tmp_path / "model.json").write_text(json.dumps(card))
    assert torch.equal(load_models(tmp_path)[0].logits(graph), model.logits(graph))


@pytest.mark.slow
def test_a_class_is_handed_over_as_it_is(owners: Partition, graph: Graph) -> None:
    settings = {"classifier": {"rounds_c": 2}, "neighgen": GEN}
    found = fs.run(owners, "fedsage+neighgen", model=Mean, settings=settings, evaluate_on=graph)
    assert found.record.backbone == f"{__name__}.Mean"
    assert found.model.predict(graph).shape == (60,)
    assert fs.run(owners, "fedsage", model="gcn", settings=settings).record.backbone == "gcn"


def test_torch_s_own_stream_is_left_as_it_was(graph: Graph) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    model = model_of(graph, EXAMPLE)
    hops = [everyone(graph)] * 2
    first, again, other = (
        model.on_hops(graph.x, hops, generator(seed, "drop")) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.rand(2), expected)


class Normed(Mean):
    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__(num_features, num_classes)
        self.norm = nn.BatchNorm1d(num_features)


class Wide(Mean):
    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__(num_features, num_classes + 1)


class Empty(nn.Module):
    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Normed, r"Normed keeps statistics .*buffer 'norm.running_mean'.* LayerNorm"),
        (Wide, r"Wide.forward returned Tensor of shape \(60, 4\) for 60 nodes and 3 classes"),
        (Empty, "Empty has no weights"),
    ],
)
def test_a_module_that_cannot_be_shared_is_refused(
    graph: Graph, kind: type[nn.Module], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        model_of(graph, named(kind)).on_graph(graph)


def test_an_unknown_backbone_is_refused_with_the_nearest_one(owners: Partition) -> None:
    with pytest.raises(ConfigError, match=r"Unknown backbone 'gatt'. Did you mean 'gat'"):
        fs.run(owners, model="gatt")
    with pytest.raises(ConfigError, match="cannot be read"):
        fs.run(owners, model="nowhere.py")


def test_a_subclass_of_ours_is_a_backbone_too(graph: Graph) -> None:
    class Bias(Backbone):
        """Says the same of every node."""

        def __init__(self, shape: Shape, generator: np.random.Generator) -> None:
            super().__init__(shape, generator)
            self.bias = nn.Parameter(torch.arange(float(shape.num_classes)))

        def on_edges(self, h, edges, generator=None):  # type: ignore[no-untyped-def]
            return self.bias.expand(len(edges.degrees), -1)

    model = new_model(shape_of(graph, backbone=named(Bias)), generator(0, "phi"))
    assert model.on_graph(graph, np.array([4])).tolist() == [[0.0, 1.0, 2.0]]


def test_stacked_rows_are_one_table(graph: Graph) -> None:
    both = dense(Stacked(graph.x, torch.ones(2, 40)), torch.device("cpu"))
    assert both.shape == (62, 40) and both[60:].eq(1).all()
