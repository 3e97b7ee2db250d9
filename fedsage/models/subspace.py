"""The subspace of features: principal components, not centered, by iteration.

Every step takes a product with an owner's features, so an owner counts what it has revealed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import issparse, vstack
from torch import Tensor

from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated
from fedsage.models.parameters import sha256_of
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


@dataclass(frozen=True, slots=True)
class SketchedState:
    """Which sketches of its features an owner was asked for, and whether it gave them."""

    columns: int  # of all of them together
    answered: dict[str, bool]  # by the checksum of the basis


class Sketched:
    """How much an owner has revealed of its features. It is never forgotten."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.product: Basis | None = None  # the last answer, until it is sent
        self.told = SketchedState(0, {})

    def state(self) -> SketchedState:
        """What was asked for so far."""
        return self.told

    def restore(self, state: SketchedState) -> None:
        """Add what was revealed before a restart; nothing is ever subtracted."""
        columns = max(self.told.columns, state.columns)
        self.told = SketchedState(columns, self.told.answered | state.answered)

    def may_answer(self, basis: Basis) -> bool:
        """Whether all answers together stay within half as many columns as nodes.

        As many columns as nodes would span every row of X_i. The same basis again, after a
        restart, has the same answer and counts once.
        """
        known = sha256_of({"": basis})
        if known not in self.told.answered:
            columns = self.told.columns + basis.shape[1]
            within = 2 * columns <= self.num_nodes
            self.told = SketchedState(columns, self.told.answered | {known: within})
        return self.told.answered[known]
