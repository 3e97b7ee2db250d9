"""How far one node can move what leaves: by brute force, against any weights whatever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsage.privacy.accountant import Charge, honest, spent
from fedsage.privacy.noise import Bits
from fedsage.privacy.records import clipped, noisy, summed_gradient, terms_for, with_bias

A, B = 11, 8
LONGEST = 2.0 ** (A + B)


def some_rows(seed: int, n: int = 12, k: int = 6) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    rows = draws.standard_normal((n, k)) * 10.0 ** draws.integers(-3, 4, (n, 1))
    return clipped(with_bias(rows) * 2**A, 2**A), draws.integers(0, 3, n)


def hostile(kind: str, k: int) -> np.ndarray:
    draws = np.random.default_rng(5)
    weights = draws.standard_normal((k, 3))
    return {"usual": weights, "huge": 1e30 * weights, "zero": 0 * weights,
            "not a number": weights * np.nan}[kind]  # fmt: skip


@pytest.mark.parametrize("kind", ["usual", "huge", "zero", "not a number"])
def test_no_node_moves_the_sum_further_than_it_may(kind):
    rows, y = some_rows(1)
    weights = hostile(kind, rows.shape[1])
    with np.errstate(all="ignore"):
        whole = summed_gradient(rows, y, weights, A, B)
        for v in range(len(rows)):
            without = np.arange(len(rows)) != v
            less = summed_gradient(rows[without], y[without], weights, A, B)
            assert np.linalg.norm((whole - less).astype(float)) <= LONGEST
            other, label = rows.copy(), y.copy()
            other[v], label[v] = some_rows(9)[0][v], (y[v] + 1) % 3
            changed = summed_gradient(other, label, weights, A, B)
            assert np.linalg.norm((whole - changed).astype(float)) <= 2 * LONGEST


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(0, 14))
def test_rows_are_never_longer_than_they_may_be(seed, width, bits):
    draws = np.random.default_rng(seed)
    values = draws.standard_normal((20, width)) * 10.0 ** draws.integers(-9, 9, (20, 1))
    found = clipped(values, 2**bits).astype(object)
    assert all(sum(int(one) ** 2 for one in row) <= 4**bits for row in found)


def test_rows_that_fit_are_kept_to_half_a_unit():
    values = np.random.default_rng(0).uniform(-9, 9, (50, 4))
    assert np.abs(clipped(values, 2**10) - values).max() <= 0.5


@pytest.mark.parametrize("owners", [2, 3, 10])
def test_noise_of_the_honest_owners_alone_is_enough(owners):
    terms = terms_for(2.0, 1e-5, 1.0, 5, owners, 3)
    reach, enough = 2**19, honest(owners)
    variance = terms.variance(terms.noise, reach)
    shares = [noisy(np.zeros(30_000, np.int64), variance, Bits(b"k", i)) for i in range(enough)]
    measured = np.sum(shares, axis=0).std() / reach
    assert measured == pytest.approx(terms.noise, rel=0.02)
    assert spent(terms.charges, 1e-5) <= 2.0
    assert spent([Charge(0.97 * terms.noise, times=terms.rounds.times)], 1e-5) > 1.9


def test_sums_of_many_nodes_leave_room_in_the_ring():
    terms = terms_for(1.0, 1e-5, 1.0, 40, 10, 1500)
    for count in (10, 10**4, 10**6, 10**9):
        a, b = terms.bits(count)
        assert a + b >= 8 and 10 * terms.noise * 2 ** (a + b) < 2**31
        assert a + b == 8 or count * 2 ** (a + b) / 4 <= 2**31
