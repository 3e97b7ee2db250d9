"""Sparse matrix × dense matrix, with a gradient: the one product all layers are made of."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array, issparse
from torch import Tensor
from torch.autograd.function import FunctionCtx

from fedsage.models import fused_product
from fedsage.models.fused_cache import read_only
from fedsage.models.parameters import Hidden, Inputs
from fedsage.shapes import Array, SparseMatrix


def product(h: Inputs, weight: Hidden) -> Hidden:
    """``h @ weight`` for sparse or dense ``h``."""
    return sparse_product(h, weight) if issparse(h) else h @ weight


def sparse_product(a: SparseMatrix, h: Hidden) -> Hidden:
    """``a @ h`` in float32, with a gradient in ``h``.

    On a CPU both directions are compiled loops over the stored values: several times faster
    than SciPy's or torch's own, and the same bits whatever the number of threads. Other
    devices take :func:`bag_product`.
    """
    if h.device.type == "cpu":
        found: Tensor = CpuProduct.apply(a, h)  # type: ignore[no-untyped-call]
        return found
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
        return compiled(fused_product.forward, a, h, a.shape[0])

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[None, Tensor]:
        """The gradient in ``h``."""
        a: SparseMatrix = ctx.a  # type: ignore[attr-defined]
        return None, compiled(fused_product.backward, a, gradient, a.shape[1])


def compiled(way: Any, a: SparseMatrix, table: Tensor, num_rows: int) -> Tensor:
    """A new table of ``num_rows`` to which one of the compiled products was added."""
    out = np.zeros((num_rows, table.shape[1]), np.float32)
    rows = table.detach().contiguous().numpy()
    way(*stored(a), read_only(rows), out)
    return torch.from_numpy(out)


def stored(a: SparseMatrix) -> tuple[Array, Array, Array]:
    """The arrays of ``a``, of the types that the code was compiled for."""
    indptr = a.indptr.astype(np.int64, copy=False)
    indices = a.indices.astype(np.int32, copy=False)
    return read_only(indptr), read_only(indices), read_only(a.data)


@cache
def load_products() -> None:
    """Compile both products, or load them from the cache: the first call of a process pays."""
    h = torch.ones(1, 1, requires_grad=True)
    sparse_product(csr_array(np.ones((1, 1), np.float32)), h).sum().backward()  # type: ignore[no-untyped-call]
