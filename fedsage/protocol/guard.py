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
from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import Classifier, OwnerId, leaves, misfit, tensors_in
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Procedure, Summed

DIVERGED = "numbers that are not finite"  # what an owner has, who cannot send such
TOO_LARGE = 100.0  # times as large as usual
UPDATE = "an update"  # the size whose median is remembered from round to round


class Guard:
    """Looks at every reply before the server uses it, as its procedure declares."""

    def __init__(self) -> None:
        self.phi: Parameters = {}  # that was broadcast last
        self.usual: dict[str, float] = {}  # size of updates in the last round, by procedure

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
                self.phi = request.phi
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
        return found | self.oversized(procedure, requests, fine)

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
        return why or procedure.check(plan, owner, request, reply)

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
    ) -> dict[OwnerId, str]:
        """Whose update is a hundred times as large as usual.

        Usual is the median of this round, or with fewer than three owners of the last one;
        in their first round, the size of φ itself.
        """
        sizes = {
            i: procedure.sizes(self.phi, requests[i], reply) for i, reply in replies.items()
        }
        found: dict[OwnerId, str] = {}
        for what in dict.fromkeys(what for each in sizes.values() for what in each):
            known = {i: s[what] for i, s in sizes.items() if what in s and i not in found}
            found |= too_large(known, self.usual_size(procedure.name, what), what)
            fine = [size for i, size in known.items() if i not in found]
            if what == UPDATE and fine:
                self.usual[procedure.name] = median(fine)
        return found

    def usual_size(self, name: str, what: str) -> float:
        """What to hold a size against where there are too few others."""
        return self.usual.get(name, norm_of(self.phi)) if what == UPDATE else math.inf


def too_large(sizes: Mapping[OwnerId, float], usual: float, what: str) -> dict[OwnerId, str]:
    """Whose is a hundred times as large as the median; with two owners or one, as usual."""
    if len(sizes) > 2:
        usual = median(sizes.values())
    return {
        i: f"{what} of size {size:.3g}, where {usual:.3g} is usual"
        for i, size in sizes.items()
        if usual > 0 and size > TOO_LARGE * usual
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
