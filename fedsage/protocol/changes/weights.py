"""Weights as integers: the small ones as they are, the large ones along a few directions.

A large weight is a matrix with its longer side first: Δ ≈ (Δ·Q)·Qᵀ. Q, the directions on the
shorter side, is known to all, in multiples of 2⁻¹²: a product of integers with it is exact, on
any machine.

A frame holds the directions of every large weight, and the units. With the frame one can
encode weights of those shapes, add them to those of others, and decode them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedsage.models.parameters import Parameters, under
from fedsage.privacy.sums import Exponents, Ring, decode, encode, exponents_for
from fedsage.rng import Stream

FINENESS = 12  # Q is in multiples of 2^-12
Basis = Int[Tensor, "short rank"]
BASIS, LEFT = "basis/", "left/"  # Q of a large weight, and Δ·Q
REST = "rest"  # all small weights, one after the other
SQUARES = "squares"  # the mean squares of an owner's numbers, by column or small weight
EXPONENTS = "exponents"  # of the units of columns of Δ·Q, then one for each small weight
STEPS = 2  # of the search for directions: more steps hardly improve them
SPREAD = 24  # bits between the units of two columns, so that products stay exact
Shapes = Mapping[str, torch.Size]
Sizes = dict[str, tuple[int, ...]]


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


def large_in(shapes: Shapes, rank: int) -> list[str]:
    """The weights that are sent along few directions; none with rank 0.

    A weight no larger than the largest one is in those directions is sent in full.
    """
    if not rank:
        return []
    long, short = sides(max(shapes.values(), key=lambda shape: shape.numel()))
    least = rank * (long + short)
    return [n for n, one in shapes.items() if is_large(one, rank) and one.numel() > least]


def shapes_of(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    """The shapes of weights, by name."""
    return {name: weight.shape for name, weight in weights.items()}


def frame_for(weights: Parameters, rank: int, ring: Ring, stream: Stream) -> Parameters:
    """Directions and units that suit these weights."""
    large = large_in(shapes_of(weights), rank)
    frame = {BASIS + n: top_directions(tall(weights[n]), rank, stream) for n in large}
    parts = parts_in(weights, frame)
    sizes = [parts[LEFT + name].abs().amax(dim=0) for name in large]
    sizes += [weights[name].abs().max()[None] for name in small_in(weights, frame)]
    found = exponents_for(torch.cat(sizes).double().numpy(), ring)
    return frame | {EXPONENTS: torch.from_numpy(found).to(torch.int8)}


def top_directions(matrix: Float[Tensor, "long short"], rank: int, stream: Stream) -> Basis:
    """Approximately the right singular vectors with the largest values."""
    found = random_directions(matrix.shape[1], rank, stream).to(matrix.dtype)
    for _ in range(STEPS):
        found = matrix.T @ (matrix @ torch.linalg.qr(found).Q)
    return rounded(found)


def small_in(names: Iterable[str], frame: Mapping[str, Tensor]) -> list[str]:
    """The weights that a frame has no directions for."""
    return [name for name in names if BASIS + name not in frame]


def bases_in(frame: Parameters) -> Parameters:
    """The directions of large weights, by name."""
    return under("basis", frame)


def parts_in(weights: Parameters, frame: Parameters) -> Parameters:
    """Δ·Q of every large weight, and all small ones in one row."""
    bases = bases_in(frame).items()
    left = {LEFT + n: tall(weights[n]) @ directions(q).to(weights[n].dtype) for n, q in bases}
    rest = [weights[name].reshape(-1) for name in small_in(weights, frame)]
    return left | {REST: torch.cat(rest)}


def put_in(weights: Parameters, frame: Parameters, ring: Ring, stream: Stream) -> Parameters:
    """The weights as integers."""
    units = units_of(frame, shapes_of(weights))
    found = parts_in(weights, frame).items()
    return {part: encode(values, units[part], ring, stream) for part, values in found}


def taken_out(parts: Parameters, frame: Parameters, shapes: Shapes) -> Parameters:
    """The inverse of ``put_in``, up to rounding; the same on any machine."""
    found = weights_in(parts, bases_in(frame), units_of(frame, shapes), shapes)
    return {name: weight.float() for name, weight in found.items()}


def weights_in(
    parts: Mapping[str, Tensor],
    bases: Mapping[str, Tensor],
    units: Mapping[str, Exponents],
    shapes: Shapes,
) -> Parameters:
    """The weights that the integers stand for, in double precision."""
    small = [name for name in shapes if name not in bases]
    values = decode(parts[REST], units[REST])
    rest = torch.split(values, [shapes[name].numel() for name in small])
    found = dict(zip(small, rest, strict=True))
    for name, basis in bases.items():
        left = decode(parts[LEFT + name], units[LEFT + name])
        found[name] = as_weight(spanned(left, basis), shapes[name])
    return {name: found[name].reshape(shape) for name, shape in shapes.items()}


def units_of(frame: Parameters, shapes: Shapes) -> dict[str, Exponents]:
    """The exponents of units: for every column of a large weight, for every small number."""
    bases, small = bases_in(frame), small_in(shapes, frame)
    exponents, begin = frame[EXPONENTS].numpy().astype(np.int64), 0
    found: dict[str, Exponents] = {}
    for name, basis in bases.items():
        columns = exponents[begin : (begin := begin + basis.shape[1])]
        found[LEFT + name] = np.maximum(columns, columns.max() - SPREAD)
    counts = [shapes[name].numel() for name in small]
    return found | {REST: np.repeat(exponents[begin:], counts)}


def sizes_in(shapes: Shapes, rank: int) -> tuple[Sizes, Sizes]:
    """The sizes of a frame for weights of those shapes, and of the integers in it."""
    large = {name: sides(shapes[name]) for name in large_in(shapes, rank)}
    frame: Sizes = {BASIS + name: (short, rank) for name, (_, short) in large.items()}
    parts: Sizes = {LEFT + name: (long, rank) for name, (long, _) in large.items()}
    small = [shape.numel() for name, shape in shapes.items() if name not in large]
    count = rank * len(large) + len(small)
    return frame | {EXPONENTS: (count,)}, parts | {REST: (sum(small),)}
