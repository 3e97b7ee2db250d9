"""Which replies may be used: numbers, of the agreed shapes, of a size like the others'."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from statistics import median
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedsage.errors import ConfigError
from fedsage.models.optimizer import strange_moments
from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import (
    Ask,
    Classifier,
    ClassifierUpdate,
    ClassLinks,
    ColumnSquares,
    ColumnSums,
    GenGradients,
    GenOffer,
    GenOffers,
    Hits,
    NeighGenUpdate,
    OwnerId,
    SharedNeighGen,
    Sketch,
    Subspace,
)
from fedsage.protocol.procedures import Procedure

TOO_LARGE = 100.0  # times as large as usual
Shapes: TypeAlias = dict[str, torch.Size]


class Guard:
    """Looks at every reply before the server uses it.

    What a reply must look like follows from what was asked; for the classifier, from the φ
    that was broadcast last. ``hg`` are the shapes of H^g, and ``weights`` what each owner
    said it would weigh, where these were agreed on.
    """

    def __init__(self) -> None:
        self.phi: Parameters = {}
        self.hg: Shapes = {}
        self.weights: dict[OwnerId, float] = {}
        self.usual: dict[str, float] = {}  # size of updates in the last round, by procedure

    def refusals(
        self,
        procedure: Procedure[Any, Any, Any],
        requests: Mapping[OwnerId, Any],
        replies: Mapping[OwnerId, Any],
    ) -> dict[OwnerId, str]:
        """What is wrong with whose reply."""
        for request in requests.values():
            if isinstance(request, Classifier):
                self.phi = request.phi
        wrong = {i: self.misfit(i, requests[i], reply) for i, reply in replies.items()}
        wrong |= unlike_the_others({i: one for i, one in replies.items() if not wrong[i]})
        broken = {i: not_finite(reply) for i, reply in replies.items() if not wrong[i]}
        if replies and all(broken.get(i) for i in replies):
            first = next(iter(broken.values()))
            raise ConfigError(
                f"Training diverged: every owner's answer to {procedure.name} has {first}. "
                "Lower the learning rate (classifier.eta or neighgen.eta), or check the scale "
                "of the features."
            )
        found = {i: why for i, why in {**wrong, **broken}.items() if why}
        fine = {i: reply for i, reply in replies.items() if i not in found}
        return found | self.oversized(procedure.name, requests, fine)

    def misfit(self, owner: OwnerId, request: Any, reply: Any) -> str | None:
        """Why a reply is no answer to what was asked; nothing if it is."""
        if isinstance(reply, ClassifierUpdate):
            if not reply.weight > 0:
                return f"weight {reply.weight:g}, which is not positive"
            if reply.weight != (agreed := self.weights.get(owner, reply.weight)):
                return f"weight {reply.weight:g}, where {agreed:g} was agreed"
            return other_shapes(reply.phi, shapes_of(self.phi)) or strange_moments(
                reply.moments, shapes_of(self.phi)
            )
        if isinstance(reply, GenOffer) and isinstance(request, Ask):
            if reply.t != request.t:
                return f"an offer of round {reply.t}, but round {request.t} was asked for"
            if reply.z.ndim != 2 or reply.z.dtype != torch.float32:
                return f"embeddings of shape {tuple(reply.z.shape)} and type {reply.z.dtype}"
            return other_shapes(reply.hg, self.hg) if self.hg else None
        if isinstance(reply, GenGradients) and isinstance(request, GenOffers):
            return strange_gradients(reply, request)
        if isinstance(reply, NeighGenUpdate) and isinstance(request, SharedNeighGen):
            return other_shapes(reply.theta, shapes_of(request.theta))
        if isinstance(reply, Sketch) and isinstance(request, Subspace):
            return other_shapes({"product": reply.product}, {"product": request.basis.shape})
        if isinstance(reply, ClassLinks):
            square = reply.count.ndim == 2 and reply.count.shape[0] == reply.count.shape[1]
            return None if square else f"class links of shape {tuple(reply.count.shape)}"
        if isinstance(reply, Hits):
            right = (reply.plain, reply.mended, reply.both)
            fits = all(0 <= count <= reply.total for count in right)
            return None if fits else f"{max(right)} right answers for {reply.total} nodes"
        return None

    def oversized(
        self, name: str, requests: Mapping[OwnerId, Any], replies: Mapping[OwnerId, Any]
    ) -> dict[OwnerId, str]:
        """Whose update is a hundred times as large as usual.

        Usual is the median of this round, or with fewer than three owners of the last one;
        in their first round, the size of φ itself.
        """
        sizes = {i: self.size_of(requests[i], reply) for i, reply in replies.items()}
        known = {i: size for i, size in sizes.items() if size is not None}
        if not known:
            return {}
        usual = self.usual.get(name, norm_of(self.phi))
        found = too_large(known, usual, "an update")
        moments = {
            i: norm_of(reply.moments)
            for i, reply in replies.items()
            if isinstance(reply, ClassifierUpdate) and reply.moments and i not in found
        }
        found |= too_large(moments, math.inf, "moments")
        if fine := [size for i, size in known.items() if i not in found]:
            self.usual[name] = median(fine)
        return found

    def size_of(self, request: Any, reply: Any) -> float | None:
        """How far a reply would move what is averaged or added up."""
        if isinstance(reply, ClassifierUpdate):
            return distance_of(reply.phi, self.phi)
        if isinstance(reply, NeighGenUpdate):
            return distance_of(reply.theta, request.theta)
        if isinstance(reply, GenGradients):
            return max((norm_of(gradient) for gradient in reply.of.values()), default=0.0)
        return None


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
    """Whose reply does not have the form that most have, where all must have one form."""
    forms = {i: form for i, reply in replies.items() if (form := form_of(reply)) is not None}
    if not forms:
        return {}
    usual, _ = Counter(forms.values()).most_common(1)[0]
    return {i: "another form than the others'" for i, form in forms.items() if form != usual}


def form_of(reply: Any) -> tuple[Any, ...] | None:
    """What must be the same in all owners' replies."""
    if isinstance(reply, ClassifierUpdate):
        return tuple(sorted(reply.moments))
    if isinstance(reply, GenOffer):
        return tuple(reply.z.shape[1:])
    if isinstance(reply, ClassLinks):
        return tuple(reply.count.shape)
    if isinstance(reply, ColumnSums):
        return (*reply.count.shape, *reply.total.shape)
    return tuple(reply.total.shape) if isinstance(reply, ColumnSquares) else None


def strange_gradients(reply: GenGradients, request: GenOffers) -> str | None:
    """Why these are no gradients in the H^g that were offered."""
    if set(reply.of) != set(request.of):
        return f"gradients for owners {sorted(reply.of)}, offers of {sorted(request.of)}"
    for j, gradient in reply.of.items():
        offered = {name: t for name, t in request.of[j].hg.items() if name in gradient}
        if why := other_shapes(gradient, shapes_of(offered)):
            return f"for owner {j} {why}"
    return None


def other_shapes(found: Mapping[str, Tensor], agreed: Mapping[str, torch.Size]) -> str | None:
    """The first tensor of weights that does not have the agreed shape, or no float32."""
    for name in sorted({*found, *agreed}):
        here, there = found.get(name), agreed.get(name)
        if here is not None and here.dtype != torch.float32:
            return f"{name} is of type {here.dtype}, where float32 was agreed"
        if here is None or there is None or here.shape != there:
            seen = "missing" if here is None else f"of shape {tuple(here.shape)}"
            wanted = "nothing of that name" if there is None else f"{tuple(there)}"
            return f"{name} is {seen}, where {wanted} was agreed"
    return None


def shapes_of(parameters: Mapping[str, Tensor]) -> Shapes:
    """The shape of every weight."""
    return {name: tensor.shape for name, tensor in parameters.items()}


def not_finite(message: Any) -> str | None:
    """The first number in a message that is none."""
    for name, value in leaves(message, ""):
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} {value}"
        if isinstance(value, Tensor) and not all_finite(value):
            return f"numbers in {name} that are not finite"
    return None


def all_finite(values: Tensor) -> bool:
    """Whether all are numbers; a finite sum, which is quicker to have, says so."""
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Everything in a message, by the name of its field or key."""
    if is_dataclass(value):
        for field in fields(value):
            yield from leaves(getattr(value, field.name), field.name)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, str(key))
    else:
        yield name, value


def norm_of(parameters: Mapping[str, Tensor]) -> float:
    """The Euclidean norm of all weights together."""
    return math.hypot(*(float(torch.linalg.vector_norm(t)) for t in parameters.values()))


def distance_of(moved: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """The Euclidean norm of the difference."""
    return math.hypot(*(float(torch.dist(moved[name], start[name])) for name in start))
