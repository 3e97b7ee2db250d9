"""The state that server and owners all hold between two rounds, bit for bit.

Nobody sends φ: everybody takes the same step from the same sum of changes. The arithmetic gives
the same bits on any machine: sums of integers, products that are exact, and single operations
that every processor rounds the same way. Tensors have the memory layout they have after being
received, since products may round differently with another layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from fedsage.config import Config
from fedsage.models import optimizer
from fedsage.models.optimizer import Pace, expected_change, has_moments
from fedsage.models.parameters import Parameters, sha256_of, under
from fedsage.privacy.sums import Exponents, Ring, exponents_for, ring_for
from fedsage.protocol.changes.weights import (
    LEFT,
    REST,
    SQUARES,
    directions,
    is_large,
    random_directions,
    rounded,
    sides,
)
from fedsage.protocol.messages import Classifier, message
from fedsage.protocol.plan import Plan

RIGHT = "right/"  # of a large weight: Δᵀ·P, beside Δ·Q
ROOTS = "roots"  # of second moments, beside the mean squares of parts
TWICE_AS_FINE = 2  # rounds in which sizes are not known yet: numbers have more bits
ROOM = {LEFT: 4.2, REST: 4.2, RIGHT: 32.0}  # the largest value, in root mean squares
SQUARES_FINENESS = 18  # bits below the square of the largest value
FIRST_ROOT = -28  # the exponent of roots of second moments in the first round
FIXED = 20  # binary places of weights and losses
ROUGHLY = 4.0  # times as far as steps of η would go, weights may move at first
TRAINED = 0.1  # roughly the accord of owners that start from weights that are trained already


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
        how = self.config.classifier.at(self.t)
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

    def heights(self, part: str) -> np.ndarray:
        """How many numbers each mean square of a part covers; 0 for parts not counted here."""
        if part == REST:
            return np.array([self.phi[name].numel() for name in self.small], np.float64)
        long = self.partners[part.removeprefix(LEFT)].shape[0] if part.startswith(LEFT) else 0
        return np.full(len(self.exponents[part]), float(long))

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


@lru_cache(maxsize=4)
def first_common(plan: Plan, owners: int, weight: float) -> Common:
    """The state before the first round: follows from the plan and the number of owners."""
    how = plan.config.classifier
    batches = max(1.0, weight / how.batch_for(int(weight)))
    steps = batches * how.epochs(batches) * 4  # each at most η long
    return new_common(plan, plan.phi.phi, owners, weight, how.eta * steps)


def new_common(plan: Plan, phi: Parameters, owners: int, weight: float, size: float) -> Common:
    """The state before the first round of weights that an owner moves by about ``size``."""
    config = plan.config
    rank = config.traffic.rank if config.traffic.how == "low-rank" else 0
    large = [name for name, one in phi.items() if rank and is_large(one.shape, rank)]
    bases: Parameters = {}
    partners: Parameters = {}
    exponents: dict[str, Exponents] = {}
    common = Common(
        config, owners, weight, 0, Pace(0.0, 0.0), phi, {}, {}, bases, partners, exponents, 0.0,
        TRAINED if plan.start else math.nan,
    )  # fmt: skip
    for name in large:
        long, short = sides(phi[name].shape)
        stream = plan.stream("directions", name)
        bases[name] = rounded(random_directions(short, rank, stream))
        partners[name] = rounded(random_directions(long, rank, stream))
    counts = {side + name: rank for name in large for side in (LEFT, RIGHT)}
    for part, count in (counts | {REST: len(phi) - len(large)}).items():
        each = np.full(count, size * room(part))
        exponents[part] = exponents_for(each, common.ring(part, 0))
    if has_moments(config.classifier):
        common.first.update({name: torch.zeros_like(one) for name, one in phi.items()})
    numbers = sum(float(common.heights(part).sum()) for part in exponents)
    return replace(common, usual=size / ROUGHLY * math.sqrt(numbers))


def packed(common: Common) -> Classifier:
    """The whole state as a message, for owners that were absent and for the disk."""
    numbers = [common.owners, common.weight, common.t, common.pace.steps, common.pace.last,
               common.usual, common.accord]  # fmt: skip
    groups: dict[str, Mapping[str, Tensor]] = {
        "first": common.first, "second": common.second, "bases": common.bases,
        "partners": common.partners,
        "exponents": {k: torch.from_numpy(np.array(v)) for k, v in common.exponents.items()},
    }  # fmt: skip
    memory = {f"{group}/{k}": v for group, inside in groups.items() for k, v in inside.items()}
    return Classifier(
        common.phi, memory | {"numbers": torch.tensor(numbers, dtype=torch.float64)}
    )


@lru_cache(maxsize=4)
def checksum_of(common: Common) -> str:
    """The checksum of everything that all hold."""
    whole = packed(common)
    memory = {f"memory/{name}": one for name, one in whole.moments.items()}
    return sha256_of(whole.phi | memory)


def unpacked(config: Config, classifier: Classifier) -> Common:
    """The inverse of ``packed``."""
    memory = classifier.moments
    owners, weight, t, steps, last, usual, accord = memory["numbers"].tolist()
    exponents = {k: v.numpy() for k, v in under("exponents", memory).items()}
    return Common(
        config, int(owners), weight, int(t), Pace(steps, last), classifier.phi,
        under("first", memory), under("second", memory), under("bases", memory),
        under("partners", memory), exponents, usual, accord,
    )  # fmt: skip
