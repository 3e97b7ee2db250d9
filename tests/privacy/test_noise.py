from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from fedsage.privacy import noise
from fedsage.privacy.noise import Bits, discrete_gaussian, discrete_laplace

SECRET = b"of one owner"


def chances(variance: int) -> tuple[np.ndarray, np.ndarray]:
    """The formula: P(x) ∝ exp(−x² / 2σ²)."""
    reach = int(9 * variance**0.5) + 2
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * variance))
    return x, weights / weights.sum()


@pytest.mark.parametrize("variance", [1, 2, 7, 400])
def test_noise_has_the_distribution_of_the_formula(variance):
    count = 200_000
    drawn = discrete_gaussian(Bits(SECRET, "fit", variance), variance, count)
    x, chance = chances(variance)
    seen = np.bincount(drawn - x[0], minlength=len(x)).astype(float)
    often = chance * count >= 10
    tail = ~often
    observed = np.append(seen[often], seen[tail].sum())
    expected = np.append(chance[often], chance[tail].sum()) * count
    assert chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("variance", [3, 10**6, 3 * 10**11])
def test_noise_has_the_moments_of_a_gaussian(variance):
    count = 400_000
    drawn = discrete_gaussian(Bits(SECRET, "moments", variance), variance, count)
    z = drawn / variance**0.5
    assert abs(z.mean()) < 4 / count**0.5
    assert abs((z**2).mean() - 1) < 4 * (2 / count) ** 0.5
    assert abs((z**3).mean()) < 4 * (15 / count) ** 0.5
    assert abs((z**4).mean() - 3) < 4 * (96 / count) ** 0.5


def test_laplace_noise_has_its_distribution():
    count, scale = 100_000, 3
    drawn = np.abs(discrete_laplace(Bits(SECRET, "laplace"), scale, count))
    ratio = np.exp(-1 / scale)
    expected = np.array(
        [(1 - ratio) / (1 + ratio) * (2 if k else 1) * ratio**k for k in range(20)]
    )
    seen = np.bincount(drawn, minlength=20)[:20]
    rest = [count - seen.sum()], [count * (1 - expected.sum())]
    assert chisquare([*seen, *rest[0]], [*(expected * count), *rest[1]]).pvalue > 1e-3


def test_a_comparison_that_rounding_could_change_is_made_exactly(monkeypatch):
    """With a margin of one, every comparison is exact: the same numbers come out."""
    usual = discrete_gaussian(Bits(SECRET, "exact"), 50, 40)
    decided: list[bool] = []
    whole = Bits.decided

    def counted(bits: Bits, word: int, gamma: Fraction) -> bool:
        decided.append(whole(Bits(SECRET, "more"), word, gamma))  # leaves the stream alone
        return decided[-1]

    monkeypatch.setattr(Bits, "decided", counted)
    monkeypatch.setattr(noise, "MARGIN", 1.0)
    assert (discrete_gaussian(Bits(SECRET, "exact"), 50, 40) == usual).all()
    assert len(decided) > 100
    just_below = int(Decimal(-1).exp() * 2**64)
    assert Bits(SECRET).decided(just_below - 1, Fraction(1))
    assert not Bits(SECRET).decided(just_below + 1, Fraction(1))


def test_noise_depends_on_the_secret_and_on_its_purpose_alone():
    def drawn(secret: bytes, *about: str | int) -> list[int]:
        return discrete_gaussian(Bits(secret, *about), 10**6, 8).tolist()

    assert drawn(b"one", "round", 1) == drawn(b"one", "round", 1)
    assert drawn(b"one", "round", 1) != drawn(b"one", "round", 2)
    assert drawn(b"one", "round", 1) != drawn(b"two", "round", 1)


def test_sampling_keeps_each_node_by_itself():
    chosen = Bits(SECRET, "nodes").chosen(200_000, 0.3)
    assert abs(chosen.mean() - 0.3) < 4 * (0.21 / 200_000) ** 0.5
    neighbors = np.corrcoef(chosen[1:], chosen[:-1])[0, 1]
    assert abs(neighbors) < 4 / 200_000**0.5
    assert Bits(SECRET, "all").chosen(10, 1.0).all()
