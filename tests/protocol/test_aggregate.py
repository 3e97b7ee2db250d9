"""Rules that make one classifier of many, and what they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import ClassifierUpdate
from fedsage.protocol.server import RULES as REGISTERED
from fedsage.protocol.server import average, average_updates, krum, middle, trimmed_mean

if TYPE_CHECKING:
    from tests.fixtures import Train

RULES = ("mean", "median", "trimmed-mean", "krum")
HONEST = [
    {"w": torch.tensor([1.0, 2.0]) + 0.01 * k**2, "b": torch.tensor(3.0)} for k in range(5)
]


def aggregate(rule: str, phis: list[Parameters], weights: list[float]) -> Parameters:
    return REGISTERED.find(rule).thing(phis, weights)


def test_these_are_all_the_rules_there_are() -> None:
    ours = {name for name in REGISTERED.ours() if "." not in name}
    assert ours == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_owners_who_agree_get_what_they_agree_on(rule: str) -> None:
    same = [{"w": torch.tensor([1.5, -2.0])}] * 4
    assert torch.equal(aggregate(rule, same, [1.0, 2.0, 3.0, 4.0])["w"], same[0]["w"])


def test_the_mean_is_the_weighted_one() -> None:
    values = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = [3.0, 1.0, 4.0, 1.0, 5.0]
    slow = sum(w * row for w, row in zip(weights, values, strict=True)) / sum(weights)
    mean = average([{"w": row.float()} for row in values], weights)["w"]
    torch.testing.assert_close(mean, slow.float())


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_owners_does_not_matter(rule: str) -> None:
    there = aggregate(rule, HONEST, [1.0] * 5)
    back = aggregate(rule, HONEST[::-1], [1.0] * 5)
    assert torch.allclose(there["w"], back["w"])


@pytest.mark.parametrize("rule", RULES[1:])
def test_one_hostile_owner_of_six_is_outvoted_but_not_by_the_mean(rule: str) -> None:
    hostile = [*HONEST, {"w": torch.tensor([-90.0, 50.0]), "b": torch.tensor(-70.0)}]
    honest = average(HONEST, [1.0] * 5)
    robust = aggregate(rule, hostile, [1.0] * 5 + [1000.0])
    assert torch.allclose(robust["w"], honest["w"], atol=0.2) and robust["b"] == 3.0
    assert not torch.allclose(average(hostile, [1.0] * 6)["w"], honest["w"], atol=1.0)


def test_the_median_is_the_one_of_the_statistics_module() -> None:
    import statistics

    for count in (1, 2, 5, 6):
        values = torch.randn(count, 3, generator=torch.Generator().manual_seed(count))
        slow = [statistics.median(column) for column in values.T.tolist()]
        assert torch.allclose(middle(values), torch.tensor(slow))


def test_the_trimmed_mean_leaves_out_a_fifth_at_each_end() -> None:
    values = torch.arange(10.0) ** 2
    phis = [{"w": value} for value in values]
    assert trimmed_mean(phis, [])["w"].item() == pytest.approx(values[2:8].mean().item())
    assert trimmed_mean(phis[:2], [])["w"].item() == 0.5  # two owners: nobody to leave out


def test_krum_picks_one_of_the_crowd() -> None:
    crowd = [{"w": torch.tensor([float(k % 3), 0.0])} for k in range(6)]
    odd = [{"w": torch.tensor([40.0, 40.0])}, {"w": torch.tensor([41.0, 40.0])}]
    chosen = krum([*odd, *crowd], [])
    assert any(chosen is one for one in crowd)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES[1:])
def test_a_run_can_be_asked_for_a_rule(rule: str, train: Train) -> None:
    robust = train(classifier={"aggregate": rule})
    assert robust.record.model_sha256 != train().record.model_sha256


def test_a_weight_of_zero_takes_no_part_wherever_it_stands() -> None:
    one, two = {"w": torch.ones(2)}, {"w": torch.full((2,), 3.0)}
    for weights in ([0.0, 0.0, 1.0], [0.0, 1.0, 0.0]):
        assert average([one, two, two], weights)["w"].tolist() == [3.0, 3.0]


def test_a_rule_that_chooses_one_takes_its_moments_too() -> None:
    updates = [
        ClassifierUpdate({"w": torch.tensor([x])}, {"w.step": torch.tensor(x)}, 1.0, 0.5)
        for x in (1.0, 1.1, 1.2, 9.0)
    ]
    chosen = average_updates(krum, krum, updates)
    assert chosen.moments["w.step"] == chosen.phi["w"]
    mean = average_updates(average, average, updates)
    assert mean.moments["w.step"] == pytest.approx(3.075) and mean.weight == 4.0
