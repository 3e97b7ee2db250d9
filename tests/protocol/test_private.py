"""Private runs: only noisy sums that were paid for leave, whoever asks and whoever vanishes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

import fedsage as fs
from fedsage.config import load_config
from fedsage.engines.simulated import hide_sums
from fedsage.errors import ConfigError, PrivacyError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.methods import privately
from fedsage.privacy.accountant import spent
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.hidden_sums.owner import make_keys
from fedsage.protocol.messages import Ask
from fedsage.protocol.private import (
    PrivateOwner,
    Weights,
    noisy_count,
    noisy_gradient,
    size_of,
    terms_of,
)
from fedsage.protocol.procedures import PROCEDURES
from fedsage.protocol.server import average
from fedsage.runs.setup import Setup, prepare
from tests.protocol.test_hidden_sums import Vanishing
from tests.small import SMALL, owners_of

ROUNDS = 3


def private_setup(graph: Graph, owners: Partition, **privacy: Any) -> Setup:
    small = {name: SMALL[name] for name in ("data", "synthetic")}
    more = {"privacy": {"level": "private", "epsilon": 8.0, **privacy}}
    config = load_config(small, {"classifier": {"rounds_c": ROUNDS}}, more)
    return prepare(config, owners, graph)


def exchange_of(setup: Setup, gone: dict[str, set[int]] | None = None) -> Exchange:
    engine = Vanishing(owners_of(setup))
    engine.gone, engine.min_owners = gone or {}, 1
    exchange = Exchange(engine, setup.plan)
    hide_sums(exchange, engine)
    return exchange


def finished(exchange: Exchange) -> Any:
    return privately(
        exchange, exchange.plan.phi, rounds_c=ROUNDS, selection="last", queries="plain",
        rule=average,
    )  # fmt: skip


def zeros(setup: Setup) -> torch.Tensor:
    return torch.zeros(size_of(setup.plan))


def test_a_private_run_can_ask_for_nothing_that_is_not_paid_for(graph, owners):
    """Every procedure that it may ask for is charged, or its reply holds no data at all."""
    asks = private_setup(graph, owners).plan.asks
    charged = {name for name, one in asks.items() if one.private == "charged"}
    about_keys = {name for (module, name) in PROCEDURES if module == make_keys.module}
    assert charged == {noisy_count.name, noisy_gradient.name}
    for name in asks.keys() - charged - about_keys:
        assert asks[name].private == "no data"
        assert not fields(asks[name].reply), name
    assert not asks.keys() & {"likelihoods", "count_answers", "count_classes", "receive_change"}


def test_all_that_left_is_in_the_ledger_and_costs_no_more_than_agreed(graph, owners):
    setup = private_setup(graph, owners)
    exchange = exchange_of(setup)
    finished(exchange)
    for owner in exchange.engine.data_owners.values():
        ledger = owner.purse.ledger
        assert sum(one.charge.times for one in ledger.entries()) == ROUNDS + 1
        assert 0 < ledger.spent(1e-5) <= 8.0
    assert spent(terms_of(setup.plan).charges, 1e-5) <= 8.0


def test_more_rounds_than_were_paid_for_are_refused(graph, owners):
    setup = private_setup(graph, owners)
    exchange = exchange_of(setup)
    exchange.sum(noisy_count, Ask(0))
    for t in range(ROUNDS):
        exchange.sum(noisy_gradient, Weights(t, 36, zeros(setup)))
    with pytest.raises(PrivacyError, match=f"{ROUNDS} were agreed"):
        exchange.sum(noisy_gradient, Weights(ROUNDS, 36, zeros(setup)))
    purse = exchange.engine.data_owners[0].purse
    with pytest.raises(PrivacyError, match="the run's ε"):
        purse.pay("one more", "anything", replace(terms_of(setup.plan).rounds, times=1))


def test_the_same_question_gets_the_same_answer_and_another_is_refused(graph, owners):
    setup = private_setup(graph, owners)
    owner = owners_of(setup)[0]
    asked = Weights(0, 36, zeros(setup))
    first, second = (noisy_gradient(owner, asked).total for _ in range(2))
    assert torch.equal(first, second) and len(owner.purse.ledger.entries()) == 1
    with pytest.raises(PrivacyError, match="another question"):
        noisy_gradient(owner, Weights(0, 36, zeros(setup) + 0.1))
    third = noisy_gradient(owner, Weights(1, 36, zeros(setup))).total
    assert not torch.equal(first, third)  # the same sum in another round has other noise


def test_the_door_lets_out_no_reply_that_was_not_paid_for(graph, owners):
    setup = private_setup(graph, owners)
    exchange = exchange_of(setup)
    exchange.sum(noisy_count, Ask(0))
    door = exchange.engine.doors[0]
    reply = noisy_count(owners_of(setup)[0], Ask(0))  # paid for by somebody else
    with pytest.raises(PrivacyError, match="Nothing was paid"):
        door.let_out(noisy_count, reply, 1)
    with pytest.raises(PrivacyError, match="not part of the agreed run"):
        door.asked("receive_change")


def test_links_have_no_part_in_what_leaves_and_a_node_only_its_own_row(graph, owners):
    setup = private_setup(graph, owners)
    owner = owners_of(setup)[0]
    bare = replace(owner.graph, indptr=np.zeros_like(owner.graph.indptr),
                   indices=owner.graph.indices[:0])  # fmt: skip
    other = PrivateOwner(0, bare, owner.split, setup.plan)
    asked = Weights(0, 36, zeros(setup) + 0.1)
    assert torch.equal(noisy_gradient(owner, asked).total, noisy_gradient(other, asked).total)


def test_the_sum_is_the_true_gradient_within_its_noise(graph, owners):
    setup = private_setup(graph, owners, epsilon=100.0)
    terms, exchange = terms_of(setup.plan), exchange_of(setup)
    weights = torch.from_numpy(np.random.default_rng(0).normal(size=size_of(setup.plan)))
    a, b = terms.bits(36)
    total = exchange.sum(noisy_gradient, Weights(0, 36, weights.float())).total
    from fedsage.privacy.records import summed_gradient
    from fedsage.protocol.private import records

    true = 0
    for owner in owners_of(setup):
        train = owner.split.train
        rows = records(setup.plan, owner.graph, train, 2**a)
        w = weights.float().double().numpy()
        true = true + summed_gradient(rows, owner.graph.y[train], w, a, b)
    noise = (total.numpy() - true) / 2 ** (a + b)
    wanted = terms.noise * (3 / 2) ** 0.5  # of three owners two must be enough
    assert noise.std() == pytest.approx(wanted, rel=0.3)


@pytest.mark.parametrize("step", ["noisy_gradient", "give_shares"])
def test_a_third_of_the_owners_may_vanish(step, graph, owners):
    exchange = exchange_of(private_setup(graph, owners), {step: {1}})
    assert torch.isfinite(finished(exchange).classifier.phi["weight"]).all()


def test_a_sum_with_too_little_noise_is_never_opened(graph, owners):
    exchange = exchange_of(private_setup(graph, owners), {"make_keys": {0}, "noisy_count": {1}})
    with pytest.raises(PrivacyError, match="are required"):
        finished(exchange)


def test_weights_of_another_size_are_refused(graph, owners):
    owner = owners_of(private_setup(graph, owners))[0]
    with pytest.raises(PrivacyError, match="was agreed"):
        noisy_gradient(owner, Weights(0, 36, torch.zeros(1, 1)))
    assert not owner.purse.ledger.entries()


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("locsage", {}, "cannot be trained with --privacy private"),
        ("fedsage+classes", {}, "tells what no noise covers"),
        ("fedsage+links", {}, "'links' tells what no noise covers.* or --privacy sums"),
        ("fedsage", {"model": {"backbone": "gcn"}}, "needs 'linear'"),
        ("fedsage", {"classifier": {"self_training": 0.8}}, "self_training is '0.8'"),
        ("fedsage", {"classifier": {"class_weights": "balanced"}}, "needs 'none'"),
    ],
)
def test_what_no_noise_covers_is_refused_in_words(method, settings, words, graph, owners):
    with pytest.raises(ConfigError, match=words):
        fs.run(owners, method, privacy="private", settings=settings)


@pytest.mark.slow
def test_a_run_says_what_it_costs_and_resumes_to_the_bit(graph, owners, tmp_path):
    def go(**more: Any) -> fs.RunResult:
        return fs.run(
            owners, "fedsage+", privacy="private", evaluate_on=graph, progress=False,
            settings={"privacy": {"epsilon": 8.0}, "classifier": {"rounds_c": 6}}, **more,
        )  # fmt: skip

    class Killed(Exception):
        pass

    def kill(event: Any) -> None:
        if event.round == 3:
            raise Killed

    whole = go(out=tmp_path / "whole")
    assert whole.record.privacy == {
        "level": "private", "epsilon": 8.0, "delta": 1e-5,
        "unit": "one node with all its features, its label and its links",
    }  # fmt: skip
    with pytest.raises(Killed):
        go(out=tmp_path / "stopped", callbacks=[kill])
    again = go(out=tmp_path / "stopped", resume=True)
    assert again.record.model_sha256 == whole.record.model_sha256
    assert whole.record.accuracy["local"] is not None
    assert whole.record.validation is None  # nobody was asked
    assert all(line.loss is None for line in whole.history)
