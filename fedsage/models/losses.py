"""The paper's loss terms, one function each."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from fedsage.models.parameters import Logits


def classification_loss(logits: Logits, y: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    r"""Eq. (2), :math:`\mathcal{L}^c`: cross entropy of Softmax(h^K) against the labels.

    .. math::
        \mathcal{L}^c = -\frac{1}{|V_i^t|} \sum_{v \in V_i^t} \log \widetilde{y}_v[y_v]

    Note:
        The paper prints the binary form for a one-hot label; we take the categorical one.
    """
    return F.cross_entropy(logits, y)
