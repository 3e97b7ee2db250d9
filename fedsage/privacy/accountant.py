r"""What noisy sums cost together: node-level (ε, δ) by Rényi differential privacy.

A *charge* is a sum of vectors of whole numbers, one for each node, with discrete Gaussian
noise. Charges are added up by their Rényi divergences:

- Discrete Gaussian noise costs no more than Gaussian noise, at every order and coordinate:
  Canonne, Kamath and Steinke, 2020, https://arxiv.org/abs/2004.00010.
- Poisson sampling, at orders that are whole numbers: Mironov, Talwar and Zhang, 2019,
  https://arxiv.org/abs/1908.10530. Their sum needs the divergences above and no more.
- A sum of owners' shares of the noise is nearly one discrete Gaussian: Kairouz, Liu and
  Steinke, 2021, https://arxiv.org/abs/2102.06387. How near is ``gap``; it is charged too.
- From Rényi to (ε, δ): Canonne, Kamath and Steinke again.

The arithmetic is that of ``dp-accounting``. Neighbors differ by one node that is there or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedsage.errors import PrivacyError

ORDERS = (*range(2, 129), 160, 192, 256, 384, 512, 1024, 2048)  # whole numbers only
MOST = 1e6  # a noise multiplier beyond which nothing can be learned


@dataclass(frozen=True, slots=True)
class Charge:
    """Noisy sums that were, or are to be, made known.

    Args:
        noise: Standard deviation of the noise in the sum, divided by how far one node can
            move the sum (in Euclidean length).
        rate: The chance of each node to be in the sum; 1 if all are.
        times: How many such sums.
        gap: How far, at most, the logarithm of a probability is from that of one discrete
            Gaussian, in one sum.
    """

    noise: float
    rate: float = 1.0
    times: int = 1
    gap: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that are no charge."""
        fits = self.noise > 0 and 0 < self.rate <= 1 and self.times >= 0 and self.gap >= 0
        if not (fits and math.isfinite(self.noise) and math.isfinite(self.gap)):
            raise PrivacyError(f"{self} is not a charge. Noise must be above 0, a rate in 0–1.")


def spent(charges: Sequence[Charge], delta: float) -> float:
    """The ε that all charges together have at this δ."""
    gap = sum(one.gap * one.times for one in charges)
    return composed(tuple(charges), delta * math.exp(-gap)) + 2 * gap


@lru_cache(maxsize=256)
def composed(charges: tuple[Charge, ...], delta: float) -> float:
    """ε of all charges, as if every sum of shares were one discrete Gaussian."""
    if not any(one.times for one in charges):
        return 0.0
    from dp_accounting.rdp import RdpAccountant  # takes a second to load

    accountant = RdpAccountant(ORDERS)
    for one in charges:
        if one.times:
            accountant.compose(event_of(one), one.times)
    return float(accountant.get_epsilon(delta))


def event_of(charge: Charge) -> Any:
    """One sum of a charge, as ``dp-accounting`` calls it."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    noise = GaussianDpEvent(charge.noise)
    return noise if charge.rate == 1 else PoissonSampledDpEvent(charge.rate, noise)


def noise_for(
    epsilon: float, delta: float, charges: Callable[[float], Sequence[Charge]]
) -> float:
    """The smallest noise with which ``charges`` cost no more than (ε, δ), to three digits."""
    low, high = 0.0, 1.0
    while spent(charges(high), delta) > epsilon:
        low, high = high, 2 * high
        if high > MOST:
            raise PrivacyError(
                f"ε = {epsilon:g} at δ = {delta:g} needs noise of more than {MOST:g}. Choose "
                "a larger ε."
            )
    while high - low > high / 2000:
        middle = (low + high) / 2
        low, high = (middle, high) if spent(charges(middle), delta) > epsilon else (low, middle)
    return high


def honest(owners: int) -> int:
    """How many owners' noise must suffice: a third may vanish or tell the server their own.

    Of two or more owners, one at least: every owner knows its own noise.
    """
    return owners - max(owners // 3, min(owners - 1, 1))


def gap_of(shares: int, variance: float, coordinates: int) -> float:
    """How far a sum of ``shares`` discrete Gaussians can be from one, for all coordinates."""
    assert variance >= 0.5  # of each share; the bound holds from there on
    terms = (
        math.exp(-2 * math.pi**2 * variance * k / (k + 1)) for k in range(1, max(shares, 1))
    )
    return 10 * coordinates * sum(terms)
