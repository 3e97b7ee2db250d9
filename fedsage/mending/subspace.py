"""Neighbors from the words that go together at all owners: a linear generator.

All owners' features have a best subspace of a given rank (their principal components, not
centered). It is found by subspace iteration, for which the server needs nothing but sums
over owners. A node's features projected on it are the node as its likes would have it:
words that everybody uses together come in, words that nobody else uses go out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import issparse, vstack
from torch import Tensor

from fedsage.errors import ProtocolError
from fedsage.graph.attach import Generated
from fedsage.graph.graph import Graph
from fedsage.mending.way import way_of_mending
from fedsage.models.parameters import sha256_of
from fedsage.models.row_form import ROWS_AT_A_TIME, like_real_rows, row_form_of
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import AtMost, Mended, OwnerId, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Summed, procedure
from fedsage.shapes import NodeFeatures

STEPS = 4  # of the iteration: more change no accuracy
Basis: TypeAlias = Float[Tensor, "d_x rank"]


@message
class Subspace:
    """S → every D_i: where all owners' features lie."""

    basis: Basis


@message
class Sketch:
    """D_i → S: X_iᵀ X_i times that basis.

    A sum over all nodes of D_i, of which S needs the sum over owners alone.
    """

    product: Basis


def random_basis(num_features: int, rank: int, generator: np.random.Generator) -> Basis:
    """Where the iteration starts."""
    start = generator.standard_normal((num_features, rank), dtype=np.float32)
    return orthonormal(torch.from_numpy(start))


def orthonormal(product: Basis) -> Basis:
    """An orthonormal basis of the columns' span."""
    return torch.linalg.qr(product.double()).Q.float()


def sketch(x: NodeFeatures, basis: Basis) -> Basis:
    r""":math:`X_i^T X_i Q`: what one owner adds to a step of the iteration."""
    return torch.from_numpy(np.asarray(x.T @ (x @ basis.numpy()), dtype=np.float32))


def reconstructions(graph: Graph, basis: Basis) -> Generated:
    """Two neighbors for every node: the node itself, and its projection on the subspace.

    Note:
        The projection is made as long and as full as real rows. A node's own features beside
        it keep what is particular to the node.
    """
    q = basis.numpy()
    form = row_form_of(graph.x, keep_words=True, match_norms=True)
    parts = []
    for start in range(0, graph.num_nodes, ROWS_AT_A_TIME):
        rows = graph.x[start : start + ROWS_AT_A_TIME]
        projected = torch.from_numpy(np.asarray((rows @ q) @ q.T, dtype=np.float32))
        parts.append(like_real_rows(projected, form))
    parents = np.tile(np.arange(graph.num_nodes), 2)
    both = [graph.x, *parts]
    return Generated(
        parents, vstack(both).tocsr() if issparse(graph.x) else np.concatenate(both)
    )


@dataclass(frozen=True, slots=True)
class SketchedState:
    """Which sketches of its features an owner was asked for, and whether it gave them."""

    columns: int  # of all of them together
    answered: dict[str, bool]  # by the checksum of the basis


class Sketched:
    """How much an owner has told of its features. It is never forgotten."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.told = SketchedState(0, {})

    def state(self) -> SketchedState:
        """What was asked for so far."""
        return self.told

    def restore(self, state: SketchedState) -> None:
        """Remember what was told before a restart, too; nothing is ever taken back."""
        columns = max(self.told.columns, state.columns)
        self.told = SketchedState(columns, self.told.answered | state.answered)

    def may_answer(self, basis: Basis) -> bool:
        """Whether all answers together stay within half as many columns as nodes.

        As many as nodes would span every row of X_i. The same basis again, after a restart,
        has the same answer and counts once.
        """
        known = sha256_of({"": basis})
        if known not in self.told.answered:
            columns = self.told.columns + basis.shape[1]
            within = 2 * columns <= self.num_nodes
            self.told = SketchedState(columns, self.told.answered | {known: within})
        return self.told.answered[known]


def sketched(owner: DataOwner) -> Sketched:
    """How much this owner has told."""
    return owner.part("sketched", lambda: Sketched(owner.graph.num_nodes))


def another_size(plan: Plan, owner: OwnerId, subspace: Subspace, reply: Sketch) -> str | None:
    """A sketch that is not as large as the basis that was sent."""
    asked, found = tuple(subspace.basis.shape), tuple(reply.product.shape)
    return None if found == asked else f"a sketch of {found}, where {asked} was agreed"


@procedure(
    phase="mending",
    uses=Summed,
    shapes=lambda plan: {"product": (plan.d_x, AtMost(plan.config.mend.rank))},
    check=another_size,
    keeps=sketched,
    leaves="Before training, a few times: a product of your feature table with itself and a "
    "basis that all owners share (a sum over all your nodes).",
)
def sketch_features(owner: DataOwner, subspace: Subspace) -> Sketch:
    """This owner's part of a step towards the common subspace; zeros where it told enough."""
    if not sketched(owner).may_answer(subspace.basis):
        return Sketch(torch.zeros_like(subspace.basis))
    return Sketch(sketch(owner.graph.x, subspace.basis))


@procedure(phase="mending", owed=True)
def mend_by_subspace(owner: DataOwner, subspace: Subspace) -> Mended:
    """Attach to every node what the common subspace makes of it."""
    return owner.attach(reconstructions(owner.graph, subspace.basis))


@way_of_mending("subspace")
def by_subspace(exchange: Exchange) -> None:
    """Projections on the subspace of all owners' features: a few sums are exchanged."""
    exchange.all(mend_by_subspace, common_subspace(exchange))


def common_subspace(exchange: Exchange) -> Subspace:
    """The subspace of all owners' features, by subspace iteration on sums over owners."""
    found = Subspace(first_basis(exchange.plan))
    for _ in range(STEPS):
        total = exchange.sum(sketch_features, found).product
        if not total.any():
            raise ProtocolError(
                "No owner added anything to the common subspace: their features are all zero, "
                f"or they have too few nodes for {STEPS} answers of rank {total.shape[1]}. "
                "Lower mend.rank."
            )
        found = Subspace(orthonormal(total))
    return found


def first_basis(plan: Plan) -> Basis:
    """Where the search for the common subspace starts.

    Its rank is as set, but such that the columns of all answers together are at most half
    the nodes of the smallest owner (see :class:`Sketched`).
    """
    rank = max(1, min(plan.config.mend.rank, min(plan.nodes) // (2 * STEPS), plan.d_x))
    return random_basis(plan.d_x, rank, plan.stream("subspace"))
