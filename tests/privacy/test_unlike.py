from __future__ import annotations

import numpy as np
import pytest

from fedsage.privacy.unlike import (
    PRIME,
    TESTS,
    inverses,
    locks_of,
    masks_for,
    opened,
    plus,
    sketches,
    times,
)

KEY, P = b"k" * 32, int(PRIME)


def pair_with(cosine: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two parties, each with that cosine to the other."""
    draws = np.random.default_rng(0)
    one, other = draws.normal(size=(2, 500, 30))
    one /= np.linalg.norm(one, axis=1, keepdims=True)
    other -= (one * other).sum(axis=1, keepdims=True) * one
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    return one, cosine * one + np.sqrt(1 - cosine**2) * other


@pytest.mark.parametrize(
    ("cosine", "least", "most"),
    [(1.0, 0, 0), (0.99, 0, 0.002), (0.96, 0, 0.03), (0.2, 0.98, 1)],
)
def test_masks_come_off_only_where_rows_differ(
    cosine: float, least: float, most: float
) -> None:
    locks = [locks_of(sketches(rows), KEY) for rows in pair_with(cosine)]
    unlike, masks = opened(*locks, 12)
    truth = masks_for(KEY, 500, 12)
    assert least <= unlike.mean() <= most
    assert np.array_equal(masks[unlike], truth[unlike])
    assert (masks[~unlike] == truth[~unlike]).mean() < 0.01 if (~unlike).any() else True


@pytest.mark.parametrize("other", [1, 2**14 - 1])
def test_what_a_receiver_sees_does_not_depend_on_how_sketches_differ(other: int) -> None:
    sketch = np.zeros((2000, TESTS), np.uint64)
    one, two = (locks_of(some, KEY) for some in (sketch, np.full_like(sketch, other)))
    seen = plus(one, PRIME - two).reshape(-1) / np.float64(P)
    counts = np.histogram(seen, bins=16, range=(0, 1))[0]
    assert np.abs(counts - counts.mean()).max() < 6 * np.sqrt(counts.mean())


def test_arithmetic_is_that_of_the_prime() -> None:
    draws = np.random.default_rng(1)
    a, b = draws.integers(1, P, size=(2, 40, TESTS), dtype=np.uint64)
    a[0], b[0] = P - 1, P - 1
    expected = [
        [int(x) * int(y) % P for x, y in zip(*rows, strict=True)]
        for rows in zip(a, b, strict=True)
    ]
    assert times(a, b).tolist() == expected
    assert (times(a, inverses(a)) == 1).all()
