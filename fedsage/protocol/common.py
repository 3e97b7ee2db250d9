"""What server and owners all hold between two rounds, to the bit, and how a round changes it.

Nobody sends φ: everybody takes the same step from the same sum of changes. The arithmetic is
such that it gives the same bits on any machine: sums of whole numbers, products that are exact,
and single operations that every processor rounds alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from fedsage.config import Config
from fedsage.models.derived import (
    Pace,
    expected_change,
    has_moments,
    moments_for,
    root_of,
    root_sizes,
)
from fedsage.models.low_rank import (
    as_weight,
    directions,
    is_large,
    random_directions,
    rounded,
    sides,
    spanned,
)
from fedsage.models.parameters import Parameters, sha256_of, under
from fedsage.privacy.sums import Exponents, Ring, decode, exponents_for, ring_for
from fedsage.protocol.messages import Classifier, message
from fedsage.protocol.plan import Plan

LEFT, RIGHT = "left/", "right/"  # of a large weight: Δ·Q and Δᵀ·P
REST = "rest"  # all other weights, one after the other
SQUARES, ROOTS = "squares", "roots"  # how large parts are; second moments
TWICE_AS_FINE = 2  # rounds in which sizes are not known yet, and numbers have more bits
ROOM = {LEFT: 4.2, REST: 4.2, RIGHT: 32.0}  # the largest value, in root mean squares
SQUARES_FINENESS = 18  # bits below the square of the largest value
SPREAD = 24  # bits between the units of two columns, so that products stay exact
FIRST_ROOT = -28  # the exponent of roots of second moments in the first round
FIXED = 20  # bits after the point of weights and losses


@message
class Change:
    """Procedure F, D_i → S, and their sum, S → every D_i: how far a round takes φ.

    All are whole numbers; ``weight``, ``steps`` and ``loss`` in multiples of 2⁻²⁰.
    """

    parts: Parameters
    weight: int
    steps: int  # of the optimizer, times the weight
    loss: int
    count: int  # of owners


NO_CHANGE = Change({}, 0, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class Common:
    """What all hold after ``t`` rounds."""

    config: Config
    owners: int  # M
    weight: float  # of an owner, about: it makes whole numbers of one size
    t: int
    pace: Pace
    phi: Parameters
    moved: Parameters  # how far the last round took φ; empty where moments are not shared
    second: Parameters  # roots of means of second moments, by rows and columns
    bases: Parameters  # Q, of large weights
    partners: Parameters  # P: the last products with Q
    exponents: dict[str, Exponents]  # of units, by part
    stepping: Lock = field(default_factory=Lock)
    next: WeakValueDictionary[str, Common] = field(default_factory=WeakValueDictionary)

    def ring(self, part: str, t: int) -> Ring:
        """The ring that a part is sent in, in round ``t``."""
        bits = self.config.traffic.bits
        if part == SQUARES or (part == ROOTS and t == 0):
            return ring_for(self.owners, 32)
        rough = (part == REST or part.startswith(LEFT)) and t >= TWICE_AS_FINE
        return ring_for(self.owners, bits if rough else 16)

    @cached_property
    def units(self) -> dict[str, Exponents]:
        """The exponents of the units that every part is sent in, as they meet its numbers."""
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
        """The weights that are sent as they are."""
        return [name for name in self.phi if name not in self.bases]

    @cached_property
    def root_sizes(self) -> dict[str, int]:
        """How many roots of second moments there are, by rows and columns of weights."""
        return root_sizes(self.phi) if has_moments(self.config.classifier) else {}

    def root_units(self, name: str, size: int) -> Exponents:
        """The exponent of the units of some roots, once for each."""
        if name not in self.second:
            return np.full(size, FIRST_ROOT)
        largest = 4 * self.second[name].double().max()[None].numpy()
        return np.repeat(exponents_for(largest, self.ring(ROOTS, self.t)), size)

    @property
    def looks(self) -> bool:
        """Whether second moments are looked at in the next round."""
        every = self.config.traffic.every
        return has_moments(self.config.classifier) and (self.t < 3 or self.t % every == 0)

    def root(self, name: str) -> Tensor | None:
        """The root of a weight's second moments, corrected for their start at zero."""
        return root_of(name, self.second, self.phi[name].shape)

    @cached_property
    def expected(self) -> Parameters:
        """How far momentum and weight decay will take φ."""
        how = self.config.classifier
        return {
            name: expected_change(weight, self.moved.get(name), self.root(name), self.pace, how)
            for name, weight in self.phi.items()
        }

    @cached_property
    def multiplied(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Q and P of every large weight, the columns of both of length one."""
        found = {}
        for name, basis in self.bases.items():
            last = self.partners[name].float()
            found[name] = directions(basis).float(), last / last.norm(dim=0).clamp_min(1e-12)
        return found

    @cached_property
    def unmoved(self) -> Parameters:
        """Where φ will be if the data say nothing."""
        return {name: weight + self.expected[name] for name, weight in self.phi.items()}

    @cached_property
    def moments(self) -> Parameters:
        """What the optimizer remembers at the start of a round; empty at the very start."""
        found: Parameters = {}
        for name, moved in self.moved.items():
            if (root := self.root(name)) is not None:
                found |= moments_for(name, moved, root, self.pace, self.config.classifier)
        return found

    def changes_in(self, parts: Mapping[str, Tensor], share: float) -> Parameters:
        """The changes of weights that whole numbers stand for, times ``share``."""
        rest = decode(parts[REST], self.units[REST]) * share
        sizes = [self.phi[name].numel() for name in self.small]
        found = dict(zip(self.small, torch.split(rest, sizes), strict=True))
        for name, basis in self.bases.items():
            left = decode(parts[LEFT + name], self.units[LEFT + name])
            found[name] = as_weight(spanned(left, basis) * share, self.phi[name].shape)
        return {name: found[name].reshape(w.shape).float() for name, w in self.phi.items()}

    def after(self, total: Change, bases: Parameters) -> Common:
        """One round later: the step that everybody takes.

        Owners in one process take it once, and hold one and the same.
        """
        what = sha256_of(total.parts | {f"{name}, next": q for name, q in bases.items()})
        with self.stepping:
            found = self.next.get(what) or self.moved_by(total, bases)
            self.next[what] = found
            return found

    def moved_by(self, total: Change, bases: Parameters) -> Common:
        """One round later."""
        share = self.weight / (total.weight / 2**FIXED)
        new = self.changes_in(total.parts, share)
        moved = {name: self.expected[name] + new[name] for name in self.phi}
        shared = has_moments(self.config.classifier)
        return Common(
            self.config,
            self.owners,
            self.weight,
            self.t + 1,
            self.pace.after(total.steps / total.weight),
            {name: weight + moved[name] for name, weight in self.phi.items()},
            moved if shared else {},
            self.second | self.roots_in(total.parts, share),
            bases,
            under("left", total.parts),
            self.next_exponents(total),
        )

    def roots_in(self, parts: Mapping[str, Tensor], share: float) -> Parameters:
        """The roots of second moments in a sum; none is zero, as nobody can divide by that."""
        if ROOTS not in parts:
            return {}
        least = torch.from_numpy(np.ldexp(0.25, self.units[ROOTS]))
        means = torch.maximum(decode(parts[ROOTS], self.units[ROOTS]) * share, least).float()
        sizes = self.root_sizes
        return dict(zip(sizes, torch.split(means, list(sizes.values())), strict=True))

    def next_exponents(self, total: Change) -> dict[str, Exponents]:
        """Units for the next round, from the mean squares of this one."""
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

    def next_bases(self, total: Change) -> Parameters:
        """The next Q of every large weight, from the sum of Δᵀ·P; the server's to say."""
        return {
            name: rounded(decode(total.parts[RIGHT + name], self.exponents[RIGHT + name]))
            for name in self.bases
        }


def room(part: str) -> float:
    """How many root mean squares fit into an owner's share of the ring."""
    return next(size for start, size in ROOM.items() if part.startswith(start))


@lru_cache(maxsize=4)
def first_common(plan: Plan, owners: int, weight: float) -> Common:
    """Before the first round: it follows from the plan and who takes part."""
    how = plan.config.classifier
    steps = max(1.0, weight / how.batch_size) * how.local_epochs * 4  # they are η long at most
    return new_common(plan, plan.phi.phi, owners, weight, how.eta * steps)


def new_common(plan: Plan, phi: Parameters, owners: int, weight: float, size: float) -> Common:
    """Before the first round of some weights, which an owner moves by about ``size``."""
    config = plan.config
    rank = config.traffic.rank if config.traffic.how == "low-rank" else 0
    large = [name for name, one in phi.items() if rank and is_large(one.shape, rank)]
    bases: Parameters = {}
    partners: Parameters = {}
    exponents: dict[str, Exponents] = {}
    common = Common(
        config, owners, weight, 0, Pace(0.0, 0.0), phi, {}, {}, bases, partners, exponents
    )
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
        common.moved.update({name: torch.zeros_like(one) for name, one in phi.items()})
    return common


def packed(common: Common) -> Classifier:
    """All of it as a message, for who was away, and as it is kept on disk."""
    numbers = [common.owners, common.weight, common.t, common.pace.steps, common.pace.last]
    groups: dict[str, Mapping[str, Tensor]] = {
        "moved": common.moved, "second": common.second, "bases": common.bases,
        "partners": common.partners,
        "exponents": {k: torch.from_numpy(np.array(v)) for k, v in common.exponents.items()},
    }  # fmt: skip
    memory = {f"{group}/{k}": v for group, inside in groups.items() for k, v in inside.items()}
    return Classifier(
        common.phi, memory | {"numbers": torch.tensor(numbers, dtype=torch.float64)}
    )


def unpacked(config: Config, classifier: Classifier) -> Common:
    """The inverse of ``packed``."""
    memory = classifier.moments
    owners, weight, t, steps, last = memory["numbers"].tolist()
    exponents = {k: v.numpy() for k, v in under("exponents", memory).items()}
    return Common(
        config, int(owners), weight, int(t), Pace(steps, last), classifier.phi,
        under("moved", memory), under("second", memory), under("bases", memory),
        under("partners", memory), exponents,
    )  # fmt: skip
