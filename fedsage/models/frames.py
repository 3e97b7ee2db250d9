"""Weights in whole numbers: the small ones as they are, the large ones by a few directions.

A frame says how: the directions of every large weight, and the units. Who has the frame can
put weights of those shapes into it, add them up with those of others, and take them out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedsage.models.low_rank import (
    Basis,
    as_weight,
    directions,
    is_large,
    random_directions,
    rounded,
    sides,
    spanned,
    tall,
)
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import Exponents, Ring, decode, encode, exponents_for
from fedsage.rng import Stream

LEFT, WHOLE, BASIS = "left/", "whole/", "basis/"  # Δ·Q, Δ itself, and Q
EXPONENTS = "exponents"  # of the units of all weights, one after the other
STEPS = 2  # of the search for directions: more find hardly better ones
SPREAD = 24  # bits between the units of two columns, so that products stay exact
Shapes = Mapping[str, torch.Size]


def large_in(shapes: Shapes, rank: int) -> list[str]:
    """The weights that are sent in few directions; none with rank 0.

    What has no more numbers than the largest has in those directions is sent whole.
    """
    if not rank:
        return []
    long, short = sides(max(shapes.values(), key=lambda shape: shape.numel()))
    least = rank * (long + short)
    return [n for n, one in shapes.items() if is_large(one, rank) and one.numel() > least]


def shapes_of(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    """By name."""
    return {name: weight.shape for name, weight in weights.items()}


def frame_for(weights: Parameters, rank: int, ring: Ring, stream: Stream) -> Parameters:
    """Directions and units that suit these weights."""
    frame: Parameters = {}
    units: list[Exponents] = []
    large = large_in(shapes_of(weights), rank)
    for name, weight in weights.items():
        if name in large:
            frame[BASIS + name] = top_directions(tall(weight), rank, stream)
        columns = in_frame(weight, frame.get(BASIS + name))
        finest = exponents_for(columns.abs().amax(dim=0).double().numpy(), ring)
        units.append(np.maximum(finest, finest.max() - SPREAD))
    return frame | {EXPONENTS: torch.from_numpy(np.concatenate(units)).to(torch.int8)}


def top_directions(matrix: Float[Tensor, "long short"], rank: int, stream: Stream) -> Basis:
    """About the right singular vectors with the largest values."""
    found = random_directions(matrix.shape[1], rank, stream)
    for _ in range(STEPS):
        found = matrix.T.double() @ (matrix.double() @ torch.linalg.qr(found).Q)
    return rounded(found)


def in_frame(weight: Float[Tensor, "*_"], basis: Basis | None) -> Float[Tensor, "_ columns"]:
    """Δ·Q of a large weight; a small one as a column."""
    if basis is None:
        return weight.reshape(-1, 1)
    return tall(weight) @ directions(basis).to(weight.dtype)


def put_in(weights: Parameters, frame: Parameters, ring: Ring, stream: Stream) -> Parameters:
    """The weights in whole numbers."""
    units, found = units_of(frame, weights), dict[str, Tensor]()
    for name, weight in weights.items():
        columns = in_frame(weight, frame.get(BASIS + name))
        found[part_of(name, frame)] = encode(columns, units[name], ring, stream)
    return found


def taken_out(parts: Parameters, frame: Parameters, shapes: Shapes) -> Parameters:
    """The inverse of ``put_in``, but for what was rounded off; the same on any machine."""
    units, found = units_of(frame, shapes), dict[str, Tensor]()
    for name, shape in shapes.items():
        columns = decode(parts[part_of(name, frame)], units[name])
        basis = frame.get(BASIS + name)
        whole = columns if basis is None else as_weight(spanned(columns, basis), shape)
        found[name] = whole.reshape(shape).float()
    return found


def part_of(name: str, frame: Mapping[str, Tensor]) -> str:
    """What the whole numbers of a weight are called."""
    return (LEFT if BASIS + name in frame else WHOLE) + name


def units_of(frame: Parameters, names: Mapping[str, object]) -> dict[str, Exponents]:
    """The exponents of units, by weight."""
    counts = [frame[BASIS + n].shape[1] if BASIS + n in frame else 1 for n in names]
    ends = list(accumulate(counts))
    parts = np.split(frame[EXPONENTS].numpy().astype(np.int64), ends[:-1])
    return dict(zip(names, parts, strict=True))


def sizes_in(shapes: Shapes, rank: int) -> tuple[dict[str, tuple[int, ...]], ...]:
    """The sizes of a frame for weights of those shapes, and of the whole numbers in it."""
    frame: dict[str, tuple[int, ...]] = {}
    parts: dict[str, tuple[int, ...]] = {}
    count, large = 0, large_in(shapes, rank)
    for name, shape in shapes.items():
        if name in large:
            long, short = sides(shape)
            frame[BASIS + name], parts[LEFT + name] = (short, rank), (long, rank)
            count += rank
        else:
            parts[WHOLE + name] = (shape.numel(), 1)
            count += 1
    return frame | {EXPONENTS: (count,)}, parts
