"""FedDEP-like: its formulas in plain loops, what leaves an owner, and a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fedsage.arena.contest import ALL
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.models.backbone import Shape
from fedsage.models.deep_gen import mean_embedding, prototype_loss
from fedsage.models.edges import edges_of_graph
from fedsage.models.fusing import Fusing
from fedsage.protocol.server import average
from fedsage.rivals.feddep import DepOwner, FedDEP, clustered, with_columns
from fedsage.rng import generator
from tests.fixtures import Train
from tests.rivals.test_rivals import normal, setup_of
from tests.small import exchange_on

pytestmark = pytest.mark.slow

FUSING: dict[str, Any] = {"backbone": "fusing", "widths": [16, 8], "dropout": 0.0}


def test_prototypes_are_the_means_of_clusters() -> None:
    far = np.repeat(np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]), 5, axis=0)
    z = far + normal(15, 2).numpy() * 0.1
    means, of = clustered(z, 3, generator(0, "clusters"))
    assert len(means) == 3
    for v in range(15):
        mates = [u for u in range(15) if of[u] == of[v]]
        assert mates == list(range(v - v % 5, v - v % 5 + 5))
        np.testing.assert_allclose(means[of[v]], sum(z[u] for u in mates) / 5, rtol=1e-5)


def test_an_owner_with_few_nodes_has_few_prototypes() -> None:
    means, of = clustered(normal(2, 4).numpy(), 5, generator(0, "clusters"))
    assert len(means) <= 2 and of.max() < len(means)


def test_the_loss_is_the_mean_distance_to_prototypes_of_all_owners() -> None:
    made, of = normal(5, 4).requires_grad_(True), np.array([0, 0, 1, 3, 3])
    missing = csr_array(np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]], np.float32))
    at_home = normal(3, 4).numpy()
    abroad = [normal(2, 4).numpy() + 1, normal(3, 4).numpy() - 1]
    found = prototype_loss(made, of, missing, at_home, abroad, 2**20)
    wanted = 0.0
    for p, v in enumerate(of):
        row = made[p].detach().numpy()
        hidden = [u for u in range(3) if missing[v, u]]
        if hidden:
            wanted += min(float(((row - at_home[u]) ** 2).sum()) for u in hidden)
        for other in abroad:
            wanted += min(float(((row - one) ** 2).sum()) for one in other)
    assert found.item() == pytest.approx(wanted / 4 / 3, rel=1e-5)
    found.backward()  # type: ignore[no-untyped-call]
    assert made.grad is not None and made.grad.abs().sum(dim=1).min() > 0


def test_generated_embeddings_are_averaged_over_slots() -> None:
    made = normal(3, 4)
    bar = mean_embedding(made, np.array([0, 2, 2]), 4, 5)
    torch.testing.assert_close(bar[0], made[0] / 5)
    torch.testing.assert_close(bar[2], (made[1] + made[2]) / 5)
    assert not bar[1].any() and not bar[3].any()


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_every_layer_adds_the_embedding(graph: Graph, kind: str) -> None:
    from dataclasses import replace

    if kind == "dense":
        graph = replace(graph, x=graph.x.toarray())
    model = setup_model(graph)
    z = normal(graph.num_nodes, 8)
    found = model.on_graph(with_columns(graph, z.numpy()))
    x = torch.from_numpy(graph.x if kind == "dense" else graph.x.toarray())
    for k, layer in enumerate(model.layers):
        rows = []
        for v in range(graph.num_nodes):
            near = graph.neighbors(v).tolist()
            row = x[v] @ layer.phi_own + layer.bias + z[v] @ layer.phi_deep
            if near:
                row = row + sum(x[u] for u in near) / len(near) @ layer.phi_neighbors
            rows.append(row)
        x = model.activate(torch.stack(rows), k)
    torch.testing.assert_close(found, model.head(x).detach(), atol=1e-4, rtol=1e-4)


def setup_model(graph: Graph) -> Fusing:
    from fedsage.config import load_config

    shape = Shape(graph.num_features, graph.num_classes, load_config({"model": FUSING}).model)
    return Fusing(shape, generator(0, "fusing"))


def test_without_embeddings_they_are_zero(graph: Graph) -> None:
    model = setup_model(graph)
    zeros = np.zeros((graph.num_nodes, 8), np.float32)
    edges = edges_of_graph(graph)
    rows = torch.from_numpy(graph.x.toarray())
    torch.testing.assert_close(
        model.on_edges(rows, edges), model.on_graph(with_columns(graph, zeros))
    )


def test_prototypes_leave_once_and_no_gradients_follow(graph: Graph, owners: Partition) -> None:
    setup = setup_of("feddep", graph, owners, {"prototypes": 3}, model=FUSING)
    exchange = exchange_on(setup)
    asked: list[str] = []
    carry = exchange.engine.carry

    def noted(procedure: Any, *given: Any) -> Any:
        asked.append(procedure.name)
        return carry(procedure, *given)

    exchange.engine.carry = noted  # type: ignore[method-assign]
    server = FedDEP(exchange, average)
    server.begin(setup.plan.phi)
    server.round(0, keep=False)
    server.end(setup.plan.phi, 0, last=1)
    received, trained = "receive_classifier", "local_update_c"
    assert asked == ["prototypes", "learn_neighbors", received, trained, received, received]
    held = list(exchange.engine.data_owners.values())  # type: ignore[attr-defined]
    for owner in held:
        assert isinstance(owner, DepOwner) and owner.deep is not None
        assert len(owner.means) <= 3 and owner.means.shape[1] == 8
        assert owner.deep.num_features == owner.graph.num_features + 8
        assert owner.deep.num_nodes == owner.graph.num_nodes


def test_others_prototypes_change_what_is_generated(graph: Graph, owners: Partition) -> None:
    from tests.small import owners_of

    more = {"neighgen": {"at_least": 1}, "model": FUSING}
    one = owners_of(setup_of("feddep", graph, owners, {"prototypes": 3}, **more))[0]
    assert isinstance(one, DepOwner)
    one.cluster()
    bars = []
    for abroad in ([], [np.full((2, 8), 5.0, np.float32)]):
        one.learn(abroad)
        assert one.deep is not None
        bars.append(one.deep.x.toarray()[:, one.graph.num_features :])
    assert not np.allclose(*bars)
    assert bars[1].mean() > bars[0].mean()  # it moved towards them


def test_a_run_repeats_to_the_bit(train: Train) -> None:
    more: dict[str, Any] = {"evaluation": {"models": "both"}, "neighgen": {"rounds_gen": 3}}
    one, two = (train("feddep", model=FUSING, **more) for _ in range(2))
    assert one.record.model_sha256 == two.record.model_sha256
    assert one.accuracy == two.accuracy and one.accuracy["local"] is not None
    assert one.record.model_sha256 != train("fedsage", model=FUSING).record.model_sha256


def test_it_is_in_the_arena_with_its_backbone() -> None:
    assert "feddep@fusing" in ALL


def test_it_is_refused_without_its_backbone_and_where_sums_are_hidden(train: Train) -> None:
    with pytest.raises(ConfigError, match="backbone=fusing"):
        train("feddep")
    with pytest.raises(ConfigError, match="--privacy open"):
        train("feddep", model=FUSING, privacy={"level": "sums"})
