"""The state that server and owners all hold between two rounds, bit for bit, and its steps.

Nobody sends φ: everybody takes the same step from the same sum of changes. The arithmetic gives
the same bits on any machine: sums of integers, products that are exact, and single operations
that every processor rounds the same way. Tensors have the memory layout they have after being
received, since products may round differently with another layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from fedsage.config import Config
from fedsage.models import optimizer
from fedsage.models.optimizer import Pace, expected_change, has_moments
from fedsage.models.parameters import Parameters, sha256_of, under
from fedsage.privacy.sums import Exponents, Ring, as_sum, decode, exponents_for, ring_for
from fedsage.protocol.changes.accord import accord_of
from fedsage.protocol.changes.weights import (
    LEFT,
    REST,
    SPREAD,
    SQUARES,
    as_weight,
    directions,
    rounded,
    shapes_of,
    weights_in,
)
from fedsage.protocol.messages import message

RIGHT = "right/"  # of a large weight: Δᵀ·P, beside Δ·Q
NEXT, BEYOND, UNITS = "next/", "beyond/", "units/"  # parts of the server's guide
ROOTS = "roots"  # of second moments, beside the mean squares of parts
TWICE_AS_FINE = 2  # rounds in which sizes are not known yet: numbers have more bits
ROOM = {LEFT: 4.2, REST: 4.2, RIGHT: 32.0}  # the largest value, in root mean squares
SQUARES_FINENESS = 18  # bits below the square of the largest value
FIRST_ROOT = -28  # the exponent of roots of second moments in the first round
GUIDE = Ring(16, 1)  # of the server's guide
FIXED = 20  # binary places of weights and losses


@message
class Change:
    """Procedure F, D_i → S, and their sum, S → every D_i: how far a round moves φ.

    All numbers are integers; ``weight``, ``steps`` and ``loss`` in multiples of 2⁻²⁰.
    """

    parts: Parameters
    weight: int
    steps: int  # of the optimizer, times the weight
    loss: int
    count: int  # of owners
    proof: int = 0  # that a sum is correct, where sums are hidden


NO_CHANGE = Change({}, 0, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class Common:
    """The state that all hold after ``t`` rounds."""

    config: Config
    owners: int  # M
    weight: float  # a typical owner's: scales the integers
    t: int
    pace: Pace
    phi: Parameters
    first: Parameters  # moments; empty if they are not shared
    second: Parameters  # roots of means of second moments, by rows and columns
    bases: Parameters  # Q, of large weights
    partners: Parameters  # P: the latest products with Q
    exponents: dict[str, Exponents]  # of units, by part
    usual: float  # how far an owner's change went in the last round, as sent
    accord: float  # the mean cosine of owners' changes in the last round
    stepping: Lock = field(default_factory=Lock)
    next: WeakValueDictionary[str, Common] = field(default_factory=WeakValueDictionary)

    def ring(self, part: str, t: int) -> Ring:
        """The ring in which a part is sent in round ``t``."""
        return ring_of(part, t, self.owners, self.config.traffic.bits)

    @cached_property
    def units(self) -> dict[str, Exponents]:
        """The exponents of the units of every part, one for each of its numbers."""
        found = dict(self.exponents)
        sizes = [self.phi[name].numel() for name in self.small]
        found[REST] = np.repeat(self.exponents[REST], sizes)
        ends = [e + self.ring(p, self.t).most.bit_length() for p, e in self.exponents.items()]
        found[SQUARES] = 2 * np.concatenate(ends) - SQUARES_FINENESS
        roots = [self.root_units(*root) for root in self.root_sizes.items()]
        found[ROOTS] = np.concatenate([*roots, np.empty(0, np.int64)])
        return found

    @property
    def small(self) -> list[str]:
        """The weights that are sent as they are, not in few directions."""
        return [name for name in self.phi if name not in self.bases]

    @cached_property
    def root_sizes(self) -> dict[str, int]:
        """How many roots of second moments there are, by rows and columns of weights."""
        return optimizer.root_sizes(self.phi) if has_moments(self.config.classifier) else {}

    def root_units(self, name: str, size: int) -> Exponents:
        """The exponents of the units of some roots, one for each."""
        if name not in self.second:
            return np.full(size, FIRST_ROOT)
        largest = 4 * self.second[name].double().max()[None].numpy()
        return np.repeat(exponents_for(largest, self.ring(ROOTS, self.t)), size)

    @property
    def looks(self) -> bool:
        """Whether second moments are measured in the next round."""
        every = self.config.traffic.every
        return has_moments(self.config.classifier) and (self.t < 3 or self.t % every == 0)

    def root(self, name: str) -> Tensor | None:
        """The root of a weight's second moments, corrected for their start at zero."""
        return optimizer.root_of(name, self.second, self.phi[name].shape)

    @cached_property
    def expected(self) -> Parameters:
        """How far momentum and weight decay will move φ."""
        how = self.config.classifier
        return {
            name: expected_change(weight, self.first.get(name), self.root(name), self.pace, how)
            for name, weight in self.phi.items()
        }

    @cached_property
    def multiplied(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Q and P of every large weight, with columns of length one."""
        found = {}
        for name, basis in self.bases.items():
            last = self.partners[name].float()
            found[name] = directions(basis).float(), last / last.norm(dim=0).clamp_min(1e-12)
        return found

    @cached_property
    def unmoved(self) -> Parameters:
        """Where φ will be if the data add nothing."""
        return {name: weight + self.expected[name] for name, weight in self.phi.items()}

    @cached_property
    def moments(self) -> Parameters:
        """The optimizer's moments at the start of a round; empty at the very start."""
        found: Parameters = {}
        for name, first in self.first.items():
            if (root := self.root(name)) is not None:
                found |= optimizer.moments_for(name, first, root, self.pace)
        return found

    def changes_in(
        self, parts: Mapping[str, Tensor], guide: Mapping[str, Tensor], share: float
    ) -> Parameters:
        """The changes of weights that the integers stand for, times ``share``."""
        shapes = shapes_of(self.phi)
        found = weights_in(parts, self.bases, self.units, shapes)
        found = {name: weight * share for name, weight in found.items()}
        for name in [name for name in self.bases if BEYOND + name in guide]:
            beyond = decode(guide[BEYOND + name], guide[UNITS + name].numpy())
            more = self.partners[name].double() @ beyond.T
            found[name] = found[name] + as_weight(more, shapes[name])
        return {name: weight.float().contiguous() for name, weight in found.items()}

    def after(self, total: Change, guide: Parameters) -> Common:
        """One round later: the step that everybody takes.

        Owners in one process compute it once and share the result.
        """
        numbers = total.weight, total.steps, total.count
        what = f"{sha256_of(total.parts | guide)} {numbers}"
        with self.stepping:
            found = self.next.get(what) or self.moved_by(total, guide)
            self.next[what] = found
            return found

    def moved_by(self, total: Change, guide: Parameters) -> Common:
        """One round later."""
        share = self.weight / (total.weight / 2**FIXED)
        new = self.changes_in(total.parts, guide, share)
        pace = self.pace.after(total.steps / total.weight)
        second = self.second | self.roots_in(total.parts, share)
        return Common(
            self.config,
            self.owners,
            self.weight,
            self.t + 1,
            pace,
            {name: weight + new[name] for name, weight in self.unmoved.items()},
            {name: self.next_first(name, new[name], second, pace) for name in self.first},
            second,
            under("next", guide),
            under("left", total.parts),
            self.next_exponents(total),
            self.next_usual(total),
            accord_of(self, total),
        )

    def next_first(self, name: str, new: Tensor, second: Parameters, pace: Pace) -> Tensor:
        """The first moment of a weight after a round."""
        weight, how = self.phi[name], self.config.classifier
        root = optimizer.root_of(name, second, weight.shape)
        assert root is not None  # second moments exist after the first round
        return optimizer.next_first(self.first[name], new, weight, root, pace, how)

    def roots_in(self, parts: Mapping[str, Tensor], share: float) -> Parameters:
        """The roots of second moments in a sum, never zero, since they are divided by."""
        if ROOTS not in parts:
            return {}
        least = torch.from_numpy(np.ldexp(0.25, self.units[ROOTS]))
        means = torch.maximum(decode(parts[ROOTS], self.units[ROOTS]) * share, least).float()
        sizes = self.root_sizes
        return dict(zip(sizes, torch.split(means, list(sizes.values())), strict=True))

    def next_exponents(self, total: Change) -> dict[str, Exponents]:
        """Units for the next round, from this round's mean squares."""
        mean = decode(total.parts[SQUARES], self.units[SQUARES]).numpy() / total.count
        ends = np.cumsum([len(before) for before in self.exponents.values()])
        found = {}
        for (part, before), squares in zip(
            self.exponents.items(), np.split(mean, ends[:-1]), strict=True
        ):
            largest = np.sqrt(squares) * room(part)
            finest = exponents_for(largest, self.ring(part, self.t + 1), before)
            found[part] = np.maximum(finest, finest.max() - SPREAD)
        return found

    def next_usual(self, total: Change) -> float:
        """How far an owner's change went in this round: the root of the mean square."""
        mean = decode(total.parts[SQUARES], self.units[SQUARES]).numpy() / total.count
        ends = np.cumsum([len(before) for before in self.exponents.values()])
        by_part = zip(self.exponents, np.split(mean, ends[:-1]), strict=True)
        squares = sum(float(ms @ self.heights(part)) for part, ms in by_part)
        return math.sqrt(max(0.0, squares))  # of a spoiled sum, they may be below zero

    def heights(self, part: str) -> np.ndarray:
        """How many numbers each mean square of a part covers; 0 for parts not counted here."""
        if part == REST:
            return np.array([self.phi[name].numel() for name in self.small], np.float64)
        long = self.partners[part.removeprefix(LEFT)].shape[0] if part.startswith(LEFT) else 0
        return np.full(len(self.exponents[part]), float(long))

    def guide(self, total: Change) -> Parameters:
        """The server's own contribution: the next Q, and the part of Δ along P that Q misses.

        That part is small, and exact once it is in integers, which every machine multiplies the
        same way.
        """
        found: Parameters = {}
        for name in self.bases:
            left, right = (
                decode(total.parts[side + name], self.units[side + name])
                for side in (LEFT, RIGHT)
            )
            found[NEXT + name] = rounded(right)
            missed = self.missed(name, left, right) * (self.weight / (total.weight / 2**FIXED))
            units = exponents_for(missed.abs().amax(dim=0).numpy(), GUIDE)
            units = np.maximum(units, units.max() - SPREAD // 2)
            found[BEYOND + name] = as_sum(missed, units, GUIDE)
            found[UNITS + name] = torch.from_numpy(units).to(torch.int16)
        return found

    def missed(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        """What Δᵀ·P knows of Δ beyond Δ·Q: a matrix whose product with P is to be added."""
        (q, p), inverse = self.multiplied[name], self.inverses[name]
        beyond = right - (q @ (left.to(q).T @ p)).to(right)
        lengths = self.partners[name].double().norm(dim=0).clamp_min(1e-12)
        return beyond.double() @ inverse / lengths

    @cached_property
    def inverses(self) -> Parameters:
        """Inverses of the products of P's columns, which are not orthogonal."""
        products = {name: (p.T @ p).double() for name, (_, p) in self.multiplied.items()}
        return {name: torch.linalg.pinv(one, rtol=1e-3) for name, one in products.items()}


def ring_of(part: str, t: int, owners: int, bits: int) -> Ring:
    """The ring in which a part is sent in round ``t``."""
    if part == SQUARES or (part == ROOTS and t == 0):
        return ring_for(owners, 32)
    rough = (part == REST or part.startswith(LEFT)) and t >= TWICE_AS_FINE
    return ring_for(owners, bits if rough else 16)


def room(part: str) -> float:
    """How many root mean squares fit into an owner's share of the ring."""
    return next(size for start, size in ROOM.items() if part.startswith(start))
