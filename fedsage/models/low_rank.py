"""Large weights along a few directions: Δ ≈ (Δ·Q)·Qᵀ.

A weight is a matrix with its longer side first. Q, the directions on the shorter side, is known
to all, in multiples of 2⁻¹²: a product of integers with it is exact, on any machine.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedsage.rng import Stream

FINENESS = 12  # Q is in multiples of 2^-12
Basis = Int[Tensor, "short rank"]


def is_large(shape: torch.Size, rank: int) -> bool:
    """Whether a weight of this rank has at most a third as many numbers."""
    long, short = sides(shape)
    return 3 * rank * (long + short) <= long * short


def sides(shape: torch.Size) -> tuple[int, int]:
    """The longer and the shorter side of a weight as a matrix."""
    first = shape[0] if shape else 1
    rest = math.prod(shape[1:])
    return max(first, rest), min(first, rest)


def tall(weight: Float[Tensor, "*_"]) -> Float[Tensor, "long short"]:
    """The weight as a matrix, its longer side first."""
    matrix = weight.flatten(1)
    return matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T


def as_weight(matrix: Float[Tensor, "long short"], shape: torch.Size) -> Float[Tensor, "*_"]:
    """The inverse of ``tall``."""
    wide = shape[0] < math.prod(shape[1:])
    return (matrix.T if wide else matrix).reshape(shape)


def rounded(directions: Float[Tensor, "short rank"]) -> Basis:
    """An orthonormal basis of the columns' span, rounded as all will hold it."""
    q = torch.linalg.qr(directions.double()).Q
    return torch.round(q * 2**FINENESS).to(torch.int16).contiguous()


def random_directions(side: int, rank: int, stream: Stream) -> Float[Tensor, "side rank"]:
    """Random directions to start with."""
    return torch.from_numpy(stream.standard_normal((side, rank)))


def directions(basis: Basis) -> Float[Tensor, "short rank"]:
    """Q as numbers, in double precision."""
    return basis.double() / 2**FINENESS


def spanned(products: Float[Tensor, "long rank"], basis: Basis) -> Float[Tensor, "long short"]:
    """(Δ·Q)·Qᵀ, in double precision: exact if the products are integers of few bits."""
    return products.double() @ directions(basis).T
