"""Masks on integers: they make one owner's numbers look random, and cancel in sums.

A mask is a stream of ChaCha20 read as integers of 8, 16, 32 and 64 bits. Added to numbers in
rings of as many bits, it hides them completely; of two owners, one adds it and the other
subtracts it, so that their sum has the same bits as without masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

Numbers: TypeAlias = dict[str, np.ndarray]  # one row for each kind of integer
Counts: TypeAlias = Mapping[str, int]  # how many there are of each kind
KINDS = ("int8", "int16", "int32", "int64")


def stream(seed: bytes, size: int) -> bytes:
    """``size`` bytes that look random to anyone without the seed."""
    return Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(size))


def mask(seed: bytes, counts: Counts) -> Numbers:
    """Integers of each kind, as many as ``counts`` says, from one seed."""
    sizes = {kind: counts[kind] * np.dtype(kind).itemsize for kind in counts}
    drawn, found, end = stream(seed, sum(sizes.values())), {}, 0
    for kind, size in sizes.items():
        found[kind] = np.frombuffer(drawn, kind, counts[kind], end)
        end += size
    return found


def masked(
    numbers: Mapping[str, np.ndarray], plus: Iterable[bytes], minus: Iterable[bytes]
) -> Numbers:
    """The numbers with some masks added and others subtracted, each modulo 2^bits."""
    found = {kind: row.copy() for kind, row in numbers.items()}
    counts = {kind: len(row) for kind, row in numbers.items()}
    for seeds, change in ((plus, np.add), (minus, np.subtract)):
        for seed in seeds:
            for kind, row in mask(seed, counts).items():
                change(found[kind], row, out=found[kind])
    return found
