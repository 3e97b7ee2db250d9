"""Which replies may be used: finite numbers, in the agreed form, as large as the others'."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fedsage.errors import ConfigError
from fedsage.models.optimizer import strange_moments
from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import (
    Classifier,
    ClassifierUpdate,
    Form,
    Hits,
    OwnerId,
    form_of,
    leaves,
    misfit,
    tensors_in,
)
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Procedure, Summed

DIVERGED = "numbers that are not finite"  # the reason if an owner cannot send them
UPDATE, MOMENTUM = "an update", "momentum"  # sizes that are remembered from round to round
BACK = "momentum against the others'"
TOO_LARGE = 3.0  # times as large an update as usual; honest ones: up to 2.6 times, measured
TOO_LARGE_BESIDES = 20.0  # the same for moments and such, which differ more
TOO_LARGE_BACK = 6.0  # the same for momentum that pushes back; honest ones: up to 4.7 times
TOO_FEW = 10.0  # if there are only two owners, or the run would end without one


class Guard:
    """Checks every reply before the server uses it, as its procedure declares."""

    def __init__(self) -> None:
        self.held: Any = {}  # the common state: the φ broadcast last, or what contains it
        self.usual: dict[tuple[str, str], float] = {}  # in the last round, by procedure
        self.spare = 1  # owners that the run can continue without
        self.totals: dict[tuple[str, OwnerId], int] = {}  # the nodes each owner was asked about

    def refusals(
        self,
        procedure: Procedure[Any, Any, Any],
        requests: Mapping[OwnerId, Any],
        replies: Mapping[OwnerId, Any],
        plan: Plan | None,
    ) -> dict[OwnerId, str]:
        """What is wrong, by owner whose reply must not be used."""
        for request in requests.values():
            if isinstance(request, Classifier):
                self.held = request.phi
        wrong = {
            i: self.misfit(procedure, i, requests[i], reply, plan)
            for i, reply in replies.items()
        }
        if procedure.uses is Summed:
            wrong |= unlike_the_others({i: one for i, one in replies.items() if not wrong[i]})
        broken = {i: not_finite(reply) for i, reply in replies.items() if not wrong[i]}
        broken |= {i: why for i, why in wrong.items() if why == DIVERGED}
        if replies and all(broken.get(i) for i in replies):
            first = next(iter(broken.values()))
            raise ConfigError(
                f"Training diverged: every owner's answer to {procedure.name} has {first}. "
                "Lower the learning rate (classifier.eta or neighgen.eta), or check the scale "
                "of the features."
            )
        found = {i: why for i, why in {**wrong, **broken}.items() if why}
        fine = {i: reply for i, reply in replies.items() if i not in found}
        return found | self.oversized(procedure, requests, fine, plan)

    def misfit(
        self,
        procedure: Procedure[Any, Any, Any],
        owner: OwnerId,
        request: Any,
        reply: Any,
        plan: Plan | None,
    ) -> str | None:
        """Why a reply does not answer the request, or None if it does."""
        if plan is None:
            return None
        why = misfit(reply, procedure.shapes(plan))
        why = why or procedure.check(plan, owner, request, reply)
        return why or self.other_total(procedure.name, owner, reply)

    def other_total(self, name: str, owner: OwnerId, reply: Any) -> str | None:
        """Refuse a changed number of nodes: it would let an owner outvote the others."""
        if not isinstance(reply, Hits) or not reply.total:
            return None  # an owner that missed the last sum is not asked about any
        first = self.totals.setdefault((name, owner), reply.total)
        return None if reply.total == first else f"hits of {reply.total} nodes, not of {first}"

    def wrong_sum(
        self, procedure: Procedure[Any, Any, Any], total: Any, owners: int, plan: Plan | None
    ) -> str | None:
        """Why a sum of masked replies cannot be right, or None."""
        if plan is None:
            return None
        why = misfit(total, procedure.shapes(plan)) or not_finite(total)
        return why or procedure.check_sum(plan, total, owners)

    def oversized(
        self,
        procedure: Procedure[Any, Any, Any],
        requests: Mapping[OwnerId, Any],
        replies: Mapping[OwnerId, Any],
        plan: Plan | None,
    ) -> dict[OwnerId, str]:
        """Whose update is much larger than usual for an owner with as many nodes.

        Usual is the median of this round, or of the last one if there are fewer than three
        owners; in the first round, the size of φ itself. An owner with more nodes than most
        takes more steps, and may move further.
        """
        rooms = room_of(plan.nodes_of) if plan else {}
        sizes = {
            i: {
                what: size / rooms.get(i, 1.0)
                for what, size in procedure.sizes(self.held, requests[i], reply).items()
            }
            for i, reply in replies.items()
        }
        found: dict[OwnerId, str] = {}
        for what in dict.fromkeys(what for each in sizes.values() for what in each):
            known = {i: s[what] for i, s in sizes.items() if what in s and i not in found}
            usual = self.usual_size(procedure.name, what)
            found |= too_large(known, usual, what, self.spare)
            if what == MOMENTUM:
                back = too_large(known, usual, BACK)
                found |= {i: why for i, why in back.items() if pushes_back(i, replies)}
            fine = [size for i, size in known.items() if i not in found]
            if what in (UPDATE, MOMENTUM) and fine:
                self.usual[procedure.name, what] = median(fine)
        return found

    def usual_size(self, name: str, what: str) -> float:
        """The size to compare with if there are too few other owners."""
        if what != UPDATE:
            return self.usual.get((name, what), math.inf)
        return self.usual.get((name, what)) or norm_of(getattr(self.held, "phi", self.held))


def room_of(nodes: Mapping[OwnerId, int]) -> dict[OwnerId, float]:
    """How many times further than usual an owner with that many nodes may move."""
    usual = median(nodes.values())
    return {i: max(1.0, count / usual) for i, count in nodes.items()}


def too_large(
    sizes: Mapping[OwnerId, float], usual: float, what: str, spare: int = 1
) -> dict[OwnerId, str]:
    """Whose size is many times the median; with one or two owners, many times the usual.

    If the run would end without an owner, more is tolerated, but not of what pushes back.
    """
    most = {UPDATE: TOO_LARGE, BACK: TOO_LARGE_BACK}.get(what, TOO_LARGE_BESIDES)
    if len(sizes) > 2:
        usual = median(sizes.values())
    if what != BACK and (len(sizes) <= 2 or spare < 1):
        most = max(most, TOO_FEW)
    return {
        i: f"{what} of size {size:.3g}, but {usual:.3g} is usual and at most {most:g} times "
        "that is allowed"
        for i, size in sizes.items()
        if usual > 0 and size > most * usual
    }


def unlike_the_others(replies: Mapping[OwnerId, Any]) -> dict[OwnerId, str]:
    """Whose reply differs in form from most: replies to be summed must have the same form."""
    forms = {i: layout_of(reply) for i, reply in replies.items()}
    if not forms:
        return {}
    usual, _ = Counter(forms.values()).most_common(1)[0]
    return {i: "another form than the others'" for i, form in forms.items() if form != usual}


def layout_of(reply: Any) -> tuple[Any, ...]:
    """The names and shapes of everything in a reply."""
    return tuple(
        sorted((name, tuple(getattr(value, "shape", ()))) for name, value in leaves(reply))
    )


def not_finite(message: Any) -> str | None:
    """The first number in a message that is not finite, or None."""
    for name, value in leaves(message):
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} {value}"
        if isinstance(value, Tensor) and not all_finite(value):
            return f"numbers in {name} that are not finite"
    return None


def all_finite(values: Tensor) -> bool:
    """Whether all numbers are finite; a finite sum, which is quicker to compute, proves it."""
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())


def norm_of(message: Any) -> float:
    """The Euclidean norm of all tensors together."""
    return math.hypot(*(float(torch.linalg.vector_norm(t)) for t in tensors_in(message)))


def distance_of(moved: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """The Euclidean norm of the difference."""
    return math.hypot(*(float(torch.dist(moved[name], start[name])) for name in start))


def too_many_hits(plan: Plan, owner: OwnerId, request: object, hits: Hits) -> str | None:
    """Refuse more right predictions than nodes, or more nodes than the owner has."""
    if hits.total > (most := plan.nodes_of.get(owner, hits.total)):
        return f"hits of {hits.total} nodes, but it has {most}"
    return no_share(hits)


def no_share(hits: Hits) -> str | None:
    """Refuse more right predictions than nodes."""
    right = (hits.plain, hits.mended, hits.both)
    fits = all(0 <= count <= hits.total for count in right)
    return None if fits else f"{max(right)} right predictions for {hits.total} nodes"


def too_many_in_all(plan: Plan, hits: Hits, owners: int) -> str | None:
    """The same for the sum of all owners' hits."""
    if hits.total > plan.num_nodes:
        return f"hits of {hits.total} nodes, but all owners have {plan.num_nodes}"
    return no_share(hits)


def no_hits(hits: Hits) -> bool:
    """Whether no node was counted."""
    return not hits.total


def strange_update(
    plan: Plan, owner: OwnerId, ask: object, update: ClassifierUpdate
) -> str | None:
    """Refuse a weight that was not agreed, or moments that no optimizer can have."""
    if not update.weight > 0:
        return f"weight {update.weight:g}, which is not positive"
    if update.weight != (agreed := plan.weights.get(owner, update.weight)):
        return f"weight {update.weight:g}, but {agreed:g} was agreed"
    for name, moment in update.moments.items():
        if not name.endswith(".exp_avg") and bool((moment < 0).any()):
            return f"moment {name} below zero"
    return None


def form_of_update(plan: Plan) -> dict[str, Form]:
    """The weights of F; for each, all of the optimizer's moments or none."""
    shapes = {name: weight.shape for name, weight in plan.phi.phi.items()}
    return {
        "phi": form_of(plan.phi.phi),
        "moments": lambda moments: strange_moments(moments, shapes),
    }


def sizes_of_update(phi: Parameters, ask: object, update: ClassifierUpdate) -> dict[str, float]:
    """How far φ_i is from the broadcast φ, how far momentum will move it, and mean squares."""
    second = {n: m for n, m in update.moments.items() if n.endswith(".exp_avg_sq")}
    moved, squares = distance_of(update.phi, phi), math.sqrt(norm_of(second))
    ahead = norm_of(momentum_of(update.moments))
    return {UPDATE: moved, MOMENTUM: ahead, "second moments": squares}


def momentum_of(moments: Parameters) -> Parameters:
    """Adam's next step by its moments alone, in units of η and downhill: m / (√v + ε).

    Larger gradients do not make it larger, as both moments grow with them. It is larger where
    an owner's gradients agree from step to step: some honest owners have five times as much.
    """
    return {
        name: moment / (moments[f"{name}_sq"].sqrt() + 1e-8)
        for name, moment in moments.items()
        if name.endswith(".exp_avg")
    }


def pushes_back(owner: OwnerId, updates: Mapping[OwnerId, ClassifierUpdate]) -> bool:
    """Whether an owner's momentum leads away from where the others' leads."""
    mine = momentum_of(updates[owner].moments)
    others = (momentum_of(update.moments) for i, update in updates.items() if i != owner)
    along = (float((mine[name] * one[name]).sum()) for one in others for name in mine)
    return sum(along) < 0
