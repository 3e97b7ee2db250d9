"""Private training, the server's side: steps along noisy sums. All of it is public."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from fedsage.models.parameters import Parameters
from fedsage.privacy.accountant import honest
from fedsage.privacy.records import BIAS, PART, SHARPNESS
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Classifier
from fedsage.protocol.plan import Plan
from fedsage.protocol.private import (
    Weights,
    noisy_count,
    noisy_gradient,
    projection,
    receive_private,
    size_of,
    terms_of,
)
from fedsage.shapes import Array

STEP = 0.16  # a step is so much over the root of the noise of a mean gradient
LONGEST_STEP = 8.0
LOUD, TOO_LOUD = 0.004, 0.01  # noise of a mean gradient that costs some accuracy, or most
MOMENTUM = 0.9
AVERAGED = 0.5  # the share of the rounds, the last ones, whose weights are averaged


@dataclass(slots=True)
class Descent:
    """Where training stands: weights, their momentum, and the sum of those to be averaged."""

    count: int  # training nodes, roughly
    weights: Float[Array, "k d_y"]
    speed: Float[Array, "k d_y"]
    added: Float[Array, "k d_y"]
    number: int = 0  # of weights in ``added``

    def kept(self) -> Parameters:
        """As tensors, for the journal."""
        arrays = {"weights": self.weights, "speed": self.speed, "added": self.added}
        counts = torch.tensor([self.count, self.number], dtype=torch.float64)
        return {name: torch.from_numpy(a.copy()) for name, a in arrays.items()} | {"n": counts}

    @property
    def result(self) -> Float[Array, "k d_y"]:
        """The mean of the last weights, or the weights if it is too early for that."""
        return self.added / self.number if self.number else self.weights


def begun(exchange: Exchange, kept: Parameters) -> Descent:
    """The start of training, or where it was stopped; asks for the number of nodes."""
    if kept:
        count, number = (int(value) for value in kept["n"])
        weights, speed, added = (kept[name].numpy() for name in ("weights", "speed", "added"))
        return Descent(count, weights, speed, added, number)
    parts = exchange.sum(noisy_count, Ask(0)).parts
    zero = np.zeros(size_of(exchange.plan))
    return Descent(max(round(parts / PART), 1), zero, zero, zero)


def rate_of_learning(plan: Plan, count: int) -> float:
    """The first step's length, from public numbers alone: the noise and how many nodes."""
    return min(STEP / math.sqrt(noise_in_mean(plan, count)), LONGEST_STEP)


def noise_in_mean(plan: Plan, count: int) -> float:
    """The noise of a round's mean gradient, in units of the longest gradient of one node."""
    terms = terms_of(plan)
    everyone = math.sqrt(terms.owners / honest(terms.owners))
    return terms.noise * everyone / (terms.rounds.rate * count)


def forecast(plan: Plan, count: int) -> str | None:
    """What to expect of so few nodes, in words, or None if there are enough."""
    if (noise := noise_in_mean(plan, count)) < LOUD:
        return None
    few = count * noise / LOUD  # with as many nodes there would be little enough
    epsilon = plan.config.privacy.epsilon
    return (
        f"About {count:,} training nodes are few for ε = {epsilon:g}: expect to lose "
        f"{'ten points of accuracy or more' if noise > TOO_LOUD else 'several points'} to the "
        f"noise. From about {math.ceil(few / 1000):,},000 nodes on it is little. Choose a "
        "larger ε (--epsilon), bring in more owners, or compare with what owners reach alone "
        "(locsage)."
    )


def step(exchange: Exchange, at: Descent, t: int) -> None:
    """One round: ask for the noisy sum, and move."""
    plan, terms = exchange.plan, terms_of(exchange.plan)
    rounds, rate = plan.config.classifier.rounds_c, terms.rounds.rate
    sent = torch.from_numpy(at.weights.astype(np.float32))
    total = exchange.sum(noisy_gradient, Weights(t, at.count, sent)).total
    a, b = terms.bits(at.count)
    gradient = total.double().numpy() / (2.0 ** (a + b) * rate * at.count)
    at.speed = MOMENTUM * at.speed + gradient
    eta = rate_of_learning(plan, at.count) * (1 + math.cos(math.pi * t / rounds)) / 2
    at.weights = at.weights + eta * at.speed
    if t >= rounds * (1 - AVERAGED):
        at.added, at.number = at.added + at.weights, at.number + 1


def classifier_of(plan: Plan, at: Descent) -> Classifier:
    """The weights as those of the backbone ``linear``, on features as they are."""
    found, along = SHARPNESS * at.result, projection(plan)
    weight = math.sqrt(1 - BIAS**2) * found[:-1]
    if along is not None:
        weight = along.double().numpy() @ weight
    phi = {"weight": weight, "bias": BIAS * found[-1]}
    return Classifier({k: torch.from_numpy(v.astype(np.float32)) for k, v in phi.items()}, {})


def hand_out(exchange: Exchange, classifier: Classifier) -> None:
    """Give the final classifier to all owners."""
    exchange.all(receive_private, classifier)
