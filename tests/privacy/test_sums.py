from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsage.privacy.sums import Ring, add, decode, encode, exponents_for, ring_for
from fedsage.rng import generator

MANY = st.integers(1, 100)


def encoded(owners: int, bits: int, exponent: int, seed: int) -> tuple[list, torch.Tensor]:
    """What owners send, and the true sum of what they had (some of it too large)."""
    ring, draws = Ring(bits, owners), np.random.default_rng(seed)
    room = ring.most * 2.0**exponent
    values = [torch.from_numpy(draws.uniform(-room, room, (5, 3))) for _ in range(owners)]
    whole = [
        encode(one, np.asarray([exponent]), ring, generator(seed, "whole", i))
        for i, one in enumerate(values)
    ]
    return whole, torch.stack(values).sum(dim=0)


@pytest.mark.slow
@given(MANY, st.sampled_from([8, 16, 32]), st.integers(-40, 10), st.integers(0, 99))
def test_any_order_and_any_groups_give_the_same_bits(owners, bits, exponent, seed):
    bits = max(bits, ring_for(owners, bits).bits)
    whole, _ = encoded(owners, bits, exponent, seed)
    order = np.random.default_rng(seed).permutation(owners)
    cut = owners // 2 or 1
    groups = [[whole[i] for i in order[:cut]], [whole[i] for i in order[cut:]]]
    grouped = add(*[add(*group) for group in groups if group])
    assert torch.equal(add(*whole), grouped)
    masks = [torch.randint(-99, 99, (5, 3), dtype=whole[0].dtype) for _ in whole]
    masked = add(*[add(one, mask) for one, mask in zip(whole, masks, strict=True)])
    assert torch.equal(add(masked, -add(*masks)), grouped)  # it wraps, and wraps back


@pytest.mark.slow
@given(MANY, st.sampled_from([8, 16, 32]), st.integers(-40, 10), st.integers(0, 99))
def test_a_decoded_sum_is_within_a_unit_of_each_owner(owners, bits, exponent, seed):
    ring = ring_for(owners, bits)
    whole, true = encoded(owners, ring.bits, exponent, seed)
    found = decode(add(*whole), np.asarray([exponent]))
    assert (found - true).abs().max() <= owners * 2.0**exponent
    assert add(*whole).abs().max() <= 2 ** (ring.bits - 1) - 1  # nothing wrapped
    exact = torch.stack([one.double() for one in whole]).sum(dim=0) * 2.0**exponent
    assert torch.equal(found, exact)


def test_rounding_has_the_right_mean_and_clipping_stops_at_an_owners_share() -> None:
    ring = Ring(8, 10)
    assert ring.most == 12
    values = torch.full((100_000,), 0.3)
    found = encode(values, np.asarray([0]), ring, generator(0, "mean"))
    assert abs(float(found.double().mean()) - 0.3) < 0.01
    large = encode(torch.tensor([1e9, -1e9]), np.asarray([0]), ring, generator(0, "clip"))
    assert large.tolist() == [12, -12]


@pytest.mark.parametrize(
    ("owners", "bits"), [(1, 8), (42, 8), (43, 16), (100, 16), (20_000, 32)]
)
def test_a_ring_leaves_room_for_everybody(owners: int, bits: int) -> None:
    assert ring_for(owners, 8) == Ring(bits, owners)


@given(st.floats(1e-20, 1e20), MANY)
def test_units_are_the_smallest_powers_of_two_that_hold_the_largest(largest, owners):
    ring = ring_for(owners, 8)
    exponent = exponents_for(np.asarray([largest]), ring)
    assert largest <= ring.most * 2.0**exponent
    assert largest >= ring.most * 2.0 ** (exponent - 1) * (1 - 1e-12)
    assert exponents_for(np.asarray([0.0]), ring, exponent) == max(exponent - 4, -100)
