"""Rules that make one classifier of many, and what they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from fedsage.protocol.aggregate import aggregate, average, chosen_by_krum, median, trimmed_mean

if TYPE_CHECKING:
    from tests.conftest import Train

RULES = ("mean", "median", "trimmed-mean", "krum")
HONEST = [
    {"w": torch.tensor([1.0, 2.0]) + 0.01 * k**2, "b": torch.tensor(3.0)} for k in range(5)
]


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
        assert torch.allclose(median(values), torch.tensor(slow))


def test_the_trimmed_mean_leaves_out_a_fifth_at_each_end() -> None:
    values = torch.arange(10.0)[:, None] ** 2
    assert trimmed_mean(values).item() == pytest.approx(values[2:8].mean().item())
    assert trimmed_mean(values[:2]).item() == 0.5  # two owners: nobody to leave out


def test_krum_picks_one_of_the_crowd() -> None:
    crowd = [{"w": torch.tensor([float(k % 3), 0.0])} for k in range(6)]
    odd = [{"w": torch.tensor([40.0, 40.0])}, {"w": torch.tensor([41.0, 40.0])}]
    assert chosen_by_krum([*odd, *crowd]) >= 2


@pytest.mark.parametrize("rule", RULES[1:])
def test_a_run_can_be_asked_for_a_rule(rule: str, train: Train) -> None:
    robust = train(classifier={"aggregate": rule})
    assert robust.record.model_sha256 != train().record.model_sha256


def test_a_weight_of_zero_takes_no_part_wherever_it_stands() -> None:
    one, two = {"w": torch.ones(2)}, {"w": torch.full((2,), 3.0)}
    for weights in ([0.0, 0.0, 1.0], [0.0, 1.0, 0.0]):
        assert average([one, two, two], weights)["w"].tolist() == [3.0, 3.0]
