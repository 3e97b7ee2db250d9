from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedsage.privacy.unlike import (
    PRIME,
    TESTS,
    WORD_TESTS,
    inverses,
    locks_of,
    masks_for,
    num_tests,
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
    locks = [locks_of(sketches(rows, 30), KEY) for rows in pair_with(cosine)]
    unlike, masks = opened(*locks, 12)
    truth = masks_for(KEY, 500, TESTS, 12)
    assert least <= unlike.mean() <= most
    assert np.array_equal(masks[unlike], truth[unlike])
    assert (masks[~unlike] == truth[~unlike]).mean() < 0.01 if (~unlike).any() else True


@pytest.mark.parametrize(
    ("own", "common", "least", "most"),
    [(20, 20, 0, 0), (10, 20, 0, 0.004), (24, 12, 0.03, 0.2), (20, 4, 0.97, 1), (20, 0, 1, 1)],
)
def test_words_are_alike_if_half_of_them_are(
    own: int, common: int, least: float, most: float
) -> None:
    """Rows of 20 words and of ``own``; so many are in both, or all of the shorter row's."""
    draws = np.random.default_rng(0)
    one, other = np.zeros((2, 1000, 400), np.float32)
    for a, b in zip(one, other, strict=True):
        words = draws.permutation(400)
        a[words[:20]] = 1
        b[words[max(20 - common, 0) :][:own]] = 1
    first, second = (sketches(csr_array(rows), 0) for rows in (one, other))
    assert first.shape == (1000, WORD_TESTS)
    assert np.array_equal(first, sketches(one, 0))
    unlike = opened(locks_of(first, KEY), locks_of(second, KEY), 3)[0]
    assert least <= unlike.mean() <= most


def test_numbers_and_words_are_tested_each() -> None:
    numbers, words = np.random.default_rng(0).normal(size=(2, 50, 8))
    rows = np.concatenate([numbers, words > 0.5], axis=1).astype(np.float32)
    assert sketches(rows, 8).shape == (50, num_tests(16, 8)) == (50, TESTS + WORD_TESTS)
    assert num_tests(16, 16) == TESTS and num_tests(16, 0) == WORD_TESTS
    assert np.array_equal(sketches(rows, 8)[:, :TESTS], sketches(rows, 16))


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
