"""Randomness as an argument: one seed a run, one named stream for every draw."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np

Stream: TypeAlias = np.random.Generator  # for code that draws, and has no other use for NumPy


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """The random stream for one purpose, e.g. ``generator(seed, "impair", owner, t)``.

    It depends on the seed and the path alone, so a run draws the same numbers serially,
    in parallel, on any engine, and after a restart.
    """
    digest = hashlib.blake2b(repr((seed, *path)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
