"""The paper's loss terms, one function each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from fedsage.graph.arrays import dense_columns
from fedsage.models.nearest import nearest, nearest_hidden
from fedsage.models.parameters import Logits
from fedsage.shapes import Array, NodeFeatures, NodeIds, SparseMatrix

Scalar = Float[Tensor, ""]
ClassWeights = Float[Tensor, " d_y"]  # how much a node of each class counts


def classification_loss(
    logits: Logits, y: Int[Tensor, " n"], weights: ClassWeights | None = None
) -> Scalar:
    r"""Eq. (2), :math:`\mathcal{L}^c`: cross entropy of Softmax(h^K) against the labels.

    .. math::
        \mathcal{L}^c = -\frac{1}{|V_i^t|} \sum_{v \in V_i^t} \log \widetilde{y}_v[y_v]

    Note:
        The paper prints the binary form for a one-hot label; we use the categorical one.
        With ``weights``, nodes count by their class (``classifier.class_weights``).
    """
    return F.cross_entropy(logits, y, weights)


def degree_loss(
    num_generated: Float[Tensor, " batch"], num_missing: Float[Tensor, " batch"]
) -> Scalar:
    r"""Eq. (4), :math:`\mathcal{L}^d`: smooth L1 between predicted and true counts.

    .. math::
        \mathcal{L}^d = \frac{1}{|\bar V_i|} \sum_{v \in \bar V_i}
        L_1^S(\widetilde n_v - n_v)

    Args:
        num_generated: :math:`\widetilde n_v` as dGen predicts it, before rounding.
        num_missing: :math:`n_v`.
    """
    return F.smooth_l1_loss(num_generated, num_missing)


def feature_loss(
    generated: Float[Tensor, "rows d_x"],
    of: Int[Array, " rows"],
    missing: SparseMatrix,
    x_hidden: NodeFeatures,
) -> Scalar:
    r"""Eq. (4), :math:`\mathcal{L}^f`: distance to the nearest of the hidden neighbors.

    .. math::
        \mathcal{L}^f = \frac{1}{|\bar V_i|} \sum_{v \in \bar V_i}
        \sum_{p \in [\widetilde n_v]} \min_{u \in \mathcal{N}_{G_i}(v) \cap V^h_i}
        \lVert \widetilde x_v^p - x_u \rVert_2^2

    Args:
        generated: All :math:`\widetilde x_v^p`, one after the other.
        of: The v of each of them: a row of ``missing``.
        missing: One row for each node of the batch, marking its hidden neighbors.
        x_hidden: :math:`X^h_i`.

    Note:
        A node with no hidden neighbor has no min to take and adds nothing.
    """
    rows, found = nearest_hidden(generated, of, missing, x_hidden)
    near = generated.T.index_select(1, torch.from_numpy(rows).to(generated.device)).T
    return squared_distance(near, x_hidden, found) / missing.shape[0]


def cross_subgraph_feature_loss(
    generated: Float[Tensor, "rows d_x"],
    num_embeddings: int,
    x_other: NodeFeatures,
    squares: Float[Array, " V_j"],
    max_bytes: int,
) -> tuple[Scalar, NodeIds]:
    r"""The second term of Eq. (6): distance to the nearest of another owner's nodes.

    What :math:`D_j` computes for :math:`D_i` in procedure D (FeedForward):

    .. math::
        \mathcal{L}^f_{i,j} = \frac{1}{|Z_i^t|} \sum_{z_v \in Z_i^t}
        \sum_{p \in [\widetilde n_v]} \min_{u \in V_j}
        \lVert H^g_i(z_v)^p - x_u \rVert_2^2

    Args:
        generated: All :math:`H^g_i(z_v)^p`, one after the other.
        num_embeddings: :math:`|Z_i^t|`.
        x_other: :math:`X_j`, the features of every node of :math:`D_j`.
        squares: Their squared norms.
        max_bytes: How much memory the search may use.

    Returns:
        The loss, and the nearest node of each row. The weight :math:`\alpha` is applied in
        ``update_neighgen``.

    Note:
        Which node is nearest has no gradient; how far it is does.
    """
    found = nearest(generated, x_other, squares, max_bytes)
    return squared_distance(generated, x_other, found) / num_embeddings, found


def squared_distance(
    rows: Float[Tensor, "rows d_x"], x: NodeFeatures, nodes: NodeIds
) -> Scalar:
    """The sum over k of ‖rows[k] − x[nodes[k]]‖²; by columns, fGen's memory layout."""
    real = torch.from_numpy(dense_columns(x, nodes))
    return F.mse_loss(rows.T, real.to(rows.device), reduction="sum")


def neighgen_loss(degree: Scalar, feature: Scalar, lambda_d: float, lambda_f: float) -> Scalar:
    r"""Eq. (4), :math:`\mathcal{L}^n = \lambda^d \mathcal{L}^d + \lambda^f \mathcal{L}^f`."""
    return lambda_d * degree + lambda_f * feature


def joint_loss(neighgen: Scalar, classification: Scalar, lambda_c: float) -> Scalar:
    r"""Eq. (5), :math:`\mathcal{L} = \mathcal{L}^n + \lambda^c \mathcal{L}^c`."""
    return neighgen + lambda_c * classification
