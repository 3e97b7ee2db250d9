r"""Discrete Gaussian noise on whole numbers, exactly, from secret bits.

.. math::
    P(x) \propto \exp(-x^2 / 2\sigma^2), \quad x \in \mathbb{Z}

Algorithms 1 to 3 of Canonne, Kamath and Steinke, 2020 (https://arxiv.org/abs/2004.00010), for
many numbers at a time. Every choice "yes with probability exp(−γ)" compares a uniform number
with exp(−γ): its first 64 bits in floating point if they decide, and otherwise more bits and
sixty digits. So no rounding changes any probability.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from jaxtyping import Bool, Float, Int

from fedsage.privacy.keys import derived
from fedsage.shapes import Array

MARGIN = 2.0**-36  # beyond this distance, rounding cannot have changed a comparison
DIGITS, MORE = 60, 128  # of an undecided comparison: decimal digits, further bits
LARGEST = 2**60  # σ², so that numbers fit into 64 bits and floats hold them exactly


class Bits:
    """A stream of bits that nobody without the secret can tell from random ones."""

    def __init__(self, secret: bytes, *about: str | int) -> None:
        key = derived(secret, repr(about))
        self._stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> np.ndarray:
        """Uniform integers of 64 bits."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), np.uint64)

    def below(self, bound: int, count: int) -> Int[Array, " count"]:
        """Uniform integers from 0 to ``bound`` − 1; words of the uneven rest are redrawn."""
        words = self.words(count).copy()
        most = np.uint64(2**64 - 1 - 2**64 % bound)
        while (bad := np.flatnonzero(words > most)).size:
            words[bad] = self.words(len(bad))
        return (words % np.uint64(bound)).astype(np.int64)

    def chosen(self, count: int, rate: float) -> Bool[Array, " count"]:
        """Each of ``count`` by itself, with probability ``rate`` rounded down to 2⁻³²."""
        if rate >= 1:
            return np.ones(count, bool)
        return (self.words(count) >> np.uint64(32)) < np.uint64(int(rate * 2**32))

    def yes(
        self, top: Int[Array, " n"], bottom: int, shift: int = 0, power: int = 1
    ) -> Bool[Array, " n"]:
        r"""Yes with probability :math:`\exp(-(top - shift / bottom)^2 / 2 shift)`, or ….

        For ``power`` 1 it is :math:`\exp(-top / bottom)`.
        """
        words = self.words(len(top))
        if power == 1:
            gamma: Float[Array, " n"] = top / bottom
        else:
            gamma = (top - shift / bottom) ** 2 / (2 * shift)
        found = words.astype(np.float64) * 2.0**-64 - np.exp(-gamma)
        answer = found < 0
        for i in np.flatnonzero(np.abs(found) < MARGIN):
            exact = Fraction(int(top[i]), bottom)
            if power == 2:
                exact = (int(top[i]) - Fraction(shift, bottom)) ** 2 / (2 * shift)
            answer[i] = self.decided(int(words[i]), exact)
        return np.asarray(answer)

    def decided(self, word: int, gamma: Fraction) -> bool:
        """Whether the uniform number that begins with ``word`` is below exp(−γ)."""
        more = int.from_bytes(self._stream.update(bytes(MORE // 8)), "big")
        with localcontext() as context:
            context.prec = DIGITS
            uniform = Decimal((word << MORE) + more) / Decimal(2 ** (64 + MORE))
            return uniform < (-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp()


def discrete_laplace(bits: Bits, scale: int, count: int) -> Int[Array, " count"]:
    r"""Algorithm 2: :math:`P(x) \propto \exp(-|x| / t)` for a whole t."""
    parts: list[np.ndarray] = []
    while (missing := count - sum(map(len, parts))) > 0:
        tries = int(missing * 1.7) + 8
        u = bits.below(scale, tries)
        u = u[bits.yes(u, scale)]
        v = geometric(bits, len(u))
        size, minus = u + scale * v, (bits.words(len(u)) & np.uint64(1)).astype(bool)
        kept = ~(minus & (size == 0))
        parts.append(np.where(minus, -size, size)[kept])
    return np.concatenate([np.empty(0, np.int64), *parts])[:count]


def geometric(bits: Bits, count: int) -> Int[Array, " count"]:
    """How often "yes with probability 1/e" is answered yes before the first no."""
    found, still = np.zeros(count, np.int64), np.arange(count)
    while len(still):
        still = still[bits.yes(np.ones(len(still), np.int64), 1)]
        found[still] += 1
    return found


def discrete_gaussian(bits: Bits, variance: int, count: int) -> Int[Array, " count"]:
    """Algorithm 3: ``count`` numbers with σ² = ``variance``, a whole number."""
    assert 0 < variance <= LARGEST
    scale, parts = int(variance**0.5) + 1, list[np.ndarray]()
    while (missing := count - sum(map(len, parts))) > 0:
        tries = discrete_laplace(bits, scale, int(missing * 1.4) + 8)
        parts.append(tries[bits.yes(np.abs(tries), scale, variance, 2)])
    return np.concatenate([np.empty(0, np.int64), *parts])[:count]
