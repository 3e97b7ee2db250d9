"""Neighbors from words that occur together at all owners: a linear generator.

All owners' features have a best subspace of a given rank (their principal components, not
centered). It is found by subspace iteration, for which the server needs only sums over owners.
A node's features projected onto it look like those of similar nodes: words that are used
together elsewhere are added, words that nobody else uses are removed.
"""

from __future__ import annotations

import numpy as np
import torch

from fedsage.errors import PrivacyError, ProtocolError
from fedsage.graph.mend import Generated
from fedsage.mending.way import NewNodes, way_of_mending
from fedsage.models.subspace import (
    Basis,
    Sketched,
    orthonormal,
    random_basis,
    reconstructions,
    reconstructions_of,
    sketch,
)
from fedsage.privacy.sums import Ring, Whole, as_sum, decode, encode, exponents_for, ring_for
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import AtMost, Ints, Mended, OwnerId, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import (
    Summed,
    in_full,
    in_sums,
    in_whole_numbers,
    procedure,
)
from fedsage.protocol.wire import encode as to_frame

STEPS = 4  # of the iteration: more do not change the accuracy
WHOLE_STEPS = 3  # of the iteration in whole numbers
ROOM = 10.0  # the largest value that is not clipped, in root mean squares
NO_UNITS = torch.empty(0, dtype=torch.int16)


@message
class Subspace:
    """S → every D_i: a basis of the subspace of all owners' features."""

    basis: Basis


@message
class Directions:
    """S → every D_i: the same in integers.

    The first basis is not sent: everybody draws it, given its ``rank``.
    """

    rank: int
    basis: Whole
    exponents: Whole  # of its units, one for each column


@message
class SketchSizes:
    """D_i → S: roughly how large the columns of its sketch are, as exponents of two."""

    exponents: Whole


@message
class SketchUnits:
    """S → every D_i: the units of the sketch, and how many owners share the ring."""

    owners: int
    exponents: Whole


@message
class WholeSketch:
    """D_i → S: the sketch in integers."""

    product: Whole


@message
class Sketch:
    """D_i → S: X_iᵀ X_i times that basis.

    A sum over all nodes of D_i, of which S needs only the sum over owners.
    """

    product: Basis


def sketched(owner: DataOwner) -> Sketched:
    """How much this owner has revealed so far."""
    return owner.part("sketched", lambda: Sketched(owner.graph.num_nodes))


def another_size(plan: Plan, owner: OwnerId, subspace: Subspace, reply: Sketch) -> str | None:
    """Refuse a sketch of another size than the basis that was sent."""
    asked, found = tuple(subspace.basis.shape), tuple(reply.product.shape)
    return None if found == asked else f"a sketch of {found}, but {asked} was agreed"


@procedure(
    phase="mending",
    uses=Summed,
    shapes=lambda plan: {"product": (plan.d_x, AtMost(plan.config.mend.rank))},
    check=another_size,
    keeps=sketched,
    leaves="Before training, a few times: a product of your feature table with itself and a "
    "basis that all owners share (a sum over all your nodes).",
    when=in_full,
)
def sketch_features(owner: DataOwner, subspace: Subspace) -> Sketch:
    """This owner's part of a step to the common subspace; zeros if it has revealed enough."""
    if not sketched(owner).may_answer(subspace.basis):
        return Sketch(torch.zeros_like(subspace.basis))
    return Sketch(sketch(owner.graph.x, subspace.basis))


@procedure(phase="mending", owed=True, when=in_full)
def mend_by_subspace(owner: DataOwner, subspace: Subspace) -> Mended:
    """Attach to every node its projection onto the common subspace."""
    return mend_onto(owner, subspace.basis)


def mend_onto(owner: DataOwner, basis: Basis) -> Mended:
    """Attach projections, and remember the basis for nodes to come."""
    owner.remembered = {"basis": basis}
    return owner.attach(reconstructions(owner.graph, basis))


def for_new_nodes(new: NewNodes) -> Generated:
    """Neighbors of nodes that came after the run: copies, and projections as in the run."""
    rows = new.graph.x[new.nodes]
    return reconstructions_of(rows, new.nodes, new.known, new.remembered["basis"])


def strange_sizes(
    plan: Plan, owner: OwnerId, found: Directions, reply: SketchSizes
) -> str | None:
    """Refuse anything but one size for each column, or a size that no number has."""
    if len(reply.exponents) != found.rank:
        return f"sizes of {len(reply.exponents)} columns, but {found.rank} were asked for"
    return None if int(reply.exponents.abs().max()) < 1100 else "a size that no number has"


def strange_sketch(
    plan: Plan, owner: OwnerId, units: SketchUnits, reply: WholeSketch
) -> str | None:
    """Refuse a sketch of another rank, or with numbers beyond an owner's share."""
    if reply.product.shape[1] != len(units.exponents):
        return f"a sketch of rank {reply.product.shape[1]}, not {len(units.exponents)}"
    return ring_for(units.owners, plan.config.traffic.bits).strange(reply.product)


@procedure(
    phase="mending",
    uses=Summed,
    shapes=lambda plan: {"exponents": Ints((AtMost(plan.config.mend.rank),))},
    check=strange_sizes,
    keeps=sketched,
    leaves="Before training, a few times: roughly how large such a product is, as a power of "
    "two for each of its columns.",
    full=lambda plan, found: (0, 0),
    when=in_whole_numbers,
)
def sketch_sizes(owner: DataOwner, found: Directions) -> SketchSizes:
    """This owner's part of a step, kept until the units in which to send it are known."""
    basis, told = basis_of(owner.plan, found), sketched(owner)
    told.product = torch.zeros_like(basis)
    if told.may_answer(basis):
        told.product = sketch(owner.graph.x, basis)
    elif in_sums(owner.config):  # zeros in a hidden sum would leave the others' alone
        raise PrivacyError("it has answered with as many sketches as it may")
    mean = told.product.double().square().mean(dim=0).sqrt()
    return SketchSizes(torch.frexp(mean).exponent.to(torch.int16))


@procedure(
    phase="mending",
    uses=Summed,
    after=("sketch_sizes",),
    shapes=lambda plan: {"product": Ints((plan.d_x, AtMost(plan.config.mend.rank)))},
    check=strange_sketch,
    leaves="Before training, a few times: a product of your feature table with itself and a "
    "basis that all owners share (a sum over all your nodes), in integers of a few bits.",
    full=lambda plan, units: (full_step(plan, Subspace), full_step(plan, Sketch)),
    when=in_whole_numbers,
)
def sketch_in_whole(owner: DataOwner, units: SketchUnits) -> WholeSketch:
    """The sketch whose sizes were sent, in integers."""
    told = sketched(owner)
    if told.product is None or told.product.shape[1] != len(units.exponents):
        raise ProtocolError("it was not asked for the sizes of that sketch")
    ring = ring_for(units.owners, owner.config.traffic.bits)
    return WholeSketch(encode(told.product, units.exponents.numpy(), ring))


@procedure(
    phase="mending",
    owed=True,
    full=lambda plan, found: (full_basis(plan, Subspace), len(to_frame(Mended()))),
    when=in_whole_numbers,
)
def mend_by_directions(owner: DataOwner, found: Directions) -> Mended:
    """Attach to every node its projection onto the common subspace."""
    return mend_onto(owner, basis_of(owner.plan, found))


@way_of_mending("subspace", renew=for_new_nodes)
def by_subspace(exchange: Exchange) -> None:
    """Projections onto the subspace of all owners' features: a few sums are exchanged."""
    if in_full(exchange.plan.config):
        exchange.all(mend_by_subspace, common_subspace(exchange))
    else:
        exchange.all(mend_by_directions, common_directions(exchange))


def common_directions(exchange: Exchange) -> Directions:
    """The same subspace, in fewer steps on sums of integers."""
    plan, owners = exchange.plan, len(exchange.owners)
    found = first_directions(plan)
    ring = ring_for(owners, plan.config.traffic.bits)
    for _ in range(WHOLE_STEPS):
        sizes = exchange.sum(sketch_sizes, found).exponents
        mean = sizes.numpy() // len(exchange.answered[sketch_sizes.name])
        units = exponents_for(np.ldexp(ROOM, mean), ring)
        asked = SketchUnits(owners, torch.from_numpy(units).to(torch.int16))
        total = decode(exchange.sum(sketch_in_whole, asked).product, units)
        found = in_whole(nonzero(total, WHOLE_STEPS))
    return found


def first_directions(plan: Plan) -> Directions:
    """The start of the search: drawn by everybody, so that only the rank is sent."""
    rank = rank_of(plan)
    return Directions(rank, torch.empty(0, rank, dtype=torch.int8), NO_UNITS)


def in_whole(total: Basis) -> Directions:
    """An orthonormal basis of the columns' span, in bytes."""
    basis = orthonormal(total)
    ring = Ring(8, 1)
    units = exponents_for(basis.abs().amax(dim=0).double().numpy(), ring)
    exponents = torch.from_numpy(units).to(torch.int16)
    return Directions(basis.shape[1], as_sum(basis, units, ring), exponents)


def basis_of(plan: Plan, found: Directions) -> Basis:
    """The orthonormal basis that directions stand for."""
    if not len(found.basis):
        return random_basis(plan.d_x, found.rank, plan.stream("subspace"))
    return orthonormal(decode(found.basis, found.exponents.numpy()))


def full_basis(plan: Plan, kind: type[Subspace] | type[Sketch]) -> int:
    """The bytes of a basis, or of its sketch, in full messages."""
    return len(to_frame(kind(torch.zeros(plan.d_x, rank_of(plan)))))


def full_step(plan: Plan, kind: type[Subspace] | type[Sketch]) -> int:
    """The bytes of the full-message steps that one step in integers replaces."""
    return full_basis(plan, kind) * STEPS // WHOLE_STEPS


def common_subspace(exchange: Exchange) -> Subspace:
    """The subspace of all owners' features, by subspace iteration on sums over owners."""
    found = Subspace(first_basis(exchange.plan))
    for _ in range(STEPS):
        total = exchange.sum(sketch_features, found).product
        found = Subspace(orthonormal(nonzero(total, STEPS)))
    return found


def nonzero(total: Basis, steps: int) -> Basis:
    """The sum; refuses one that nobody added anything to."""
    if not total.any():
        raise ProtocolError(
            "No owner added anything to the common subspace: their features are all zero or "
            f"too few for {steps} answers of rank {total.shape[1]}. Lower mend.rank."
        )
    return total


def first_basis(plan: Plan) -> Basis:
    """The start of the search for the common subspace."""
    return random_basis(plan.d_x, rank_of(plan), plan.stream("subspace"))


def rank_of(plan: Plan) -> int:
    """The rank as set, limited so that an owner sends at most half as many columns as nodes.

    See :class:`Sketched`; the smallest owner decides.
    """
    return max(1, min(plan.config.mend.rank, min(plan.nodes) // (2 * STEPS), plan.d_x))
