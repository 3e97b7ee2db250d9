"""The subspace of features: principal components, not centered, by iteration."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import issparse, vstack
from torch import Tensor

from fedsage.graph.attach import Generated
from fedsage.graph.graph import Graph
from fedsage.models.row_form import ROWS_AT_A_TIME, like_real_rows, row_form_of
from fedsage.shapes import NodeFeatures, NodeIds

Basis: TypeAlias = Float[Tensor, "d_x rank"]


def random_basis(num_features: int, rank: int, generator: np.random.Generator) -> Basis:
    """A random start for the iteration."""
    start = generator.standard_normal((num_features, rank), dtype=np.float32)
    return orthonormal(torch.from_numpy(start))


def orthonormal(product: Basis) -> Basis:
    """An orthonormal basis of the columns' span."""
    return torch.linalg.qr(product.double()).Q.float()


def sketch(x: NodeFeatures, basis: Basis) -> Basis:
    r""":math:`X_i^T X_i Q`: what one owner adds to a step of the iteration."""
    return torch.from_numpy(np.asarray(x.T @ (x @ basis.numpy()), dtype=np.float32))


def reconstructions(graph: Graph, basis: Basis) -> Generated:
    """Two neighbors for every node: the node itself, and its projection onto the subspace.

    Note:
        The projection is made as long and as sparse as real rows. A copy of the node's own
        features keeps what is particular to the node.
    """
    return reconstructions_of(graph.x, np.arange(graph.num_nodes), graph, basis)


def reconstructions_of(x: NodeFeatures, nodes: NodeIds, like: Graph, basis: Basis) -> Generated:
    """The same for ``nodes`` with features ``x``; projections look like rows of ``like``."""
    q = basis.numpy()
    form = row_form_of(like.x, keep_words=True, match_norms=True)
    parts = []
    for start in range(0, len(nodes), ROWS_AT_A_TIME):
        rows = x[start : start + ROWS_AT_A_TIME]
        projected = torch.from_numpy(np.asarray((rows @ q) @ q.T, dtype=np.float32))
        parts.append(like_real_rows(projected, form))
    both = [x, *parts]
    stacked = vstack(both).tocsr() if issparse(x) else np.concatenate(both)
    return Generated(np.tile(nodes, 2), stacked)
