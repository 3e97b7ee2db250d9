"""A mask that comes off only if two parties' rows are unlike each other.

Two parties j and k add up their rows for a receiver. If the rows are nearly equal, the sum is
twice that row, and neither j nor k can tell. So j puts one more mask on its part, and both give
the receiver what takes it off only if their rows differ.

Each row becomes short sketches, some of which rows have in common that are alike. Those of
numbers are the signs of products with random directions: nearly equal rows have one in common.
Those of words are the first words in random orders (MinHash): rows have one in common if half
of their words are, among all words of both. For a test with sketches a and b, j and k share
random numbers r ≠ 0, s, w and w' modulo a prime. They send r·a + w and r·s·a + w', or the same
with b. The differences are r·(a − b) and r·s·(a − b), whose ratio is s. If a = b both are zero
and s stays hidden; if not, the first is a random number other than zero. So a receiver learns
s, or that a = b, and nothing else about the sketches. The mask is made of the s of all tests.

This is conditional disclosure of secrets for the predicate a ≠ b (Gertner, Ishai, Kushilevitz
and Malkin, 1998), with keys that j and k have in common. Whoever has such a key and the numbers
of the other one can compute the other one's sketches: a receiver who colludes with j or k. The
sum of two rows is open to them anyway; of a larger one they learn more than they should.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np
from jaxtyping import Bool, Int, UInt64
from scipy.sparse import csr_array, issparse

from fedsage.privacy.sums import stream
from fedsage.rng import generator, scrambled
from fedsage.shapes import Array, NodeFeatures, SparseMatrix

PRIME = np.uint64(2**61 - 1)
TESTS, SIGNS = 16, 14  # rows with cosine .96 have a sketch in common with probability .99
WORD_TESTS, WORDS = 128, 4  # those with half of their words, with probability .9997
RANKS = 15  # bits of a word's place in an order
Field = UInt64[Array, "rows tests"]
Locks = UInt64[Array, "rows 2 tests"]


def num_tests(width: int, words: int) -> int:
    """How many sketches a row has that has words from that column on."""
    return (TESTS if words else 0) + (WORD_TESTS if words < width else 0)


def sketches(rows: NodeFeatures, words: int) -> Field:
    """The sketches of each row; directions and orders are the same for everybody."""
    found = [signs_of(rows)] if words else []
    if words < rows.shape[1]:
        found.append(first_words(csr_array(rows[:, words:])))
    return np.concatenate(found, axis=1)


def signs_of(rows: NodeFeatures) -> Field:
    """On which side of some planes a row is, ``SIGNS`` planes at a time."""
    draws = generator(0, "directions of sketches")
    found = np.zeros((rows.shape[0], TESTS), np.uint64)
    for _ in range(SIGNS):
        signs = rows @ draws.normal(size=(rows.shape[1], TESTS)).astype(np.float32)
        signs = signs.toarray() if issparse(signs) else signs
        found = 2 * found + (signs > 0).astype(np.uint64)
    return found


def first_words(rows: SparseMatrix) -> Field:
    """Which of its words come first, in ``WORDS`` orders at a time."""
    shape = WORDS, WORD_TESTS
    orders = generator(0, "orders of words").integers(2**63, size=shape, dtype=np.uint64)
    word, last = scrambled(rows.indices), np.uint64(2**RANKS - 1)
    found = np.zeros((rows.shape[0], WORD_TESTS), np.uint64)
    for some in orders:
        for test, order in enumerate(some):
            rank = ((2 * order + 1) * word) >> np.uint64(64 - RANKS)
            first = np.minimum.reduceat(np.append(rank, last), rows.indptr[:-1])
            found[:, test] = (found[:, test] << np.uint64(RANKS)) + first
    found[np.diff(rows.indptr) == 0] = 0  # no words are like no words
    return found


def locks_of(sketch: Field, key: bytes) -> Locks:
    """What one of two parties with a common key sends to the receiver."""
    r, s, first, second = numbers(key, *sketch.shape)
    return np.stack(
        [plus(times(r, sketch), first), plus(times(times(r, s), sketch), second)], 1
    )


def masks_for(key: bytes, rows: int, tests: int, width: int) -> Int[Array, "rows width"]:
    """The masks of that party which puts them on."""
    return masks_from(numbers(key, rows, tests)[1], width)


def opened(
    one: Locks, other: Locks, width: int
) -> tuple[Bool[Array, " rows"], Int[Array, "rows width"]]:
    """Which masks the receiver can take off, and those."""
    difference = plus(one, PRIME - other)
    unlike = (difference[:, 0] != 0).all(axis=1)
    first = np.where(difference[:, 0] == 0, np.uint64(1), difference[:, 0])
    return unlike, masks_from(times(inverses(first), difference[:, 1]), width)


def numbers(key: bytes, rows: int, tests: int) -> tuple[Field, Field, Field, Field]:
    """r, s, w and w' of every row and test, from a key; r is not zero."""
    drawn = np.frombuffer(stream(key, 32 * rows * tests), "<u8").reshape(4, rows, tests)
    r, s, first, second = drawn % PRIME
    return np.maximum(r, np.uint64(1)), s, first, second


def masks_from(secrets: Field, width: int) -> Int[Array, "rows width"]:
    """A mask for each row, from the secrets of all its tests."""
    drawn = [stream(sha256(row.tobytes()).digest(), 2 * width) for row in secrets]
    return np.frombuffer(b"".join(drawn), "<i2").reshape(len(drawn), width)


def plus(a: Array, b: Array) -> Array:
    """The sum modulo the prime, of numbers up to it."""
    total = a + b
    return np.where(total >= PRIME, total - PRIME, total)


def times(a: Array, b: Array) -> Array:
    """The product modulo the prime 2^61 − 1, by halves: 2^61 is 1 there."""
    half, low, quarter = np.uint64(31), np.uint64(2**31 - 1), np.uint64(30)
    top, rest = (a >> half, b >> half), (a & low, b & low)
    middle = top[0] * rest[1] + rest[0] * top[1]
    total = (
        2 * (top[0] * top[1])
        + (middle >> quarter)
        + ((middle & np.uint64(2**30 - 1)) << half)
        + rest[0] * rest[1]
    )
    total = (total & PRIME) + (total >> np.uint64(61))
    return np.where(total >= PRIME, total - PRIME, total)


def inverses(a: Field) -> Field:
    """1 / a modulo the prime, by one power for each row: that of the product of its numbers."""
    before = [np.ones(len(a), np.uint64)]
    for column in a.T:
        before.append(times(before[-1], column))
    left, found = power(before.pop(), int(PRIME) - 2), np.empty_like(a)
    for test in reversed(range(a.shape[1])):
        found[:, test] = times(left, before[test])
        left = times(left, a[:, test])
    return found


def power(base: Array, exponent: int) -> Array:
    """Raised to that power, modulo the prime."""
    found = np.ones_like(base)
    for bit in f"{exponent:b}":
        found = times(found, found)
        found = times(found, base) if bit == "1" else found
    return found
