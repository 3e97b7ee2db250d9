"""Procedures A, C, D and E: the exchange is Eq. (6), and α weighs it once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsage.config import load_config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.models.gen_learner import GenLearner, noise_stream
from fedsage.models.gen_training import embed, joint_losses
from fedsage.models.losses import cross_subgraph_feature_loss
from fedsage.models.parameters import Parameters, parameters_of, sha256_of
from fedsage.prepare import Setting, data_owners, prepare
from fedsage.protocol.messages import Ask, GenGradient, GenOffers
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.server import add_up, average_neighgen, server_execution_for_gen
from fedsage.rng import generator
from tests.conftest import SMALL

MORE = {
    "neighgen": {
        "widths": [8, 6], "hidden": [10], "batch_size": 12, "at_least": 1, "eta": 0.01,
        "min_batch": 4,
    }
}  # fmt: skip


def with_gen(graph: Graph, owners: Partition, **changes: object) -> Setting:
    config = load_config(SMALL, MORE, {"neighgen": changes}, preset="paper")
    return prepare(config, owners, graph)


def rounds(owners: list[DataOwner], count: int) -> list[Parameters]:
    engine = InProcessEngine(owners)
    for t in range(count):
        server_execution_for_gen(engine, t)
    return [parameters_of(owner.learner.neighgen) for owner in owners]


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


@pytest.mark.parametrize("how", ["round", "draw"])
@pytest.mark.parametrize(("alpha", "lambda_f"), [(1.0, 1.0), (0.3, 2.0)])
def test_the_exchange_is_equation_6_computed_in_one_place(
    graph: Graph, owners: Partition, alpha: float, lambda_f: float, how: str
) -> None:
    setting = with_gen(
        graph, owners, alpha=alpha, lambda_f=lambda_f, counts=how, at_least=1, at_most=3
    )
    exchanged = rounds(data_owners(setting, "neighgen"), 3)
    learners = [owner.learner for owner in data_owners(setting, "neighgen")]
    for t in range(3):
        for i in range(3):
            in_one_place(learners, i, t, alpha)
        for learner in learners:
            learner.optimizer.step()
    for found, learner in zip(exchanged, learners, strict=True):
        for name, weight in parameters_of(learner.neighgen).items():
            torch.testing.assert_close(found[name], weight, rtol=1e-6, atol=1e-6)


def test_without_alpha_every_owner_trains_as_if_alone(graph: Graph, owners: Partition) -> None:
    setting = with_gen(graph, owners, alpha=0.0)
    together = rounds(data_owners(setting, "neighgen"), 2)
    alone = [rounds([owner], 2)[0] for owner in data_owners(setting, "neighgen")]
    weighed = rounds(data_owners(with_gen(graph, owners), "neighgen"), 2)
    for a, b, c in zip(together, alone, weighed, strict=True):
        assert sha256_of(a) == sha256_of(b)
        assert sha256_of(a) != sha256_of(c)


def test_alpha_multiplies_the_others_gradient_exactly_once(
    graph: Graph, owners: Partition
) -> None:
    """A step of plain size: with α twice as large the extra gradient is twice as large."""
    gradients = {}
    for alpha in (0.0, 1.0, 2.0):
        owner = data_owners(with_gen(graph, owners, alpha=alpha, lambda_f=3.0), "neighgen")[0]
        others = {
            name: torch.ones_like(weight)
            for name, weight in owner.learner.hg().items()
            if name.startswith("fgen.")
        }
        owner.update_neighgen(GenGradient(0, others))
        fgen = owner.learner.neighgen.hg.fgen
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
    owner = data_owners(with_gen(graph, owners), "neighgen")[0]
    with pytest.raises(ProtocolError, match="which H\\^g does not have"):
        owner.update_neighgen(GenGradient(0, odd))


def test_the_server_adds_gradients_up_unweighted() -> None:
    each = [{"w": torch.full((2,), value)} for value in (1.0, 2.0, 4.0)]
    assert add_up(each)["w"].tolist() == [7.0, 7.0]
    assert add_up([]) == {}


def test_the_others_gradient_is_that_of_their_own_nodes(
    graph: Graph, owners: Partition
) -> None:
    first, second, _ = data_owners(with_gen(graph, owners), "neighgen")
    offer = first.local_request(Ask(0))
    reply = second.feed_forward(GenOffers({0: offer})).of[0]
    hg = first.learner.neighgen.hg
    rows, _ = hg(offer.z, noise_stream(first.seed, 0, 0))
    x = second.graph.x
    loss, found = cross_subgraph_feature_loss(
        rows, len(offer.z), x, second.learner.squares, 2**20
    )
    loss.backward()
    for name, weight in hg.named_parameters():
        if name.startswith("fgen."):
            torch.testing.assert_close(reply[name], weight.grad)
        else:
            assert name not in reply  # dGen's number is rounded: no gradient flows
    assert np.array_equal(np.flatnonzero(second.learner.picked), np.unique(found))


def test_a_batch_below_min_batch_is_refused(graph: Graph, owners: Partition) -> None:
    small = with_gen(graph, owners, batch_size=3)
    with pytest.raises(PrivacyError, match=r"over 3 embeddings, but below 4"):
        rounds(data_owners(small, "neighgen"), 1)


def test_too_few_generated_rows_are_answered_with_zeros(
    graph: Graph, owners: Partition
) -> None:
    """A gradient over one row is that row, however many embeddings came with it."""
    setting = with_gen(graph, owners)
    offer = data_owners(setting, "neighgen")[0].local_request(Ask(0))
    quiet = offer.hg | {"dgen.theta_d": torch.zeros(6), "dgen.bias": torch.tensor(-9.0)}
    for at_least, answered in ((0, False), (1, True)):
        other = with_gen(graph, owners, at_least=at_least)
        learner = data_owners(other, "neighgen")[1].learner
        reply = learner.gradient_for(0, 0, offer.z, quiet)
        assert any(bool(gradient.any()) for gradient in reply.values()) == answered


def test_a_generator_of_another_shape_is_refused(graph: Graph, owners: Partition) -> None:
    first, second, _ = data_owners(with_gen(graph, owners), "neighgen")
    offer = first.local_request(Ask(0))
    odd = replace(offer, hg=offer.hg | {"fgen.bias.1": torch.zeros(7)})
    with pytest.raises(ProtocolError, match="does not fit the agreed shape"):
        second.feed_forward(GenOffers({0: odd}))


def test_an_owner_without_neighgen_says_so(graph: Graph, owners: Partition) -> None:
    plain = data_owners(with_gen(graph, owners))[0]
    with pytest.raises(ProtocolError, match="method without NeighGen"):
        plain.local_request(Ask(0))


def test_the_shared_neighgen_is_the_mean_of_all(graph: Graph, owners: Partition) -> None:
    from fedsage.protocol.messages import SharedNeighGen

    setting = with_gen(graph, owners)
    trained = data_owners(setting, "shared")
    start = parameters_of(trained[0].learner.neighgen)
    shared, done = average_neighgen(InProcessEngine(trained), SharedNeighGen(0, start))
    each = [parameters_of(owner.learner.neighgen) for owner in trained]
    assert len({sha256_of(one) for one in each}) == 3
    for name, weight in shared.theta.items():
        torch.testing.assert_close(weight, sum(one[name] for one in each) / 3)
    assert shared.t == 1 and len(done) == 3


def test_steps_after_the_first_are_the_owner_s_own(graph: Graph, owners: Partition) -> None:
    setting = with_gen(graph, owners, local_steps=3)
    owner = data_owners(setting, "neighgen")[0]
    before = sha256_of(parameters_of(owner.learner.neighgen))
    owner.update_neighgen(GenGradient(0, {}))
    assert sha256_of(parameters_of(owner.learner.neighgen)) != before
    state = owner.learner.optimizer.state_dict()["state"]
    assert {int(each["step"]) for each in state.values()} == {3}


def test_fresh_hides_other_nodes_in_every_round(graph: Graph, owners: Partition) -> None:
    for fresh, sets in ((False, 1), (True, 3)):
        owner = data_owners(with_gen(graph, owners, fresh=fresh), "neighgen")[0]
        hidden = set()
        for t in range(3):
            owner.local_request(Ask(t))
            hidden.add(tuple(owner.learner.impaired.hidden.tolist()))
        assert len(hidden) == sets


def test_partners_get_offers_and_their_sum_is_what_all_would_say_on_average() -> None:
    from fedsage.protocol.server import partners_of, scaled_sum

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


def test_fewer_partners_carry_less_and_what_they_carry_is_foretold(
    graph: Graph, owners: Partition
) -> None:
    from fedsage.methods import by_neighgen
    from fedsage.prepare import exchange_bytes

    carried = {}
    for partners in (0, 1):
        gen = {"widths": [8, 6], "hidden": [10], "batch_size": 12, "partners": partners}
        setting = prepare(load_config(SMALL, {"neighgen": gen}), owners, graph)
        engine = InProcessEngine(data_owners(setting, "neighgen"))
        by_neighgen(3, partners)(engine, lambda record: None)
        traffic = engine.traffic["neighgen"]
        carried[partners] = traffic.up + traffic.down
        assert exchange_bytes(setting, 3) == pytest.approx(carried[partners], rel=0.35)
    assert carried[1] < 0.8 * carried[0]
