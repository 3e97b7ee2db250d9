"""What a server can read in recorded messages: numbers of one owner, or of the sum over all.

``party`` is an owner, or None for the sum. Full messages are read as they are; integers with
the units of the common state, which follows from what the server itself has sent. For a masked
reply, the same reading gives noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedsage.audit.case import Case
from fedsage.mending.subspace import sketch_features, sketch_in_whole
from fedsage.models.optimizer import BETA_1, ROWS, Pace
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import decode
from fedsage.protocol.changes.owner import local_change_c, receive_change
from fedsage.protocol.changes.state import Change, Common, first_common
from fedsage.protocol.changes.step import next_state
from fedsage.protocol.changes.weights import shapes_of, weights_in
from fedsage.protocol.messages import Classifier, ClassifierUpdate, OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.private import noisy_gradient, projection
from fedsage.protocol.procedures import Procedure, in_full, in_private
from fedsage.runs.messages_seen import Way
from fedsage.shapes import Array

Party: TypeAlias = OwnerId | None
Directions = Float[Array, "directions d_x"]
NOTHING = 1e-10  # of the largest squared singular value: smaller directions are rounding


def replies_of(case: Case, procedure: Procedure[Any, Any, Any], party: Party) -> Iterator[Any]:
    """The replies of an owner to a procedure, or their sums."""
    way: Way = "sum" if party is None else "up"
    return (reply for _, reply in case.recording.find(procedure.name, way, party))


def requests_of(case: Case, procedure: Procedure[Any, Any, Any]) -> Iterator[Any]:
    """What all owners were sent; read from the first owner's messages."""
    return (request for _, request in case.recording.find(procedure.name, "down", 0))


def gradients(case: Case, party: Party, name: str) -> list[Tensor]:
    """Roughly the gradient of one weight in each round."""
    config = case.plan.config
    by_round = of_models if in_full(config) else of_changes
    return list((of_noisy_sums if in_private(config) else by_round)(case, party, name))


def of_noisy_sums(case: Case, party: Party, name: str) -> Iterator[Tensor]:
    """Gradients with noise, as they are; along all features if they were projected."""
    along = projection(case.plan)
    for reply in replies_of(case, noisy_gradient, party):
        total = -reply.total.double()
        weight = total[:-1] if along is None else along.double() @ total[:-1]
        yield weight if name == first_weight(case) else total[-1]


def of_models(case: Case, party: Party, name: str) -> Iterator[Tensor]:
    """Gradients from full φ_i and moments."""
    broadcasts = requests_of(case, DataOwner.receive_classifier)
    updates = replies_of(case, DataOwner.local_update_c, party)
    decay = case.plan.config.classifier.weight_decay
    for before, after in zip(broadcasts, updates, strict=False):
        yield gradient_in(before, after, name, decay)


def gradient_in(before: Classifier, after: ClassifierUpdate, name: str, decay: float) -> Tensor:
    """The mean of a round's gradients, later ones weighted more; without moments, −Δφ."""
    start, moved = before.phi[name].double(), (after.phi[name] - before.phi[name]).double()
    if f"{name}.exp_avg" not in after.moments:
        return -moved
    moment, steps = (after.moments[f"{name}.{part}"].double() for part in ("exp_avg", "step"))
    count = float(steps - before.moments.get(f"{name}.step", torch.tensor(0.0)))
    if f"{name}.exp_avg" in before.moments:
        moment = moment - BETA_1**count * before.moments[f"{name}.exp_avg"].double()
    shares = [(1 - BETA_1) * BETA_1 ** (count - k) for k in range(1, 1 + round(count))]
    way = sum(share * k / count for k, share in enumerate(shares))  # φ moves step by step
    return moment / sum(shares) - decay * (start + way / sum(shares) * moved)


def of_changes(case: Case, party: Party, name: str) -> Iterator[Tensor]:
    """Gradients from changes in integers, times Adam's divisor."""
    held = list(held_by_all(case))
    for t, moved in enumerate(moves(case, party, held)):
        after = held[min(t + 1, len(held) - 1)]
        eta = case.plan.config.classifier.at(after.t - 1).eta
        roots = after.second.get(ROWS + name)
        steps = Pace(after.pace.steps - after.pace.last, after.pace.last).pulled(
            after.pace.last
        )
        weight = moved[name] / (-eta * steps)
        shape = (-1,) + (1,) * (weight.ndim - 1)
        alone = party is not None and case.masked  # the roots are of the sum, not of this owner
        yield weight if roots is None or alone else weight * roots.double().reshape(shape)


def moves(case: Case, party: Party, held: Sequence[Common]) -> Iterator[Parameters]:
    """How far each round moved the weights, from the integers of a party."""
    changes: Iterator[Change] = replies_of(case, local_change_c, party)
    for before, change in zip(held, changes, strict=False):
        yield weights_in(change.parts, before.bases, before.units, shapes_of(before.phi))


def feature_moves(case: Case, party: Party) -> Float[Array, " d_x"]:
    """How far the first weights of each feature moved, from what this party alone sent.

    Adam's divisor belongs to the sum over all, and is left out here.
    """
    name = first_weight(case)
    if in_full(case.plan.config) or in_private(case.plan.config):
        rounds = first_gradients(case, party)
    else:
        rounds = [one[name] for one in moves(case, party, list(held_by_all(case)))]
    lengths = [torch.linalg.norm(one.flatten(1), dim=1) for one in rounds]
    return sum((one / one.norm().clamp_min(1e-300) for one in lengths), torch.zeros(1)).numpy()


def held_by_all(case: Case) -> Iterator[Common]:
    """The common state at the start of each round, and after the last."""
    held: Common | None = None
    for news in requests_of(case, receive_change):
        if held is not None and news.total.count:
            held = next_state(held, news.total, news.guide)
        elif news.t == 0:
            held = first_common(case.plan, news.owners, news.weight)
        else:
            return
        yield held


def first_weight(case: Case) -> str:
    """The weight that features are multiplied with first."""
    phi, sizes = case.plan.phi.phi.items(), (case.plan.d_x,)
    return next(name for name, weight in phi if weight.shape[:1] == sizes)


def last_bias(case: Case) -> str | None:
    """The weights that are added to the logits of classes, if any."""
    phi, shape = case.plan.phi.phi.items(), (case.plan.d_y,)
    return next((name for name, weight in reversed(phi) if weight.shape == shape), None)


def directions(case: Case, party: Party, plain: bool = False) -> Directions:
    """Vectors of features: every column of every round's first-layer gradient.

    A gradient of the first layer is a sum of rows of X_i, each times a number. ``plain``
    leaves out rounds on mended graphs, if the others give as many vectors as there are nodes.
    """
    found = [weight.T.reshape(-1, case.plan.d_x) for weight in first_gradients(case, party)]
    if plain and case.plan.config.mend.mix == "rounds":
        some = found[1::2]
        found = some if sum(map(len, some)) >= case.plan.nodes[party or 0] else found
    blocks = [(one / torch.linalg.norm(one).clamp_min(1e-300)).numpy() for one in found]
    return np.concatenate(blocks)


def first_gradients(case: Case, party: Party) -> list[Tensor]:
    """Gradients of the first layer; read once for all attacks."""
    if party not in case.read:
        case.read[party] = gradients(case, party, first_weight(case))
    return case.read[party]


def sketches(case: Case, party: Party) -> Directions | None:
    """The columns of X_iᵀX_i times bases that an owner sent for mending, if any."""
    columns = [reply.product.T for reply in replies_of(case, sketch_features, party)]
    units = requests_of(case, sketch_in_whole)
    for asked, reply in zip(units, replies_of(case, sketch_in_whole, party), strict=False):
        columns.append(decode(reply.product, asked.exponents.numpy()).T)
    return np.concatenate([one.double().numpy() for one in columns]) if columns else None


def basis_of(
    vectors: Directions, most: int, least: float = NOTHING
) -> Float[Array, "d_x rank"]:
    """An orthonormal basis of the ``most`` most important directions.

    Those whose squared singular value is below ``least`` times the largest are dropped.
    """
    n, d_x = vectors.shape
    wide = n < d_x
    squares, found = np.linalg.eigh(vectors @ vectors.T if wide else vectors.T @ vectors)
    squares, found = squares[::-1], found[:, ::-1]
    kept = slice(min(most, int((squares > least * squares[0]).sum())))
    if not wide:
        return np.asarray(found[:, kept])
    return np.asarray(np.linalg.qr(vectors.T @ (found[:, kept] / np.sqrt(squares[kept])))[0])
