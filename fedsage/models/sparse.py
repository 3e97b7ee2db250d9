"""Sparse matrix × dense matrix, with a gradient: the one product all layers are made of."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from fedsage.models.parameters import Hidden
from fedsage.shapes import SparseMatrix


def sparse_product(a: SparseMatrix, h: Hidden) -> Hidden:
    """``a @ h``, with a gradient in ``h``.

    On a CPU both directions are SciPy's compiled loops over the stored values: several times
    faster than torch's own sparse kernels for the few thousand rows of a batch, and the same
    bits whatever the number of threads. Other devices take :func:`bag_product`.
    """
    if h.device.type == "cpu":
        product: Tensor = CpuProduct.apply(a, h)  # type: ignore[no-untyped-call]
        return product
    return bag_product(a, h)


def bag_product(a: SparseMatrix, h: Hidden) -> Hidden:
    """``a @ h`` as a weighted sum over the rows of ``h`` that each row of ``a`` picks."""
    picked = torch.from_numpy(a.indices.astype(np.int64)).to(h.device)
    offsets = torch.from_numpy(a.indptr[:-1].astype(np.int64)).to(h.device)
    weights = torch.tensor(a.data, device=h.device)
    return F.embedding_bag(picked, h, offsets, per_sample_weights=weights, mode="sum")


class CpuProduct(torch.autograd.Function):
    """``a @ h`` forward, ``aᵀ @ g`` backward."""

    @staticmethod
    def forward(ctx: FunctionCtx, a: SparseMatrix, h: Tensor) -> Tensor:
        """The product."""
        ctx.a = a  # type: ignore[attr-defined]
        return torch.from_numpy(a @ h.detach().numpy())

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[None, Tensor]:
        """The gradient in ``h``."""
        return None, torch.from_numpy(ctx.a.T @ gradient.numpy())  # type: ignore[attr-defined]
