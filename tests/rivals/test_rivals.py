"""Methods of others: each against its formula in plain loops, and in a run."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.methods import LoopWith, find_method
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.protocol.messages import Ask, Classifier
from fedsage.protocol.personal import OwnUpdate
from fedsage.protocol.server import average
from fedsage.rivals.adafgl import propagation
from fedsage.rivals.fedgta import FedGTA, confidence, mixed_moments, propagated
from fedsage.rivals.fedopt import FedAdam, FedYogi, ServerStep
from fedsage.rivals.fedprox import Proximal
from fedsage.rivals.fedpub import FedPub, Masked, PubOwner
from fedsage.rivals.moon import contrast
from fedsage.rivals.scaffold import Scaffold, ScaffoldOwner
from fedsage.rng import generator
from fedsage.runs.events import Stopwatch
from fedsage.runs.execute import execute
from tests.fixtures import Train
from tests.small import SMALL, exchange_on, owners_of

RIVALS = (
    "fedprox", "moon", "scaffold", "fedadam", "fedyogi", "fedgta", "fedpub", "adafgl", "fedgcn"
)  # fmt: skip
FULL = {"how": "full"}


def normal(*size: int) -> Tensor:
    return torch.from_numpy(generator(0, "rivals", *size).standard_normal(size)).float()


def setup_of(
    name: str,
    graph: Graph,
    owners: Partition,
    options: dict[str, float] | None = None,
    **more: Any,
) -> Any:
    from fedsage.config import load_config
    from fedsage.runs.setup import prepare

    chosen = {"run": {"method": name}, "method": options or {}}
    return prepare(load_config(SMALL, more, chosen), owners, graph)


def sha_of(
    graph: Graph, owners: Partition, name: str, options: dict[str, float], **more: Any
) -> str:
    config = setup_of(name, graph, owners, options, **more).config
    return execute(config, owners, graph, Stopwatch()).record.model_sha256


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_runs_and_repeats_to_the_bit(name: str, train: Train) -> None:
    one, two = train(name, evaluation={"models": "both"}), train(name)
    assert one.record.model_sha256 == two.record.model_sha256
    assert one.accuracy == two.accuracy
    held = one.record.models
    assert held is not None and held["shared"]["local"] is not None
    assert held["own"]["local"] is not None
    if find_method(name).personal:
        assert len(one.models) == 3 and held["own"] == one.accuracy


@pytest.mark.parametrize("name", ["scaffold", "fedadam", "fedgta", "fedpub", "adafgl"])
def test_what_sees_models_is_refused_where_sums_are_hidden(name: str, train: Train) -> None:
    with pytest.raises(ConfigError, match="--privacy open"):
        train(name, privacy={"level": "sums"})


def test_a_setting_that_a_method_does_not_have_is_refused(
    graph: Graph, owners: Partition
) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'mu'"):
        setup_of("fedprox", graph, owners, {"my": 1.0})
    with pytest.raises(ConfigError, match="It has none"):
        setup_of("fedsage", graph, owners, {"mu": 1.0})


def test_fedprox_adds_the_gradient_of_its_term() -> None:
    model = torch.nn.Linear(3, 2)
    term = Proximal(model, 0.3)
    before = parameters_of(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 1.5
    model(normal(4, 3)).square().sum().backward()
    plain = {name: cast(Tensor, w.grad).clone() for name, w in model.named_parameters()}
    term.gradients()
    for name, weight in model.named_parameters():
        held = weight.detach().clone().requires_grad_(True)
        (0.15 * (held - before[name]).square().sum()).backward()
        torch.testing.assert_close(weight.grad, plain[name] + cast(Tensor, held.grad))


@pytest.mark.slow
def test_fedprox_without_a_pull_is_fedsage(graph: Graph, owners: Partition) -> None:
    several = {"local_epochs": 3}  # the first step starts where the pull is to
    given: dict[str, Any] = {"traffic": FULL, "run": {"kernel": "torch"}, "classifier": several}
    plain = sha_of(graph, owners, "fedsage", {}, **given)
    assert sha_of(graph, owners, "fedprox", {"mu": 0.0}, **given) == plain
    assert sha_of(graph, owners, "fedprox", {"mu": 10.0}, **given) != plain


def test_moon_is_its_formula() -> None:
    z, shared, before = normal(5, 4), normal(5, 4) + 1, normal(5, 4) - 2

    def cosine(a: Tensor, b: Tensor) -> float:
        return float((a * b).sum() / a.norm() / b.norm())

    total = 0.0
    for v in range(5):
        near = math.exp(cosine(z[v], shared[v]) / 0.5)
        far = math.exp(cosine(z[v], before[v]) / 0.5)
        total -= math.log(near / (near + far))
    torch.testing.assert_close(contrast(z, shared, before, 0.5), torch.tensor(total / 5))


@pytest.mark.parametrize("kind", [FedAdam, FedYogi])
def test_fedopt_is_its_formula(kind: type[ServerStep], graph: Graph, owners: Partition) -> None:
    setup = setup_of(kind.__name__.lower(), graph, owners, {"eta": 0.1})
    server = kind(exchange_on(setup), average)
    phi, m, v = 1.0, 0.0, 1e-6
    server.phi = {"w": torch.tensor([phi])}
    server.m, server.v = {"w": torch.tensor([m])}, {"w": torch.tensor([v])}
    for t in range(3):
        updates: list[Parameters] = [
            {"w": torch.tensor([phi + 0.2 * t - 0.1 * k])} for k in (1, 2)
        ]
        found = server.combine(updates, [1.0, 3.0])
        delta = (float(updates[0]["w"]) + 3 * float(updates[1]["w"])) / 4 - phi
        m = 0.9 * m + 0.1 * delta
        if kind is FedAdam:
            v = 0.99 * v + 0.01 * delta**2
        else:
            v = v - 0.01 * delta**2 * math.copysign(1.0, v - delta**2)
        phi += 0.1 * m / (math.sqrt(v) + 1e-3)
        torch.testing.assert_close(found["w"], torch.tensor([phi]))


def test_scaffold_corrects_and_the_server_holds_the_mean(
    graph: Graph, owners: Partition
) -> None:
    plain = {"classifier": {"optimizer": "sgd", "eta": 0.05, "moments": "own"}}
    setup = setup_of("scaffold", graph, owners, **plain)
    exchange = exchange_on(setup)
    held = list(exchange.engine.data_owners.values())  # type: ignore[attr-defined]
    server = Scaffold(exchange, average)
    server.begin(setup.plan.phi)
    for t in range(2):
        before = {o.id: (parameters_of(o.model), dict(o.control), dict(o.shared)) for o in held}
        sent: dict[int, Parameters] = {}
        for one in held:
            real = one.local_update_c

            def watched(ask: Ask, one: Any = one, real: Any = real, sent: Any = sent) -> Any:
                update = real(ask)
                sent[one.id] = update.phi
                return update

            one.local_update_c = watched  # type: ignore[method-assign]
        server.round(t, keep=False)
        for one in held:
            del one.local_update_c
            assert isinstance(one, ScaffoldOwner)
            phi, control, shared = before[one.id]
            steps = one.steps(t)
            for name, new in one.control.items():  # option II of the paper
                c_i = control.get(name, torch.zeros_like(new))
                c = shared.get(name, torch.zeros_like(new))
                option = c_i - c + (phi[name] - sent[one.id][name]) / (steps * 0.05)
                decay = setup.config.classifier.weight_decay
                torch.testing.assert_close(new, option, atol=2e-3 + 5 * decay, rtol=1e-2)
        assert server.control is not None
        for name, value in server.control.items():
            mean = torch.stack([one.control[name] for one in held]).mean(dim=0)
            torch.testing.assert_close(value, mean, atol=1e-6, rtol=1e-4)
            torch.testing.assert_close(held[0].shared[name], value)


def test_fedgta_propagates_and_measures_as_in_the_paper(graph: Graph) -> None:
    soft = normal(graph.num_nodes, 3).softmax(dim=1)
    found = propagated(soft, graph, 2, 0.4)
    degree = graph.degrees + 1
    now = soft
    for step in found:
        after = torch.zeros_like(now)
        for v in range(graph.num_nodes):
            for u in [v, *graph.neighbors(v).tolist()]:
                after[v] += now[u] / math.sqrt(degree[v] * degree[u])
        now = 0.4 * soft + 0.6 * after
        torch.testing.assert_close(step, now)
    weights = torch.from_numpy(degree.astype(np.float32))
    sure = sum(
        float(weights[v])
        * (math.exp(-1) + float(now[v, j]) * math.log(float(now[v, j]) + 1e-8))
        for v in range(len(now))
        for j in range(3)
    )
    assert confidence(now, weights) == pytest.approx(sure, rel=1e-4)
    moments = mixed_moments(found, 3)
    assert len(moments) == 2 * 3 * 3
    third = ((now[:, 1] - now[:, 1].mean()) ** 3).mean()
    torch.testing.assert_close(moments[9 + 6 + 1], third)


def update(about: list[float], value: float) -> OwnUpdate:
    return OwnUpdate({"w": torch.tensor([value])}, {}, 1.0, 0.0, torch.tensor(about))


def test_owners_that_look_alike_share_models(graph: Graph, owners: Partition) -> None:
    updates = {0: update([2.0, 1.0, 0.0], 1.0), 1: update([1.0, 1.0, 0.1], 2.0),
               2: update([5.0, 0.0, 1.0], 9.0)}  # fmt: skip
    gta = FedGTA(exchange_on(setup_of("fedgta", graph, owners)), average)
    shares = gta.shares(updates)
    assert shares[0] == {0: 2.0, 1: 1.0, 2: 0.0} and shares[2] == {0: 0.0, 1: 0.0, 2: 5.0}
    setup = setup_of("fedpub", graph, owners, {"tau": 2.0})
    pub = FedPub(exchange_on(setup), average)
    a, b = updates[0].about, updates[2].about
    cosine = float((a * b).sum() / a.norm() / b.norm())
    assert pub.shares(updates)[0][2] == pytest.approx(math.exp(2.0 * cosine), rel=1e-5)


def test_fedpub_hands_gradients_on_by_the_chain_rule(graph: Graph, owners: Partition) -> None:
    owner = owners_of(setup_of("fedpub", graph, owners))[0]
    assert isinstance(owner, PubOwner)
    owner.local_update_c(Ask(0))
    masks = owner.masks
    assert masks is not None
    rows = {name: one.detach().clone() for name, one in masks.weights.items()}
    tilted = {name: one.detach().clone() for name, one in masks.of.items()}
    term = Masked(masks, 0.01, 0.02)
    term.shared = {name: one + 0.1 for name, one in rows.items()}
    owner.optimizer.zero_grad()
    term.before()
    torch.stack(
        [(w * (k + 1)).square().sum() for k, w in enumerate(owner.model.parameters())]
    ).sum().backward()  # type: ignore[no-untyped-call]
    masks.optimizer.step = lambda: None  # type: ignore[assignment,method-assign]
    term.gradients()
    for k, (name, weight) in enumerate(owner.model.named_parameters()):
        torch.testing.assert_close(weight.detach(), rows[name])  # the masks are off again
        phi, mu = rows[name].requires_grad_(True), tilted[name].requires_grad_(True)
        loss = (phi * mu * (k + 1)).square().sum() + 0.01 * mu.abs().sum()
        (loss + 0.02 * (phi - term.shared[name].detach()).square().sum()).backward()
        torch.testing.assert_close(weight.grad, phi.grad)
        torch.testing.assert_close(masks.of[name].grad, mu.grad)


def test_fedpub_answers_with_its_masks_and_sends_none(graph: Graph, owners: Partition) -> None:
    owner = owners_of(setup_of("fedpub", graph, owners))[0]
    assert isinstance(owner, PubOwner)
    phi = owner.local_update_c(Ask(0)).phi
    own = owner.own_phi()
    assert any(not torch.equal(phi[name], own[name]) for name in phi)
    nodes = np.arange(owner.graph.num_nodes)
    masked = owner.answers(owner.graph, nodes)
    stays = parameters_of(owner.model)
    assert all(torch.equal(stays[name], phi[name]) for name in phi)
    owner.masks = None
    owner.take_over(own, {})
    torch.testing.assert_close(owner.answers(owner.graph, nodes), masked)


def test_adafgl_propagates_over_links_and_over_pairs_that_are_alike(graph: Graph) -> None:
    soft = torch.eye(3)[torch.tensor(graph.y)]
    found, size = propagation(graph, soft, 0.7), graph.num_nodes
    dense = graph.adjacency.toarray()
    mixed = [[0.7 * dense[u, v] + 0.3 * (u != v and graph.y[u] == graph.y[v]) + (u == v)
              for v in range(size)] for u in range(size)]  # fmt: skip
    degree = [sum(row) for row in mixed]
    for u in range(0, size, 7):
        for v in range(size):
            wanted = mixed[u][v] / math.sqrt(degree[u] * degree[v])
            assert float(found[u, v]) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.slow
def test_adafgl_shares_what_fedsage_shares(train: Train) -> None:
    ada, plain = train("adafgl"), train(traffic=FULL)
    assert ada.record.model_sha256 == plain.record.model_sha256
    assert ada.accuracy["global"] == plain.accuracy["global"]


def test_a_personal_method_goes_back_to_its_best_round(graph: Graph, owners: Partition) -> None:
    setup = setup_of("fedgta", graph, owners, {"similarity": 0.999})
    exchange = exchange_on(setup)
    loop = setup.method.train
    assert isinstance(loop, LoopWith)
    server = loop.server(exchange, average)
    server.begin(setup.plan.phi)
    server.round(0, keep=False)
    best = {owner.id: parameters_of(owner.model)
            for owner in exchange.engine.data_owners.values()}  # type: ignore[attr-defined]  # fmt: skip
    server.round(1, keep=True)
    server.end(Classifier({}, {}), 0, last=1)
    for owner in exchange.engine.data_owners.values():  # type: ignore[attr-defined]
        now, then = parameters_of(owner.model), best[owner.id]
        assert all(torch.equal(now[name], then[name]) for name in now)
