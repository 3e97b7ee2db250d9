"""Several GraphSage classifiers in one: each learns what it would learn alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedsage.config import ClassifierConfig, Kernel
from fedsage.graph.graph import Graph
from fedsage.models.backbone import new_model
from fedsage.models.graphsage import GraphSage
from fedsage.models.optimizer import make_optimizer
from fedsage.models.parameters import load_parameters, parameters_of
from fedsage.models.team import Ensemble, own_draws
from fedsage.models.train import train_epoch
from fedsage.rng import generator
from fedsage.runs.result import RunResult
from tests.models.conftest import shape_of
from tests.models.test_mix import trained


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_compiled_steps_are_those_of_the_reference(graph: Graph, optimizer: str) -> None:
    ours, reference = (
        trained(graph, "ensemble", kernel, optimizer) for kernel in ("fused", "torch")
    )
    torch.testing.assert_close(
        parameters_of(ours), parameters_of(reference), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        ours.on_graph(graph), reference.on_graph(graph), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("kernel", ["fused", "torch"])
def test_the_first_learns_what_it_learns_alone(graph: Graph, kernel: Kernel) -> None:
    alone = parameters_of(trained(graph, "graphsage", kernel))
    within = parameters_of(trained(graph, "ensemble", kernel))
    for name, weight in alone.items():
        assert torch.equal(weight, within[f"sages.0.{name}"]), name


def test_they_begin_and_end_with_different_weights(graph: Graph) -> None:
    model = trained(graph, "ensemble", "fused")
    assert isinstance(model, Ensemble) and len(model.sages) == 3
    heads = [one.head.weight for one in model.sages if isinstance(one, GraphSage)]
    assert not torch.equal(heads[0], heads[1]) and not torch.equal(heads[1], heads[2])


def test_the_answer_is_the_mean_of_logarithms(graph: Graph) -> None:
    model = trained(graph, "ensemble", "torch")
    assert isinstance(model, Ensemble)
    logs = [one.on_graph(graph).log_softmax(dim=1) for one in model.members]
    torch.testing.assert_close(model.on_graph(graph), (logs[0] + logs[1] + logs[2]) / 3)
    some = np.array([7, 2])
    torch.testing.assert_close(
        model.on_graph(graph, some), model.on_graph(graph)[[7, 2]], rtol=1e-4, atol=1e-5
    )


def test_an_ensemble_of_one_answers_as_it_does(graph: Graph) -> None:
    one = new_model(shape_of(graph, backbone="ensemble", ensemble=1), generator(0, "phi"))
    alone = new_model(shape_of(graph), generator(0, "phi"))
    expected = alone.on_graph(graph).log_softmax(dim=1)
    torch.testing.assert_close(one.on_graph(graph), expected)


def test_each_draws_for_itself_and_the_first_goes_on() -> None:
    stream, alone = generator(0, "a"), generator(0, "a")
    first, second, third = own_draws(stream, 3)
    assert first is stream
    drawn = [one.random(4).tolist() for one in (first, second, third)]
    assert drawn[0] == alone.random(4).tolist()
    assert drawn[1] != drawn[0] != drawn[2] != drawn[1]


@pytest.mark.parametrize("kernel", ["fused", "torch"])
def test_alike_at_the_start_they_still_learn_different_things(
    graph: Graph, kernel: Kernel
) -> None:
    """Other batches, neighbors and dropout: what makes their mistakes differ."""
    model = new_model(
        shape_of(graph, backbone="ensemble", ensemble=2), generator(0, "phi"), kernel=kernel
    )
    assert isinstance(model, Ensemble)
    first, second = model.members
    load_parameters(second, parameters_of(first))
    how = ClassifierConfig(batch_size=16, eta=0.01)
    steps = make_optimizer(model, how.optimizer, how.eta, how.weight_decay)
    train_epoch(model, steps, graph, np.arange(40), how, generator(0, "epoch"))
    assert not torch.equal(first.head.weight, second.head.weight)  # type: ignore[union-attr]


def test_a_method_s_term_trains_all_of_them(
    train: Callable[..., RunResult],
) -> None:
    """FedProx works on the weights of the whole ensemble."""
    result = train("fedprox", model={"backbone": "ensemble", "ensemble": 2})
    module = result.model.module()
    assert isinstance(module, Ensemble)
    fresh = new_model(module.shape, generator(0, "phi"))
    assert isinstance(fresh, Ensemble)
    for now, before in zip(module.members, fresh.members, strict=True):
        assert not torch.equal(now.head.weight, before.head.weight)  # type: ignore[union-attr]


def test_embeddings_are_those_of_the_first(
    train: Callable[..., RunResult], graph: Graph
) -> None:
    result = train("fedsage+copy", model={"backbone": "ensemble", "ensemble": 2})
    rows = result.model.embeddings(graph)
    module = result.model.module()
    assert isinstance(module, Ensemble)
    torch.testing.assert_close(module.head(rows), module.members[0].on_graph(graph))
