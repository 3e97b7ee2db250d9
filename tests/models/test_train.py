from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsage.config import ClassifierConfig, Kernel
from fedsage.errors import ProtocolError
from fedsage.graph.graph import Graph
from fedsage.models.backbone import query
from fedsage.models.classifier import NodeClassifier, load_models, save_models
from fedsage.models.graphsage import GraphSage
from fedsage.models.optimizer import load_moments, make_optimizer, moments_of
from fedsage.models.parameters import load_parameters, parameters_of, sha256_of
from fedsage.models.train import train_epoch
from fedsage.rng import generator
from tests.models.conftest import shape_of

TRAINING = ClassifierConfig(eta=0.02, batch_size=16, fanouts=(3, 3))


def new_model(graph: Graph) -> GraphSage:
    return GraphSage(shape_of(graph), generator(0, "phi"))


def epochs(
    graph: Graph, training: ClassifierConfig, count: int, model: GraphSage
) -> list[float]:
    optimizer = make_optimizer(model, training.optimizer, training.eta, training.weight_decay)
    nodes = np.arange(40)
    return [
        train_epoch(model, optimizer, graph, nodes, training, generator(0, "epoch", t))
        for t in range(count)
    ]


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_training_lowers_the_loss(graph: Graph, optimizer: str) -> None:
    eta = 0.2 if optimizer == "sgd" else 0.02
    training = TRAINING.model_copy(update={"optimizer": optimizer, "eta": eta})
    losses = epochs(graph, training, 100, new_model(graph))
    assert losses[-1] < 0.7 * losses[0]


def test_training_fits_what_it_was_trained_on(graph: Graph) -> None:
    model = new_model(graph)
    epochs(graph, TRAINING, 60, model)
    stream = generator(0, "q")
    for inference in ("full", "sampled"):
        logits = query(model, graph, np.arange(40), inference, (5, 5), stream)  # type: ignore[arg-type]
        assert (logits.argmax(dim=1).numpy() == graph.y[:40]).mean() > 0.9


@pytest.mark.parametrize("kernel", ["fused", "torch"])
def test_dead_units_leave_no_tiny_moments(graph: Graph, kernel: Kernel) -> None:
    """They made a run of GlobSage on PubMed take fifteen times as long."""
    training = TRAINING.model_copy(update={"weight_decay": 5e-4, "eta": 1e-30})
    model = new_model(graph)
    model.kernel = kernel
    layer = model.sage_layers[0]
    with torch.no_grad():
        layer.bias[0] = -100.0
        layer.phi_own[:, 0] = 1e-16
        layer.phi_neighbors[:, 0] = 1e-16
    optimizer = make_optimizer(model, "adam", training.eta, training.weight_decay)
    train_epoch(model, optimizer, graph, np.arange(40), training, generator(0, "epoch"))
    second = optimizer.state[layer.phi_own]["exp_avg_sq"]
    assert float(second[:, 1].max()) > 0
    assert not second[:, 0].any()
    assert float(torch.tensor(1e-30) * 1e-10) > 0, "the caller's numbers are as before"


def test_labels_outside_the_training_nodes_change_nothing(graph: Graph) -> None:
    y = graph.y.copy()
    y[40:] = (y[40:] + 1) % graph.num_classes
    other = Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names)
    first, second = new_model(graph), new_model(graph)
    epochs(graph, TRAINING, 3, first)
    epochs(other, TRAINING, 3, second)
    assert sha256_of(parameters_of(first)) == sha256_of(parameters_of(second))


def test_an_optimizer_goes_on_from_its_moments(graph: Graph) -> None:
    nodes = np.arange(40)
    undisturbed = new_model(graph)
    optimizer = make_optimizer(undisturbed, "adam", 0.02, 0.0)
    resumed = new_model(graph)
    for t in range(4):
        stream = generator(0, "epoch", t)
        train_epoch(undisturbed, optimizer, graph, nodes, TRAINING, stream)
        fresh = make_optimizer(resumed, "adam", 0.02, 0.0)
        if t:
            load_moments(fresh, resumed, moments)  # noqa: F821
        train_epoch(resumed, fresh, graph, nodes, TRAINING, generator(0, "epoch", t))
        moments = moments_of(fresh, resumed)  # noqa: F841
    assert sha256_of(parameters_of(undisturbed)) == sha256_of(parameters_of(resumed))


def test_weight_decay_shrinks_weights(graph: Graph) -> None:
    def norm(weight_decay: float) -> float:
        model = new_model(graph)
        epochs(graph, TRAINING.model_copy(update={"weight_decay": weight_decay}), 10, model)
        return sum(float(w.detach().square().sum()) for w in model.parameters())

    assert norm(0.1) < norm(0.0)


def test_saved_models_come_back_bit_for_bit(graph: Graph, tmp_path: object) -> None:
    models = []
    for seed in range(2):
        model = GraphSage(new_model(graph).shape, generator(seed, "phi"))
        models.append(NodeClassifier(model.shape, parameters_of(model), graph.class_names))
    save_models(models, tmp_path)  # type: ignore[arg-type]
    back = load_models(tmp_path)  # type: ignore[arg-type]
    assert [sha256_of(m.phi) for m in back] == [sha256_of(m.phi) for m in models]
    assert (back[0].predict(graph) == models[0].predict(graph)).all()
    assert back[0].predict_proba(graph).sum(axis=1) == pytest.approx(np.ones(60), abs=1e-5)
    torch.testing.assert_close(
        torch.from_numpy(back[1].predict_proba(graph)),
        model.on_graph(graph).softmax(dim=1),
    )


def test_weights_are_loaded_as_they_are_or_not_at_all(graph: Graph) -> None:
    model = new_model(graph)
    fitting = {name: torch.randn_like(each) for name, each in parameters_of(model).items()}
    load_parameters(model, fitting)
    assert sha256_of(parameters_of(model)) == sha256_of(fitting)
    name = next(iter(fitting))
    without = {key: each for key, each in fitting.items() if key != name}
    for odd in (without, fitting | {"more": torch.ones(1)}, fitting | {name: torch.ones(2)}):
        with pytest.raises(ProtocolError, match="do not fit"):
            load_parameters(model, {key: each + 1 for key, each in odd.items()})
    assert sha256_of(parameters_of(model)) == sha256_of(fitting)


def test_an_optimizer_copies_the_moments_it_is_given(graph: Graph) -> None:
    model = new_model(graph)
    optimizer = make_optimizer(model, "adam", 0.01, 0.0)
    given = {f"head.bias.{kind}": torch.ones(3) for kind in ("exp_avg", "exp_avg_sq")}
    given["head.bias.step"] = torch.tensor(3.0)
    for _ in range(2):  # into nothing, and into what is held
        load_moments(optimizer, model, given)
        held = moments_of(optimizer, model)
        assert sha256_of(held) == sha256_of(given)
    optimizer.state[model.head.bias]["exp_avg"].zero_()
    assert given["head.bias.exp_avg"].tolist() == [1.0, 1.0, 1.0]
    load_moments(optimizer, model, {})
    assert moments_of(optimizer, model) == {}


def test_moments_that_are_none_are_refused_and_nothing_is_written(graph: Graph) -> None:
    model = new_model(graph)
    name, weight = next(iter(model.named_parameters()))
    fine = {
        f"{name}.step": torch.ones(()),
        f"{name}.exp_avg": torch.ones_like(weight),
        f"{name}.exp_avg_sq": torch.ones_like(weight),
    }
    for wrong in (
        {f"{name}.exp_avg": torch.ones(1)},
        {f"{name}.exp_avg": torch.ones(())},
        {f"{name}.step": torch.ones(2)},
        {f"{name}.exp_avg": weight.detach().double()},
        {f"{name}.more": torch.ones_like(weight)},
        {"other.exp_avg": torch.ones_like(weight)},
    ):
        optimizer = make_optimizer(model, "adam", 1e-3, 0.0)
        with pytest.raises(ProtocolError, match="cannot continue with moment"):
            load_moments(optimizer, model, fine | wrong)
        assert moments_of(optimizer, model) == {}
    with pytest.raises(ProtocolError, match="but no"):
        load_moments(optimizer, model, {f"{name}.step": torch.ones(())})
    load_moments(optimizer, model, fine)
    assert set(moments_of(optimizer, model)) == set(fine)
