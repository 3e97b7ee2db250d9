"""GraphSage and a linear classifier in one: neither disturbs the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedsage.config import ClassifierConfig, Kernel
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.models.backbone import Backbone, new_model
from fedsage.models.linear import unit_rows
from fedsage.models.mix import LENGTH, Mix
from fedsage.models.optimizer import make_optimizer, moments_of
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.models.train import train_epoch
from fedsage.rng import generator
from fedsage.runs.result import RunResult
from tests.models.conftest import shape_of

OPTIMIZERS = ("adam", "adamw", "sgd")


def trained(graph: Graph, backbone: str, kernel: Kernel, optimizer: str = "adam") -> Backbone:
    model = new_model(
        shape_of(graph, backbone=backbone, dropout=0.3), generator(0, "phi"), kernel=kernel
    )
    how = ClassifierConfig(
        batch_size=16,
        eta=0.01,
        weight_decay=0.01,
        optimizer=optimizer,  # type: ignore[arg-type]
    )
    steps = make_optimizer(model, how.optimizer, how.eta, how.weight_decay)
    for epoch in range(3):
        train_epoch(model, steps, graph, np.arange(40), how, generator(0, "epoch", epoch))
    model.moments = moments_of(steps, model)  # type: ignore[assignment]
    return model


def of_sage(parameters: Parameters) -> Parameters:
    return {
        name.removeprefix("sage."): weight
        for name, weight in parameters.items()
        if name.startswith("sage.")
    }


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dense", [False, True])
def test_compiled_steps_are_the_reference_s(graph: Graph, optimizer: str, dense: bool) -> None:
    if dense:
        graph = Graph.from_arrays(graph.x.toarray(), graph.links, graph.y, graph.class_names)
    ours, reference = (
        trained(graph, "mix", kernel, optimizer) for kernel in ("fused", "torch")
    )
    for found, wanted in (
        (parameters_of(ours), parameters_of(reference)),
        (ours.moments, reference.moments),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        ours.on_graph(graph), reference.on_graph(graph), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("kernel", ["fused", "torch"])
def test_graphsage_learns_in_it_what_it_learns_alone(graph: Graph, kernel: Kernel) -> None:
    alone = parameters_of(trained(graph, "graphsage", kernel))
    within = of_sage(parameters_of(trained(graph, "mix", kernel)))
    assert alone.keys() == within.keys()
    for name, weight in alone.items():
        assert torch.equal(weight, within[name]), name


def test_the_linear_part_looks_at_no_link_in_training(graph: Graph) -> None:
    other = Graph.from_arrays(graph.x, graph.links[:, :20], graph.y, graph.class_names)
    for kernel in ("fused", "torch"):
        mine, theirs = (parameters_of(trained(g, "mix", kernel)) for g in (graph, other))
        assert torch.equal(mine["linear.weight"], theirs["linear.weight"])
        assert not torch.equal(mine["sage.head.weight"], theirs["sage.head.weight"])


def test_the_answer_is_its_formula(graph: Graph) -> None:
    model = trained(graph, "mix", "torch")
    assert isinstance(model, Mix)
    rows = torch.from_numpy(unit_rows(graph.x).toarray()) * LENGTH
    torch.testing.assert_close(rows.norm(dim=1), torch.full((60,), LENGTH))
    own = rows @ model.linear.weight + model.linear.bias
    linked = torch.from_numpy(graph.adjacency.toarray()).float() + torch.eye(60)
    scale = linked.sum(dim=1).rsqrt()
    z, teleport = own, model.shape.model.teleport
    for _ in range(model.shape.model.steps):
        z = (1 - teleport) * (scale[:, None] * linked * scale) @ z + teleport * own
    share = model.shape.model.share
    sage = model.sage.on_graph(graph).log_softmax(dim=1)
    expected = (1 - share) * sage + share * z.log_softmax(dim=1)
    torch.testing.assert_close(model.on_graph(graph), expected, rtol=1e-4, atol=1e-5)
    some = np.array([5, 1])
    torch.testing.assert_close(
        model.on_graph(graph, some), expected[[5, 1]], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("share", "part"), [(0.0, "sage"), (1.0, "linear")])
def test_all_of_one_is_none_of_the_other(graph: Graph, share: float, part: str) -> None:
    model = new_model(shape_of(graph, backbone="mix", share=share), generator(0, "phi"))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.linspace(0, 0.1, weight.numel()).reshape(weight.shape))
    alone = getattr(model, part)
    assert isinstance(alone, Backbone)
    expected = alone.on_graph(graph).log_softmax(dim=1)
    torch.testing.assert_close(model.on_graph(graph), expected)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["low-rank", "whole"])
def test_short_messages_and_hidden_sums_give_one_model(
    train: Callable[..., RunResult], how: str
) -> None:
    model = {"backbone": "mix", "dropout": 0.3}
    shown, hidden, full = (
        train("fedsage", model=model, traffic={"how": sent}, privacy={"level": level})
        for sent, level in ((how, "open"), (how, "sums"), ("full", "open"))
    )
    assert shown.record.model_sha256 == hidden.record.model_sha256
    assert shown.record.model_sha256 != full.record.model_sha256
    assert shown.model.phi.keys() == full.model.phi.keys()


def test_embeddings_are_graphsage_s(train: Callable[..., RunResult], graph: Graph) -> None:
    model = train("fedsage", model={"backbone": "mix"}).model
    rows = model.embeddings(graph)
    module = model.module()
    assert isinstance(module, Mix)
    torch.testing.assert_close(module.sage.head(rows), module.sage.on_graph(graph))
    with pytest.raises(ConfigError, match="this model is 'mix'"):
        model.to_pyg_module()


@pytest.mark.slow
def test_methods_that_add_a_term_train_both_parts(train: Callable[..., RunResult]) -> None:
    first = train("fedsage", model={"backbone": "mix"}, classifier={"rounds_c": 1}).model.phi
    for method in ("fedprox", "scaffold", "moon", "fedpub"):
        model = train(method, model={"backbone": "mix"}, traffic={"how": "full"}).models[0].phi
        assert not torch.equal(model["linear.weight"], first["linear.weight"]), method
