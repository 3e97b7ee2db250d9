"""Integers whose sum is exact, as owners send what is added up; and masks on them.

A number becomes a multiple of a unit, a power of two, in the ring of integers modulo 2^k.
Every owner stays within its share of the ring, so that the sum never overflows. Added in any
order and in any groups, the sum has the same bits; masks that cancel leave no trace.

A mask is a stream of ChaCha20 read as integers of 8, 16, 32 and 64 bits. Added to numbers in
rings of as many bits, it hides them completely; of two owners, one adds it and the other
subtracts it, so that their sum has the same bits as without masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from jaxtyping import Float, Int
from torch import Tensor

from fedsage.rng import Stream

Whole: TypeAlias = Int[Tensor, "*_"]
Exponents: TypeAlias = np.ndarray  # of units 2^e: one for each column, or one for all
DTYPES = {8: torch.int8, 16: torch.int16, 32: torch.int32}
FEWEST = 3  # values on either side of zero that an owner needs at least


@dataclass(frozen=True, slots=True)
class Ring:
    """Integers modulo 2^``bits``, shared by ``owners`` (M)."""

    bits: int
    owners: int

    @property
    def most(self) -> int:
        """The largest value of one owner: ⌊(2^(k−1) − 1) / M⌋."""
        return (2 ** (self.bits - 1) - 1) // self.owners

    def strange(self, found: Whole, least: int | None = None) -> str | None:
        """Why an honest owner could not send these numbers, none below ``least``, or None."""
        if found.dtype != self.dtype:
            return f"numbers of type {found.dtype}, but {self.dtype} was agreed"
        low = -self.most if least is None else least
        if found.numel() and (int(found.min()) < low or int(found.max()) > self.most):
            return f"numbers beyond {low} to {self.most}, an owner's share"
        return None

    @property
    def dtype(self) -> torch.dtype:
        """The type whose addition is the ring's."""
        return DTYPES[self.bits]


def ring_for(owners: int, bits: int) -> Ring:
    """The smallest ring of at least ``bits`` with room for every owner."""
    rings = [Ring(size, owners) for size in DTYPES if size >= bits]
    return next((ring for ring in rings if ring.most >= FEWEST), rings[-1])


def units(exponents: Exponents) -> Float[Tensor, "*_"]:
    """2^e, exactly."""
    return torch.from_numpy(np.ldexp(1.0, exponents))


def encode(
    values: Float[Tensor, "*_"], exponents: Exponents, ring: Ring, stream: Stream | None = None
) -> Whole:
    """Multiples of the unit, clipped to an owner's share of the ring.

    With a stream, they are rounded up or down at random so that the mean is right; without
    one, to the nearest.
    """
    chance = torch.tensor(0.5)
    if stream is not None:
        chance = torch.from_numpy(stream.random(values.shape, dtype=np.float32))
    exact = torch.float64 if ring.bits > 16 else torch.float32  # holds the largest value
    multiples = torch.floor(values.to(exact) / units(exponents).to(exact) + chance)
    return multiples.clamp_(-ring.most, ring.most).to(ring.dtype).reshape(values.shape)


def add(*encoded: Whole) -> Whole:
    """The sum in the ring."""
    return reduce(torch.add, encoded)


def decode(total: Whole, exponents: Exponents) -> Float[Tensor, "*_"]:
    """The sum as numbers, exactly, in double precision."""
    return (total.double() * units(exponents)).reshape(total.shape)


def as_sum(values: Float[Tensor, "*_"], exponents: Exponents, ring: Ring) -> Whole:
    """Numbers in the form of a sum over all owners, to the nearest unit."""
    most = 2 ** (ring.bits - 1) - 1
    multiples = torch.round(values.double() / units(exponents)).clamp_(-most, most)
    return multiples.to(ring.dtype).reshape(values.shape).contiguous()


def exponents_for(
    largest: np.ndarray, ring: Ring, before: Exponents | None = None
) -> Exponents:
    """The smallest units in which ``largest`` fits into an owner's share.

    For zeros, units become sixteen times finer than ``before``.
    """
    _, found = np.frexp(largest / ring.most)
    finer = found if before is None else before - 4
    return np.asarray(np.where(largest > 0, found, finer).clip(-100, 100), np.int64)


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
