"""Empirical ε: how well the strongest attacker tells whether a node was in a private run."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.stats import beta

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.privacy.accountant import honest
from fedsage.privacy.noise import Bits, discrete_gaussian
from fedsage.privacy.records import clipped, summed_gradient
from fedsage.protocol.private import terms_of
from fedsage.protocol.procedures import in_private
from fedsage.shapes import Array

SHADOWS = 20_000  # of each kind; half choose the threshold, the others count
SURE = 0.95
ATTEMPT = Attempt(
    "empirical-epsilon",
    "server and a third of the owners",
    "noisy sums of all rounds, at weights of their choice",
    "ε, lower bound",
)


@attack("empirical-epsilon")
def empirical_epsilon(case: Case) -> Finding:
    """What ε can be shown by guessing, from all noisy sums, whether a node was there?

    The attacker knows everything but that node and the honest owners' noise, and looks along
    the node's own gradient, which is as long as it may be.
    """
    config = case.plan.config
    if not in_private(config):
        return ATTEMPT.not_run("only private runs claim an ε")
    without, with_node = (shadows(case, there) for there in (False, True))
    half = SHADOWS // 2
    threshold = best_threshold(without[:half], with_node[:half], config.privacy.delta)
    caught, wrong = (int((one[half:] > threshold).sum()) for one in (with_node, without))
    found = bound(caught, wrong, half, config.privacy.delta)
    claimed = config.privacy.epsilon
    note = f"claimed: {claimed:g}; {SHADOWS:,} shadow runs with the node and as many without"
    return ATTEMPT.found(found, 0.0, found > claimed, note=note)


def shadows(case: Case, there: bool) -> Float[Array, " n"]:
    """For each shadow run, all its sums along the node's gradient, in units of its length."""
    terms, a, b = terms_of(case.plan), 11, 8
    row = clipped(np.array([[2.0**a, 0.0]]), 2**a)
    against = np.array([[0.0, 1e6], [0.0, 0.0]])  # as sure as can be of the other class
    gradient = summed_gradient(row, np.array([0]), against, a, b).astype(float)
    length = np.linalg.norm(gradient) / 2 ** (a + b)
    reach, rounds = 2 ** (a + b), terms.rounds.times
    variance = terms.variance(terms.noise, reach)
    bits = Bits(case.stream("canary", int(there)).bytes(32), "shadows")
    kept = bits.chosen(SHADOWS * rounds, terms.rounds.rate).reshape(SHADOWS, rounds)
    total = length * kept.sum(axis=1) * there
    for _ in range(rounds * honest(terms.owners)):
        total = total + discrete_gaussian(bits, variance, SHADOWS) / reach
    return np.asarray(total)


def best_threshold(
    without: Float[Array, " n"], with_node: Float[Array, " n"], delta: float
) -> float:
    """The threshold that shows the largest ε on these."""
    tried = np.quantile(with_node, np.linspace(0.02, 0.98, 49))
    counts = [(int((with_node > t).sum()), int((without > t).sum())) for t in tried]
    return float(tried[np.argmax([bound(*one, len(without), delta) for one in counts])])


def bound(caught: int, wrong: int, count: int, delta: float) -> float:
    """ε from both rates, each at the far end of its Clopper–Pearson interval."""
    out = (1 - SURE) / 2
    least = beta.ppf(out, caught, count - caught + 1) if caught else 0.0
    most = beta.ppf(1 - out, wrong + 1, count - wrong) if wrong < count else 1.0
    return max(math.log(max(least - delta, 1e-12) / most), 0.0)
