from __future__ import annotations

import numpy as np
import pytest

from fedsage.audit.attacks.empirical_epsilon import best_threshold, bound


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_bound_is_below_the_true_epsilon_and_not_far(epsilon):
    """Randomized response tells the truth with odds of e^ε: its ε is known exactly."""
    draws, count = np.random.default_rng(0), 20_000
    chance = np.exp(epsilon) / (1 + np.exp(epsilon))
    caught, wrong = draws.binomial(count, chance), draws.binomial(count, 1 - chance)
    assert 0.85 * epsilon < bound(caught, wrong, count, 0.0) <= epsilon


def test_without_any_difference_nothing_is_shown():
    draws = np.random.default_rng(1).standard_normal((2, 4000))
    at = best_threshold(draws[0], draws[1], 1e-5)
    assert bound(int((draws[1] > at).sum()), int((draws[0] > at).sum()), 4000, 1e-5) < 0.15
