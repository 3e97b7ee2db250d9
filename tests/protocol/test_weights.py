from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import Ring, add
from fedsage.protocol.changes.weights import (
    EXPONENTS,
    LEFT,
    REST,
    frame_for,
    large_in,
    put_in,
    shapes_of,
    sizes_in,
    taken_out,
    top_directions,
    units_of,
)
from fedsage.rng import generator


def weights(seed: int, rank: int = 40) -> Parameters:
    """Two matrices, of which one is large, a vector and a number; the large one of a rank."""
    draws = np.random.default_rng(seed)
    large = draws.normal(size=(30, rank)) @ draws.normal(size=(rank, 200))
    made = {"large": large, "small": draws.normal(size=(6, 5)), "bias": draws.normal(size=7)}
    found = {name: torch.from_numpy(each).float() for name, each in made.items()}
    return found | {"one": torch.tensor(float(draws.normal()))}


def test_what_is_large_is_sent_in_directions_and_the_rest_in_a_row() -> None:
    given = weights(0)
    frame = frame_for(given, 3, Ring(8, 1), generator(0, "x"))
    parts = put_in(given, frame, Ring(8, 1), generator(0, "y"))
    assert large_in(shapes_of(given), 3) == ["large"] and large_in(shapes_of(given), 0) == []
    assert sizes_in(shapes_of(given), 3) == (
        {name: tuple(one.shape) for name, one in frame.items()},
        {name: tuple(one.shape) for name, one in parts.items()},
    )
    assert parts[LEFT + "large"].shape == (200, 3) and parts[REST].shape == (38,)
    assert {one.dtype for one in parts.values()} == {torch.int8}
    assert len(frame[EXPONENTS]) == 3 + 3


@given(st.integers(0, 50), st.sampled_from([0, 4]))
def test_weights_come_back_within_the_stated_error(seed: int, rank: int) -> None:
    """No number is off by more than its unit, and Q by more than 2^-13."""
    given = weights(seed, rank=2)
    ring = Ring(8, 1)
    frame = frame_for(given, rank, ring, generator(seed, "x"))
    found = taken_out(put_in(given, frame, ring, generator(seed, "y")), frame, shapes_of(given))
    units = units_of(frame, shapes_of(given))
    for name, weight in given.items():
        error = found[name] - weight
        if rank and name == "large":
            rounding = 200**0.5 * float(np.linalg.norm(np.ldexp(1.0, units[LEFT + name])))
            assert float(error.norm()) < rounding + 2**-10 * float(weight.norm())
        else:
            assert float(error.abs().max()) <= float(weight.abs().max()) / 63


def test_rounding_is_right_on_average() -> None:
    given = weights(1)
    ring = Ring(8, 1)
    frame = frame_for(given, 0, ring, generator(0, "x"))
    many = [
        taken_out(put_in(given, frame, ring, generator(k, "y")), frame, shapes_of(given))
        for k in range(400)
    ]
    for name, weight in given.items():
        unit = float(weight.abs().max()) / 63
        mean = torch.stack([one[name] for one in many]).mean(dim=0)
        assert float((mean - weight).abs().max()) < unit / 5


@pytest.mark.slow
@given(st.integers(2, 60), st.integers(0, 20))
def test_sums_in_any_order_are_the_same_bits(owners: int, seed: int) -> None:
    ring = Ring(16, owners)
    frame = frame_for(weights(seed), 4, Ring(8, 1), generator(seed, "x"))
    each = [put_in(weights(k), frame, ring, generator(seed, "y", k)) for k in range(owners)]
    order = np.random.default_rng(seed).permutation(owners)
    for part in each[0]:
        total = add(*[one[part] for one in each])
        assert torch.equal(total, add(*[each[k][part] for k in order]))
        wide = torch.stack([one[part] for one in each]).long().sum(dim=0)
        assert torch.equal(total.long(), wide)  # nothing wrapped


@pytest.mark.parametrize("rank", [1, 4])
def test_top_directions_are_the_largest_singular_vectors(rank: int) -> None:
    draws = np.random.default_rng(rank)
    u, _ = np.linalg.qr(draws.normal(size=(80, 10)))
    v, _ = np.linalg.qr(draws.normal(size=(12, 10)))
    matrix = torch.from_numpy(u @ np.diag(4.0 ** -np.arange(10)) @ v.T).float()
    found = top_directions(matrix, rank, generator(0, "x")).double() / 2**12
    kept = torch.linalg.norm(torch.from_numpy(v[:, :rank]).T @ found) ** 2
    assert float(kept) > 0.99 * rank


def test_zeros_have_a_frame_too() -> None:
    zeros = {name: torch.zeros_like(one) for name, one in weights(0).items()}
    ring = Ring(8, 1)
    frame = frame_for(zeros, 4, ring, generator(0, "x"))
    found = taken_out(put_in(zeros, frame, ring, generator(0, "y")), frame, shapes_of(zeros))
    assert not any(bool(one.any()) for one in found.values())
