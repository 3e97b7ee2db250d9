"""Which hidden values dropout keeps: depends only on a key, the same in every kernel.

Values are numbered in row-major order. Eight of them share one word of the SplitMix64
sequence that starts at the key, one byte each; a value is kept if its byte is at least the
threshold. So dropout shares come in steps of 1/256.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, UInt64

from fedsage.shapes import Array

KEYS = 2.0**53  # as many as a random float can distinguish
KEY_STRIDE = 1 << 8  # between draws, so that layers can add their number


def dropout_key(generator: np.random.Generator) -> int:
    """The key for one batch; layer k uses ``key + k``."""
    return int(generator.random() * KEYS) * KEY_STRIDE


def threshold(share: float) -> int:
    """The smallest byte for which a value is kept."""
    return round(share * 256)


def kept_scale(share: float) -> float:
    """The factor for kept values that preserves the mean."""
    return 256 / (256 - threshold(share))


def kept(count: int, share: float, key: int) -> Bool[Array, " count"]:
    """For each of ``count`` values, whether it is kept."""
    words = split_mix(np.uint64(key % 2**64), -(-count // 8))
    return words.astype("<u8").view(np.uint8)[:count] >= threshold(share)


def split_mix(key: np.uint64, count: int) -> UInt64[Array, " words"]:
    """``count`` words of the SplitMix64 sequence (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        z = key * np.uint64(0xD1342543DE82EF95) + np.arange(1, count + 1, dtype=np.uint64) * (
            np.uint64(0x9E3779B97F4A7C15)
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
