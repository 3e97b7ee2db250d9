"""The learning rate falls to zero over the last rounds, for whoever trains or derives."""

from __future__ import annotations

import pytest
import torch

from fedsage.config import ClassifierConfig
from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.models.parameters import parameters_of
from fedsage.protocol.changes.follow import follower
from fedsage.protocol.messages import TRIES, Ask
from tests.small import exchange_on, owners_of, small_setup, traffic_of, trained


@pytest.mark.parametrize(
    ("cooling", "t", "share"),
    [
        (0.0, 0, 1), (0.0, 9, 1),
        (0.5, 0, 1), (0.5, 5, 1), (0.5, 6, 0.8), (0.5, 9, 0.2),
        (1.0, 0, 1), (1.0, 1, 0.9), (1.0, 9, 0.1),
        (0.05, 9, 1),
    ],
)  # fmt: skip
def test_it_falls_in_equal_steps_and_never_to_zero(
    cooling: float, t: int, share: float
) -> None:
    how = ClassifierConfig(rounds_c=10, eta=0.02, cooling=cooling)
    assert how.at(t).eta == pytest.approx(0.02 * share)
    assert how.at(t).model_copy(update={"eta": 0.02}) == how


def test_after_the_last_round_it_is_what_it_was() -> None:
    how = ClassifierConfig(rounds_c=10, cooling=0.5)
    assert how.at(10) is how and how.at(11) is how


@pytest.mark.parametrize("kernel", ["torch", "fused"])
def test_an_owner_takes_steps_of_the_rounds_length(
    graph: Graph, owners: Partition, kernel: str
) -> None:
    """A plain gradient step moves every weight in proportion to the learning rate."""

    def moved(cooling: float, t: int) -> torch.Tensor:
        how = {"optimizer": "sgd", "eta": 0.1, "cooling": cooling, "rounds_c": 10}
        how |= {"batch_size": 64, "small_epochs": 1, "moments": "own", "weight_decay": 0.0}
        setup = small_setup(graph, owners, classifier=how, run={"kernel": kernel})
        owner = owners_of(setup)[0]
        before = parameters_of(owner.model)
        owner.local_update_c(Ask(t))
        after = parameters_of(owner.model)
        return torch.cat([(after[name] - before[name]).flatten() for name in before])

    torch.testing.assert_close(moved(0.5, 9), 0.2 * moved(0.0, 9), rtol=1e-3, atol=1e-7)
    assert torch.equal(moved(0.5, 5), moved(0.0, 5))


def test_another_try_of_a_round_has_the_rate_of_that_round() -> None:
    assert Ask(7).round == Ask(7 + TRIES).round == Ask(7 + 3 * TRIES).round == 7


def test_what_momentum_explains_is_derived_with_the_rate_of_the_round(
    graph: Graph, owners: Partition
) -> None:
    """If the steps of the next round are half as long, momentum goes half as far."""
    way = {"how": "low-rank", "rank": 2}

    def expected(cooling: float) -> dict[str, torch.Tensor]:
        how = {"rounds_c": 4, "cooling": cooling, "selection": "last"}
        setup = small_setup(graph, owners, classifier=how, traffic=way)
        engine = InProcessEngine(owners_of(setup))
        trained(setup, exchange_on(setup, engine), rounds_c=3)
        common = follower(engine.data_owners[0]).common
        assert common is not None and common.t == 3
        return common.expected

    whole, half = expected(0.25), expected(0.5)
    for name, way_of in whole.items():
        torch.testing.assert_close(half[name], way_of / 2, rtol=1e-4, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["full", "low-rank"])
def test_a_cooled_run_ends_closer_to_its_last_rounds(
    graph: Graph, owners: Partition, how: str
) -> None:
    """The last round moves the classifier less than it would with steps of full length."""

    def last_move(cooling: float) -> float:
        chosen = {"rounds_c": 6, "cooling": cooling, "selection": "last"}
        setup = small_setup(graph, owners, classifier=chosen, traffic=traffic_of(how))
        before = trained(setup, exchange_on(setup), rounds_c=5).classifier.phi
        after = trained(setup, exchange_on(setup), rounds_c=6).classifier.phi
        return float(sum((after[name] - before[name]).square().sum() for name in before))

    assert last_move(1.0) < 0.3 * last_move(0.0)
