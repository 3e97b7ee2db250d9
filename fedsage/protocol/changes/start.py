"""How all parties get the same state: from the plan at the start, from a message later."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedsage.config import Config
from fedsage.models.optimizer import Pace, has_moments
from fedsage.models.parameters import Parameters, sha256_of, under
from fedsage.privacy.sums import Exponents, exponents_for
from fedsage.protocol.changes.accord import TRAINED
from fedsage.protocol.changes.state import RIGHT, Common, room
from fedsage.protocol.changes.weights import (
    LEFT,
    REST,
    is_large,
    random_directions,
    rounded,
    sides,
)
from fedsage.protocol.messages import Classifier
from fedsage.protocol.plan import Plan

ROUGHLY = 4.0  # times as far as steps of η would go, weights may move at first


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
