"""Randomness as an argument: one seed for each run, one named stream for every draw."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Stream: TypeAlias = np.random.Generator  # for code that draws and otherwise needs no NumPy
GLOBAL_STREAM = Lock()  # torch has one stream for all threads


def generator(seed: int, *path: str | int) -> Stream:
    """The random stream for one purpose, e.g. ``generator(seed, "impair", owner, t)``.

    It depends only on the seed and the path, so a run draws the same numbers serially,
    in parallel, on any engine, and after a restart.
    """
    return np.random.Generator(np.random.PCG64(number(seed, *path, size=16)))


def uniform(seed: int, *path: str | int) -> float:
    """One draw from 0 to 1, quicker than a stream of its own."""
    return number(seed, *path, size=8) / 2**64


def number(seed: int, *path: str | int, size: int) -> int:
    """A number of ``size`` bytes that depends only on the seed and the path."""
    digest = hashlib.blake2b(repr((seed, *path)).encode(), digest_size=size).digest()
    return int.from_bytes(digest, "big")


def scrambled(numbers: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Numbers that look drawn, the same for the same ones: the last step of SplitMix64."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def with_secret(seed: int, secret: str) -> int:
    """The seed for draws that nobody else may repeat; without a secret, the seed itself."""
    if not secret:
        return seed
    return int.from_bytes(hashlib.blake2b(repr((seed, secret)).encode()).digest(), "big")


@contextmanager
def torch_stream(generator: np.random.Generator | None) -> Iterator[None]:
    """Seed torch's global stream from a ``generator`` that is given, for code that is not ours.

    Afterwards it is restored. One thread at a time, so that parallel owners draw the same
    numbers as one after the other.
    """
    import torch  # not above: graphs are drawn without torch

    if generator is None:
        yield
        return
    seed = int(generator.integers(2**63))
    with GLOBAL_STREAM, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
