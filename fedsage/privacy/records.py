r"""A node as one record of whole numbers, and the noisy sum of all records' gradients.

The gradient of softmax regression for one node is the outer product of its features x and its
residual r. Both become whole numbers of limited length, so their product is never longer than

.. math::
    \Delta = 2^a 2^b, \quad \lVert x \rVert \le 2^a, \quad \lVert r \rVert \le 2^b

in exact arithmetic. That is how far one node can move the sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from fedsage.privacy.accountant import Charge, gap_of, honest, noise_for
from fedsage.privacy.noise import Bits, discrete_gaussian
from fedsage.shapes import Array

COUNT = 3.0  # times as much noise on the number of nodes as in a round
PART = 256  # units of one node in that number, so that its noise is fine enough
CLIP = 0.3  # longest residual, of √2 at most
BIAS = 0.3  # the constant in every row of features
SHARPNESS = 10.0  # of the scores: they start from rows of length one
BLOCK = 4096  # rows at a time
FEWEST, MOST = 8, 19  # bits of Δ


@dataclass(frozen=True, slots=True)
class Terms:
    """How much noise a run has, and what it costs: known to all before it starts."""

    noise: float  # of a round's sum, in units of Δ, if only honest owners' noise counts
    owners: int
    rounds: Charge  # all of them
    count: Charge

    @property
    def charges(self) -> Sequence[Charge]:
        """Everything that leaves."""
        return self.rounds, self.count

    def variance(self, noise: float, reach: int) -> int:
        """σ² of one owner's share, for a sum that one node moves by ``reach``."""
        return math.ceil((noise * reach) ** 2 / honest(self.owners))

    def bits(self, count: int) -> tuple[int, int]:
        """The bits a and b: as many as the noisy sum over so many nodes has room for."""
        room = 33 - math.ceil(math.log2(max(count, 2)))
        loud = 27 - math.ceil(math.log2(max(self.noise, 1)))
        total = min(max(min(room, loud), FEWEST), MOST)
        return (total + 3) // 2, total - (total + 3) // 2


@lru_cache(maxsize=16)
def terms_for(
    epsilon: float, delta: float, rate: float, rounds: int, owners: int, coordinates: int
) -> Terms:
    """The noise with which a number of nodes and so many rounds cost (ε, δ)."""

    def charges(noise: float) -> tuple[Charge, Charge]:
        share = noise**2 / honest(owners)
        gaps = [
            gap_of(owners, max(share * (size * reach) ** 2, 0.5), number)
            for size, reach, number in ((1.0, 2**FEWEST, coordinates), (COUNT, PART, 1))
        ]
        return (
            Charge(noise, rate, rounds, gaps[0]),
            Charge(COUNT * noise, gap=gaps[1]),
        )

    noise = noise_for(epsilon, delta, charges)
    return Terms(noise, owners, *charges(noise))


def clipped(values: Float[Array, "n k"], longest: int) -> Int[Array, "n k"]:
    """Rows of whole numbers, none longer than ``longest``; what is no number becomes zero.

    Rounded to the nearest, or toward zero where that would be too long.
    """
    values = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    values *= np.minimum(1.0, longest / np.maximum(length, 1e-300))
    whole = np.rint(values)
    beyond = np.square(whole).sum(axis=1) > longest**2
    whole[beyond] = np.trunc(values[beyond] * (1 - 1e-9))
    assert (np.square(whole).sum(axis=1) <= longest**2).all()  # exact: all below 2^53
    return whole.astype(np.int32)


def with_bias(rows: Float[Array, "n k"]) -> Float[Array, "n k+1"]:
    """Rows of length one at most, with a constant; still of length one at most."""
    length = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    scaled = rows / length * math.sqrt(1 - BIAS**2)
    return np.hstack([scaled, np.full((len(rows), 1), BIAS)])


def summed_gradient(
    rows: Int[Array, "n k"], y: Int[Array, " n"], weights: Float[Array, "k d_y"], a: int, b: int
) -> Int[Array, "k d_y"]:
    """The exact sum of all records' gradients, each of length 2^(a + b) at most."""
    total = np.zeros(weights.shape)
    for start in range(0, len(rows), BLOCK):
        x = rows[start : start + BLOCK].astype(np.float64)
        residuals = residuals_of(x / 2**a @ weights, y[start : start + BLOCK])
        total += x.T @ clipped(residuals * (2**b / CLIP), 2**b)
    return total.astype(np.int64)


def residuals_of(scores: Float[Array, "n d_y"], y: Int[Array, " n"]) -> Float[Array, "n d_y"]:
    """The label minus Softmax of the scores."""
    scores = SHARPNESS * scores
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    found = -shares / shares.sum(axis=1, keepdims=True)
    found[np.arange(len(y)), y] += 1
    return found


def noisy(total: Int[Array, "*_"], variance: int, bits: Bits) -> Int[Array, "*_"]:
    """The sum with an owner's share of the noise."""
    return total + discrete_gaussian(bits, variance, total.size).reshape(total.shape)
