"""The generalization bound of the paper's appendix, and its two lemmas."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve

from fedsage.errors import ConfigError
from fedsage.shapes import Array
from fedsage.theory.gntk import Kernel


def generalization_bound(theta: Kernel, y: Float[Array, " n"], failure_prob: float) -> float:
    r"""Theorem on the generalization bound, without its constant.

    .. math::
        \frac{\sqrt{y^T \Theta^{-1} y \cdot \mathrm{tr}(\Theta)}}{n}
        + \sqrt{\frac{\log(1 / \sigma)}{n}}

    Args:
        theta: Θ of the training nodes.
        y: Their labels, as numbers.
        failure_prob: σ: the bound holds with probability 1 − σ.
    """
    if not 0 < failure_prob < 1:
        raise ConfigError(f"failure_prob is {failure_prob}, but must be between 0 and 1.")
    num_samples = len(y)
    complexity = label_norm(theta, y) * math.sqrt(float(np.trace(theta))) / num_samples
    return complexity + math.sqrt(math.log(1 / failure_prob) / num_samples)


def label_norm(theta: Kernel, y: Float[Array, " n"]) -> float:
    r""":math:`\sqrt{y^T \Theta^{-1} y}`, with a ridge of 1e-10 of the mean diagonal."""
    ridge = 1e-10 * float(np.trace(theta)) / len(y)
    factor = cho_factor(theta + ridge * np.eye(len(y)), lower=True)
    return math.sqrt(max(float(y @ cho_solve(factor, y)), 0.0))


def label_norm_bound(
    first: tuple[float, float], label_coefs: Sequence[float], lengths: Sequence[float]
) -> float:
    r"""Lemma on :math:`\sqrt{y^T \Theta^{-1} y}` for labels that are a series in h̄_u.

    .. math::
        2 |\alpha_1| \lVert \beta_1 \rVert + \sum_{l \geq 1} \sqrt{2 \pi} (2l - 1)
        |\alpha_{2l}| \lVert \beta_{2l} \rVert^{2l}

    Args:
        first: :math:`\alpha_1` and :math:`\lVert \beta_1 \rVert`.
        label_coefs: :math:`\alpha_2, \alpha_4, \ldots`.
        lengths: :math:`\lVert \beta_2 \rVert, \lVert \beta_4 \rVert, \ldots`.

    Note:
        The proof's line for k = 0 prints 4|α₁|; the lemma's 2|α₁| is right.
    """
    total = 2 * abs(first[0]) * first[1]
    for k, (coef, length) in enumerate(zip(label_coefs, lengths, strict=True), start=1):
        total += math.sqrt(2 * math.pi) * (2 * k - 1) * abs(coef) * length ** (2 * k)
    return total


def trace_bound(num_samples: int) -> float:
    r"""Lemma on tr(Θ): at most 2n, for K = R = 1, c_σ = 1 and aggregates of length one."""
    return 2.0 * num_samples


def predict_by_kernel(
    theta: Kernel, train: Array, test: Array, targets: Float[Array, "n d_y"]
) -> Float[Array, "m d_y"]:
    """What a fully trained network would predict for ``test``: kernel regression with Θ."""
    ridge = 1e-6 * float(np.trace(theta)) / len(theta)
    inner = theta[np.ix_(train, train)] + ridge * np.eye(len(train))
    weights = cho_solve(cho_factor(inner, lower=True), targets)
    answer: Float[Array, "m d_y"] = theta[np.ix_(test, train)] @ weights
    return answer
