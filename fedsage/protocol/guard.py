"""Which replies may be used: numbers, of the agreed form, of a size like the others'."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fedsage.errors import ConfigError
from fedsage.protocol.messages import Classifier, Hits, OwnerId, leaves, misfit, tensors_in
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Procedure, Summed

DIVERGED = "numbers that are not finite"  # what an owner has, who cannot send such
UPDATE = "an update"  # the size whose median is remembered from round to round
TOO_LARGE = 3.0  # times as large an update as usual; honest ones measured: up to 2.6 times
TOO_LARGE_BESIDES = 20.0  # the same for moments and the like, which differ more: up to 16 times
TOO_FEW = 10.0  # where two owners are no majority, or the run would end without one


class Guard:
    """Looks at every reply before the server uses it, as its procedure declares."""

    def __init__(self) -> None:
        self.held: Any = {}  # by all owners: the φ that was broadcast last, or what it is in
        self.usual: dict[str, float] = {}  # size of updates in the last round, by procedure
        self.spare = 1  # owners that a run can go on without
        self.totals: dict[tuple[str, OwnerId], int] = {}  # nodes that an owner was asked about

    def refusals(
        self,
        procedure: Procedure[Any, Any, Any],
        requests: Mapping[OwnerId, Any],
        replies: Mapping[OwnerId, Any],
        plan: Plan | None,
    ) -> dict[OwnerId, str]:
        """What is wrong with whose reply."""
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
        """Why a reply is no answer to what was asked; nothing if it is."""
        if plan is None:
            return None
        why = misfit(reply, procedure.shapes(plan))
        why = why or procedure.check(plan, owner, request, reply)
        return why or self.other_total(procedure.name, owner, reply)

    def other_total(self, name: str, owner: OwnerId, reply: Any) -> str | None:
        """Hits of more or fewer nodes than the first time would outvote the others."""
        if not isinstance(reply, Hits) or not reply.total:
            return None  # who was not there for the last sum is asked about none
        first = self.totals.setdefault((name, owner), reply.total)
        return None if reply.total == first else f"hits of {reply.total} nodes, not of {first}"

    def wrong_sum(
        self, procedure: Procedure[Any, Any, Any], total: Any, owners: int, plan: Plan | None
    ) -> str | None:
        """Why a sum of replies that nobody could look at is none; nothing if it is."""
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
        """Whose update is much larger than usual, for an owner with as many nodes.

        Usual is the median of this round, or with fewer than three owners of the last one;
        in their first round, the size of φ itself. Who has more nodes than most takes more
        steps, and may go further.
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
            found |= too_large(known, self.usual_size(procedure.name, what), what, self.spare)
            fine = [size for i, size in known.items() if i not in found]
            if what == UPDATE and fine:
                self.usual[procedure.name] = median(fine)
        return found

    def usual_size(self, name: str, what: str) -> float:
        """What to hold a size against where there are too few others."""
        if what != UPDATE:
            return math.inf
        return self.usual.get(name) or norm_of(getattr(self.held, "phi", self.held))


def room_of(nodes: Mapping[OwnerId, int]) -> dict[OwnerId, float]:
    """How many times as far as usual an owner of so many nodes may go."""
    usual = median(nodes.values())
    return {i: max(1.0, count / usual) for i, count in nodes.items()}


def too_large(
    sizes: Mapping[OwnerId, float], usual: float, what: str, spare: int = 1
) -> dict[OwnerId, str]:
    """Whose is many times as large as the median; with two owners or one, as usual.

    Where a run would end without an owner, more is borne with.
    """
    most = TOO_LARGE if what == UPDATE else TOO_LARGE_BESIDES
    if len(sizes) > 2:
        usual = median(sizes.values())
    if len(sizes) <= 2 or spare < 1:
        most = max(most, TOO_FEW)
    return {
        i: f"{what} of size {size:.3g}, where {usual:.3g} is usual and {most:g} times as much "
        "the most"
        for i, size in sizes.items()
        if usual > 0 and size > most * usual
    }


def unlike_the_others(replies: Mapping[OwnerId, Any]) -> dict[OwnerId, str]:
    """Whose reply does not have the form that most have: what is added up has one form."""
    forms = {i: layout_of(reply) for i, reply in replies.items()}
    if not forms:
        return {}
    usual, _ = Counter(forms.values()).most_common(1)[0]
    return {i: "another form than the others'" for i, form in forms.items() if form != usual}


def layout_of(reply: Any) -> tuple[Any, ...]:
    """The names and shapes of all that is in a reply."""
    return tuple(
        sorted((name, tuple(getattr(value, "shape", ()))) for name, value in leaves(reply))
    )


def not_finite(message: Any) -> str | None:
    """The first number in a message that is not finite."""
    for name, value in leaves(message):
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} {value}"
        if isinstance(value, Tensor) and not all_finite(value):
            return f"numbers in {name} that are not finite"
    return None


def all_finite(values: Tensor) -> bool:
    """Whether all are numbers; a finite sum, which is quicker to have, says so."""
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())


def norm_of(message: Any) -> float:
    """The Euclidean norm of all tensors together."""
    return math.hypot(*(float(torch.linalg.vector_norm(t)) for t in tensors_in(message)))


def distance_of(moved: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """The Euclidean norm of the difference."""
    return math.hypot(*(float(torch.dist(moved[name], start[name])) for name in start))
