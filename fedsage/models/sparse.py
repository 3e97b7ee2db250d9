"""Sparse matrix × dense matrix, with a gradient: the product that all layers are made of."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy.sparse import issparse
from torch import Tensor
from torch.autograd.function import FunctionCtx

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import row_shares
from fedsage.kernels.door import add_product
from fedsage.models.parameters import Hidden, Inputs, Stacked
from fedsage.shapes import Array, NodeIds, SparseMatrix


def product(h: Inputs, weight: Hidden) -> Hidden:
    """``h @ weight`` for ``h`` sparse, dense, or one stacked on the other."""
    if isinstance(h, Stacked):
        return torch.cat([product(h.real, weight), h.generated @ weight])
    return sparse_product(h, weight) if issparse(h) else h @ weight


def sparse_product(a: SparseMatrix, h: Hidden) -> Hidden:
    """``a @ h`` in float32, with a gradient in ``h`` if needed.

    With a gradient, on a CPU, both directions are SciPy's loops over the stored values: faster
    than torch's own for the few thousand rows of a batch, and the same bits with any number
    of threads. Queries need no gradient and use compiled code. Other devices use
    :func:`bag_product`.
    """
    if h.device.type != "cpu":
        return bag_product(a, h)
    if not (torch.is_grad_enabled() and h.requires_grad):
        return compiled_product(a, h)
    found: Tensor = CpuProduct.apply(a, h)  # type: ignore[no-untyped-call]
    return found


def bag_product(a: SparseMatrix, h: Hidden) -> Hidden:
    """``a @ h`` as a weighted sum over the rows of ``h`` that each row of ``a`` selects."""
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


def compiled_product(a: SparseMatrix, h: Hidden) -> Hidden:
    """``a @ h`` by compiled code, which has no gradient."""
    out = torch.from_numpy(np.zeros((a.shape[0], h.shape[1]), np.float32))
    add_compiled_product(out, a, h)
    return out


def add_compiled_product(out: Hidden, a: SparseMatrix, h: Hidden) -> None:
    """``out += a @ h``, in place."""
    if a.shape != (len(out), len(h)):
        raise ValueError(f"No product of {a.shape} and {tuple(h.shape)} for {len(out)} rows.")
    pointers = a.indptr.astype(np.int64, copy=False)
    add_product(out.numpy(), pointers[:-1], pointers[1:], a.indices, a.data, rows_of(h))


def add_compiled_means(out: Hidden, graph: Graph, nodes: NodeIds | None, h: Hidden) -> None:
    """``out +=`` the mean of ``h`` over the neighbors of ``nodes``, or of all nodes."""
    starts, ends = graph.indptr[:-1], graph.indptr[1:]
    if nodes is not None:
        starts, ends = starts[nodes], ends[nodes]
    if graph.weights is not None:
        weighted = row_shares(graph), rows_of(h)
        add_product(out.numpy(), starts, ends, graph.indices, *weighted)
        return
    shares = (1 / np.maximum(ends - starts, 1)).astype(np.float32)
    add_product(out.numpy(), starts, ends, graph.indices, shares, rows_of(h), shared=True)


def rows_of(h: Hidden) -> Float[Array, "_ d"]:
    """A table in the form that compiled code expects."""
    return h.detach().contiguous().numpy()
