"""Procedures A, C, D and E: the exchange is Eq. (6), and α weighs it once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending.generator import learner, partners_of
from fedsage.mending.neighgen import (
    GenGradient,
    GenOffers,
    by_neighgen,
    feed_forward,
    local_request,
    scaled_sum,
    server_execution_for_gen,
    update_neighgen,
)
from fedsage.mending.shared import SharedNeighGen, average_neighgen
from fedsage.models.gen_learner import GenLearner, noise_stream
from fedsage.models.gen_training import embed, joint_losses
from fedsage.models.losses import cross_subgraph_feature_loss
from fedsage.models.parameters import Parameters, parameters_of, sha256_of
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask
from fedsage.protocol.owner import DataOwner
from fedsage.rng import generator
from fedsage.runs.setup import Setup
from tests.small import exchange_on, owners_of, small_setup

GEN = {
    "widths": [8, 6], "hidden": [10], "batch_size": 12, "at_least": 1, "eta": 0.01,
    "min_batch": 4,
}  # fmt: skip


def with_gen(graph: Graph, owners: Partition, way: str = "neighgen", **changes: Any) -> Setup:
    return small_setup(graph, owners, way, "paper", neighgen=GEN | changes)


def rounds(owners: list[DataOwner], count: int) -> list[Parameters]:
    exchange = Exchange(InProcessEngine(owners), owners[0].plan)
    for t in range(count):
        server_execution_for_gen(exchange, t)
    return [parameters_of(learner(owner).neighgen) for owner in owners]


def in_one_place(learners: list[GenLearner], i: int, t: int, alpha: float) -> None:
    """Eq. (5) with all of Eq. (6), for one who could see every X_j."""
    own = learners[i]
    losses = joint_losses(
        own.neighgen, own.classifier, own.impaired, own.batch(t), own.is_train, own.settings,
        noise_stream(own.seed, i, t),
    )  # fmt: skip
    z = embed(own.neighgen, own.batch(t)).detach()
    rows, _ = own.neighgen.hg(z, noise_stream(own.seed, i, t))
    cross = torch.zeros(())
    for j, other in enumerate(learners):
        if j != i:
            x = other.graph.x.toarray()
            distance = torch.cdist(rows.detach(), torch.from_numpy(x))
            nearest = torch.from_numpy(x)[distance.argmin(dim=1)]
            cross = cross + ((rows - nearest) ** 2).sum() / len(z)
    own.optimizer.zero_grad()
    (losses.joint + own.settings.lambda_f * alpha * cross).backward()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["round", "draw"])
@pytest.mark.parametrize(("alpha", "lambda_f"), [(1.0, 1.0), (0.3, 2.0)])
def test_the_exchange_is_equation_6_computed_in_one_place(
    graph: Graph, owners: Partition, alpha: float, lambda_f: float, how: str
) -> None:
    counts = {"counts": how, "at_least": 1, "at_most": 3}
    setting = with_gen(graph, owners, alpha=alpha, lambda_f=lambda_f, **counts)
    exchanged = rounds(owners_of(setting), 3)
    learners = [learner(owner) for owner in owners_of(setting)]
    for t in range(3):
        for i in range(3):
            in_one_place(learners, i, t, alpha)
        for one in learners:
            one.optimizer.step()
    for found, one in zip(exchanged, learners, strict=True):
        for name, weight in parameters_of(one.neighgen).items():
            torch.testing.assert_close(found[name], weight, rtol=1e-6, atol=1e-6)


def test_without_alpha_every_owner_trains_as_if_alone(graph: Graph, owners: Partition) -> None:
    setting = with_gen(graph, owners, alpha=0.0)
    together = rounds(owners_of(setting), 2)
    alone = [rounds([owner], 2)[0] for owner in owners_of(setting)]
    weighed = rounds(owners_of(with_gen(graph, owners)), 2)
    for a, b, c in zip(together, alone, weighed, strict=True):
        assert sha256_of(a) == sha256_of(b)
        assert sha256_of(a) != sha256_of(c)


@pytest.mark.slow
def test_alpha_multiplies_the_others_gradient_exactly_once(
    graph: Graph, owners: Partition
) -> None:
    """A step of plain size: with α twice as large the extra gradient is twice as large."""
    gradients = {}
    for alpha in (0.0, 1.0, 2.0):
        owner = owners_of(with_gen(graph, owners, alpha=alpha, lambda_f=3.0))[0]
        others = {
            name: torch.ones_like(weight)
            for name, weight in learner(owner).hg().items()
            if name.startswith("fgen.")
        }
        update_neighgen(owner, GenGradient(0, others))
        fgen = learner(owner).neighgen.hg.fgen
        gradients[alpha] = [weight.grad.clone() for weight in fgen.parameters()]
    for none, once, twice in zip(*gradients.values(), strict=True):
        torch.testing.assert_close(once - none, torch.full_like(none, 3.0))
        torch.testing.assert_close(twice - none, torch.full_like(none, 6.0))


@pytest.mark.parametrize(
    "odd", [{"fgen.bias.1": torch.zeros(1)}, {"encoder.x": torch.zeros(2)}]
)
def test_a_gradient_that_does_not_fit_is_refused(
    graph: Graph, owners: Partition, odd: Parameters
) -> None:
    owner = owners_of(with_gen(graph, owners))[0]
    with pytest.raises(ProtocolError, match="which H\\^g does not have"):
        update_neighgen(owner, GenGradient(0, odd))


def test_the_server_adds_gradients_up_unweighted() -> None:
    each = [{"w": torch.full((2,), value)} for value in (1.0, 2.0, 4.0)]
    assert scaled_sum(each, 3)["w"].tolist() == [7.0, 7.0]
    assert scaled_sum([], 3) == {}


@pytest.mark.slow
def test_the_others_gradient_is_that_of_their_own_nodes(
    graph: Graph, owners: Partition
) -> None:
    first, second, _ = owners_of(with_gen(graph, owners))
    offer = local_request(first, Ask(0))
    reply = feed_forward(second, GenOffers({0: offer})).of[0]
    hg = learner(first).neighgen.hg
    stream = noise_stream(first.seed, 0, 0)
    rows, _ = hg(offer.z, stream)
    x = second.graph.x
    loss, found = cross_subgraph_feature_loss(
        rows, len(offer.z), x, learner(second).squares, 2**20
    )
    loss.backward()
    for name, weight in hg.named_parameters():
        if name.startswith("fgen."):
            torch.testing.assert_close(reply[name], weight.grad)
        else:
            assert name not in reply  # dGen's number is rounded: no gradient flows
    assert np.array_equal(np.flatnonzero(learner(second).picked), np.unique(found))


def test_a_batch_below_min_batch_is_refused(graph: Graph, owners: Partition) -> None:
    first, second, _ = owners_of(with_gen(graph, owners))
    offer = local_request(first, Ask(0))
    small = replace(offer, z=offer.z[:3])
    with pytest.raises(PrivacyError, match=r"over 3 embeddings, but below 4"):
        feed_forward(second, GenOffers({0: small}))
    with pytest.raises(PrivacyError, match=r"is below neighgen\.min_batch 4"):
        with_gen(graph, owners, batch_size=3)


def test_too_few_generated_rows_are_answered_with_zeros(
    graph: Graph, owners: Partition
) -> None:
    """A gradient over one row is that row, however many embeddings came with it."""
    setting = with_gen(graph, owners)
    offer = local_request(owners_of(setting)[0], Ask(0))
    quiet = offer.hg | {"dgen.theta_d": torch.zeros(6), "dgen.bias": torch.tensor(-9.0)}
    for at_least, answered in ((0, False), (1, True)):
        owner = owners_of(with_gen(graph, owners, at_least=at_least))[1]
        reply = learner(owner).gradient_for(0, 0, offer.z, quiet)
        assert any(bool(gradient.any()) for gradient in reply.values()) == answered


def test_a_generator_of_another_shape_is_refused(graph: Graph, owners: Partition) -> None:
    first, second, _ = owners_of(with_gen(graph, owners))
    offer = local_request(first, Ask(0))
    odd = replace(offer, hg=offer.hg | {"fgen.bias.1": torch.zeros(7)})
    with pytest.raises(ProtocolError, match="does not fit the agreed shape"):
        feed_forward(second, GenOffers({0: odd}))


def test_an_owner_that_did_not_agree_to_neighgen_is_not_asked_for_it(
    graph: Graph, owners: Partition
) -> None:
    exchange = exchange_on(small_setup(graph, owners))
    with pytest.raises(PrivacyError, match="not part of the agreed run"):
        exchange.pass_on(local_request, Ask(0))


def test_the_shared_neighgen_is_the_mean_of_all(graph: Graph, owners: Partition) -> None:
    setting = with_gen(graph, owners, "shared")
    trained = owners_of(setting)
    start = parameters_of(learner(trained[0]).neighgen)
    exchange = exchange_on(setting, InProcessEngine(trained))
    shared, done = average_neighgen(exchange, SharedNeighGen(0, start))
    each = [parameters_of(learner(owner).neighgen) for owner in trained]
    assert len({sha256_of(one) for one in each}) == 3
    for name, weight in shared.theta.items():
        torch.testing.assert_close(weight, sum(one[name] for one in each) / 3)
    assert shared.t == 1 and done.loss > 0


@pytest.mark.slow
def test_steps_after_the_first_are_the_owner_s_own(graph: Graph, owners: Partition) -> None:
    setting = with_gen(graph, owners, local_steps=3)
    owner = owners_of(setting)[0]
    before = sha256_of(parameters_of(learner(owner).neighgen))
    update_neighgen(owner, GenGradient(0, {}))
    assert sha256_of(parameters_of(learner(owner).neighgen)) != before
    state = learner(owner).optimizer.state_dict()["state"]
    assert {int(each["step"]) for each in state.values()} == {3}


def test_fresh_hides_other_nodes_in_every_round(graph: Graph, owners: Partition) -> None:
    for fresh, sets in ((False, 1), (True, 3)):
        owner = owners_of(with_gen(graph, owners, fresh=fresh))[0]
        hidden = set()
        for t in range(3):
            local_request(owner, Ask(t))
            hidden.add(tuple(learner(owner).impaired.hidden.tolist()))
        assert len(hidden) == sets


def test_partners_get_offers_and_their_sum_is_what_all_would_say_on_average() -> None:
    everyone = partners_of([0, 1, 2, 3], 0, generator(0, "x"))
    assert everyone == {i: [j for j in range(4) if j != i] for i in range(4)}
    assert partners_of([0, 1, 2], 7, generator(0, "x")) == partners_of(
        [0, 1, 2], 0, generator(0, "x")
    )
    drawn = [partners_of(range(10), 3, generator(0, "x", t)) for t in range(200)]
    assert all(len(set(each[i]) - {i}) == 3 for each in drawn for i in range(10))
    asked = np.bincount([j for each in drawn for i in each for j in each[i]], minlength=10)
    assert asked.min() > 0.8 * asked.max()
    gradients = [{"w": torch.tensor(float(k))} for k in (1, 2, 3)]
    assert scaled_sum(gradients, 3)["w"] == 6 and scaled_sum(gradients, 9)["w"] == 18
    assert scaled_sum([], 5) == {}


@pytest.mark.slow
def test_fewer_partners_carry_less_and_what_they_carry_is_foretold(
    graph: Graph, owners: Partition
) -> None:
    carried = {}
    for partners in (0, 1):
        gen = {"partners": partners, "rounds_gen": 3, "min_batch": 8}
        setup = with_gen(graph, owners, **gen)
        exchange = exchange_on(setup)
        by_neighgen(exchange)
        traffic = exchange.engine.traffic["mending"]
        carried[partners] = traffic.up + traffic.down
        assert setup.way.carries(setup.plan) == pytest.approx(carried[partners], rel=0.35)
    assert carried[1] < 0.8 * carried[0]
