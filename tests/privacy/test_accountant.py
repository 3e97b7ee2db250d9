from __future__ import annotations

import math

import pytest
from scipy.stats import norm

from fedsage.errors import PrivacyError
from fedsage.privacy.accountant import Charge, gap_of, honest, noise_for, spent


def exact_delta(noise: float, epsilon: float) -> float:
    """δ of one Gaussian sum: Balle and Wang, 2018, Theorem 8 (https://arxiv.org/abs/1805.06530)."""
    a = 1 / (2 * noise)
    return norm.cdf(a - epsilon * noise) - math.exp(epsilon) * norm.cdf(-a - epsilon * noise)


def test_published_values():
    """Abadi et al., 2016 (https://arxiv.org/abs/1607.00133), Sec. 3.2: q = .01, σ = 4, 10,000
    steps, δ = 1e-5 cost at most 1.26; better conversions since then lower it, to above 1."""
    assert 1.0 < spent([Charge(4, 0.01, 10_000)], 1e-5) < 1.26


@pytest.mark.parametrize("noise", [0.7, 1.0, 3.0, 25.0])
def test_one_gaussian_costs_no_less_than_its_exact_value_and_not_much_more(noise):
    epsilon = spent([Charge(noise)], 1e-5)
    assert exact_delta(noise, epsilon) <= 1e-5  # valid
    assert exact_delta(noise, 0.8 * epsilon) > 1e-5  # and not wasteful


def test_many_sums_cost_as_much_as_one_with_less_noise():
    assert spent([Charge(6, times=36)], 1e-5) == pytest.approx(spent([Charge(1)], 1e-5))
    assert spent([Charge(6, times=20), Charge(6, times=16)], 1e-5) == pytest.approx(
        spent([Charge(6, times=36)], 1e-5)
    )


def test_sampling_fewer_nodes_costs_less_and_nothing_costs_nothing():
    costs = [spent([Charge(2, rate, 30)], 1e-5) for rate in (0.01, 0.1, 0.5, 0.999, 1.0)]
    assert costs == sorted(costs)
    assert spent([], 1e-5) == 0 == spent([Charge(1, times=0)], 1e-5)


@pytest.mark.slow
def test_the_noise_for_an_epsilon_costs_that_epsilon():
    def charges(noise):
        return [Charge(noise, 0.3, 40), Charge(3 * noise)]

    for epsilon in (0.5, 4.0):
        noise = noise_for(epsilon, 1e-5, charges)
        assert 0.99 * epsilon < spent(charges(noise), 1e-5) <= epsilon
    with pytest.raises(PrivacyError, match="Choose a larger"):
        noise_for(1e-9, 1e-9, charges)


def test_a_gap_between_the_noise_of_many_and_of_one_is_charged():
    plain, wide = Charge(5, times=10), Charge(5, times=10, gap=0.01)
    assert spent([wide], 1e-5) > spent([plain], 1e-5) + 0.2
    assert gap_of(1, 0.5, 99) == 0
    assert gap_of(7, 0.5, 10) > 1e-3 > gap_of(7, 4.0, 10_000) > 0


@pytest.mark.parametrize(
    ("owners", "enough"), [(1, 1), (2, 1), (3, 2), (4, 3), (6, 4), (10, 7)]
)
def test_a_third_of_the_owners_may_vanish_and_each_knows_its_own_noise(owners, enough):
    assert honest(owners) == enough


@pytest.mark.parametrize("wrong", [{"noise": 0}, {"rate": 0}, {"rate": 1.5}, {"gap": -1.0}])
def test_what_is_no_charge_is_refused(wrong):
    with pytest.raises(PrivacyError):
        Charge(**({"noise": 1.0} | wrong))
