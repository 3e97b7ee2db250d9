"""A proof that a sum is correct: owners can check it, and a server cannot forge it.

Owners share a secret. It gives a weight to every number that is added up, and each owner adds
the weighted sum of its own numbers, modulo a prime. Someone who alters a sum without knowing
the weights matches the weighted sum with a probability of 2⁻⁴⁹.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsage.privacy.keys import derived
from fedsage.privacy.sums import stream

PRIME = 2**49 - 81  # proofs of 10,000 owners add up to less than 2⁶³
BITS = 49  # of a weight
LIMB = 20  # bits of a weight that are multiplied at a time
HALF = 16  # bits of a number


def proof_of(secret: bytes, about: str, numbers: np.ndarray, more: Sequence[int] = ()) -> int:
    """The weighted sum of integers, modulo a prime.

    ``numbers`` have up to 32 bits; ``more`` are few, of any size.
    """
    drawn = stream(derived(secret, about), 8 * (len(numbers) + len(more)))
    weights = np.frombuffer(drawn, np.uint64) >> np.uint64(64 - BITS)
    total = sum(
        int(weight) * n for weight, n in zip(weights[len(numbers) :], more, strict=True)
    )
    wide = numbers.astype(np.int64)
    low, high = wide & (2**HALF - 1), wide >> HALF
    for place in range(0, BITS, LIMB):
        limb = weights[: len(wide)] >> np.uint64(place) & np.uint64(2**LIMB - 1)
        found = int(limb.astype(np.int64) @ low) + (int(limb.astype(np.int64) @ high) << HALF)
        total += found << place
    return total % PRIME
