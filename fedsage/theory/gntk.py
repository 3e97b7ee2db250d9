"""GNTK for node classification (appendix of the paper): Σ, Σ̇ and Θ, in float64.

The double sums over neighborhoods are products with one sparse matrix from both sides.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, diags_array, eye_array, issparse
from scipy.sparse.csgraph import connected_components

from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.shapes import Array, NodeIds, SparseMatrix

NodeScale: TypeAlias = Literal["unit", "mean", "sum"]
Kernel: TypeAlias = Float[Array, "n n"]
SAME_WITHIN = 1e-9  # correlations closer to one than this are one up to rounding


def gntk(
    graph: Graph,
    num_layers: int = 1,
    num_transforms: int = 1,
    node_scale: NodeScale = "unit",
    act_scale: float = 1.0,
) -> Kernel:
    r"""Definition of GNTK for node classification: Θ of all pairs of nodes.

    .. math::
        \Theta^{(k)}_{(r)} = \Theta^{(k)}_{(r-1)} \circ \dot\Sigma^{(k)}_{(r)}
        + \Sigma^{(k)}_{(r)}

    after each aggregation, with :math:`\Sigma^{(0)} = \Theta^{(0)} = X X^T`.

    Args:
        graph: The nodes of the kernel and all their neighbors.
        num_layers: K, the number of aggregations over neighborhoods.
        num_transforms: R, fully connected layers in each aggregation.
        node_scale: c_u: ``unit`` gives the first aggregate length one (as the lemmas assume),
            ``mean`` is one over the number of nodes summed, ``sum`` is one.
        act_scale: c_σ; the lemmas use 1, He's initialization is 2.

    Note:
        The lemmas define Θ for K = R = 1, where the aggregated Θ equals the aggregated Σ, as
        it does here.
    """
    if num_layers < 1 or num_transforms < 1:
        raise ConfigError(
            f"GNTK needs at least one layer and one transformation, but num_layers is "
            f"{num_layers} and num_transforms is {num_transforms}."
        )
    around = neighborhood_sums(graph, node_scale)
    product = graph.x @ graph.x.T
    cov = np.asarray(product.toarray() if issparse(product) else product, dtype=np.float64)
    theta = cov
    for _ in range(num_layers):
        cov, theta = aggregate(around, cov), aggregate(around, theta)
        for _ in range(num_transforms):
            cov, cov_dot = relu_covariance(cov, act_scale), relu_covariance_dot(cov, act_scale)
            theta = theta * cov_dot + cov
    return theta


def neighborhood_sums(graph: Graph, node_scale: NodeScale) -> SparseMatrix:
    """The matrix whose row u is c_u at u and at each of its neighbors."""
    adjacency = csr_array(graph.adjacency, dtype=np.float64)
    sums = (adjacency + eye_array(graph.num_nodes)).tocsr()
    if node_scale == "unit":
        total = sums @ graph.x
        squares = total.multiply(total).sum(axis=1) if issparse(total) else (total**2).sum(1)
        length = np.sqrt(np.asarray(squares, dtype=np.float64)).ravel()
        scale = 1 / np.where(length > 0, length, 1)
    else:
        scale = 1 / (graph.degrees + 1) if node_scale == "mean" else np.ones(graph.num_nodes)
    return (diags_array(scale) @ sums).tocsr()


def aggregate(around: SparseMatrix, kernel: Kernel) -> Kernel:
    r"""Step 1 of the appendix, the aggregation of Σ or Θ.

    .. math::
        c_u c_v \sum_{u' \in \mathcal{N}(u) \cup \{u\}}
        \sum_{v' \in \mathcal{N}(v) \cup \{v\}} [\cdot]_{u'v'}
    """
    half = around @ kernel
    result: Kernel = around @ half.T
    return result.T


def relu_covariance(cov: Kernel, act_scale: float = 1.0) -> Kernel:
    r"""Step 2 of the appendix, :math:`\Sigma_{(r)} = c_\sigma E[\sigma(a) \sigma(b)]`.

    .. math::
        c_\sigma \sqrt{\Sigma_{uu} \Sigma_{vv}} \,
        \frac{\rho (\pi - \arccos \rho) + \sqrt{1 - \rho^2}}{2 \pi}

    with ρ the correlation of a and b.

    Note:
        The paper prints the sum without the factor ρ, which is not a covariance of ReLUs; a
        Monte Carlo test confirms the formula used here.
    """
    rho, lengths = correlations(cov)
    angle = rho * (np.pi - np.arccos(rho)) + np.sqrt(1 - rho**2)
    return act_scale * lengths * angle / (2 * np.pi)


def relu_covariance_dot(cov: Kernel, act_scale: float = 1.0) -> Kernel:
    r"""Step 2 of the appendix, Σ̇: the same for the derivatives of ReLU.

    .. math::
        c_\sigma E[\dot\sigma(a) \dot\sigma(b)] = c_\sigma (\pi - \arccos \rho) / 2 \pi
    """
    rho, _ = correlations(cov)
    return act_scale * (np.pi - np.arccos(rho)) / (2 * np.pi)


def distinct_nodes(theta: Kernel) -> NodeIds:
    """The first node of each group that the kernel cannot tell apart.

    Two nodes whose aggregated features point the same way (for example, two that are linked
    only to each other) have the same row in Θ up to a factor, so Θ has no inverse with both.
    """
    rho, _ = correlations(theta)
    same = csr_array(rho > 1 - SAME_WITHIN)
    _, group = connected_components(same, directed=False)
    return np.unique(group, return_index=True)[1]


def correlations(cov: Kernel) -> tuple[Kernel, Kernel]:
    """ρ of all pairs, and the products of their standard deviations."""
    deviation = np.sqrt(np.clip(np.diag(cov), 0, None))
    lengths = np.outer(deviation, deviation)
    rho = np.divide(cov, lengths, out=np.zeros_like(cov), where=lengths > 0)
    return rho.clip(-1, 1), lengths
