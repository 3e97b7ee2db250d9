"""Messages: the only things that may cross an owner's boundary, and those every run needs.

A message is a class with ``@message``; nothing else can cross. The messages of a way of mending
are in its own file; those for agreeing on a run are in ``agreement.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar, cast

import torch
from torch import Tensor
from typing_extensions import dataclass_transform

from fedsage.models.parameters import Parameters

OwnerId: TypeAlias = int
View: TypeAlias = Literal["plain", "mended", "both"]  # which of an owner's graphs is queried
M = TypeVar("M")
MESSAGES: list[type] = []
WHOLE = torch.int8, torch.int16, torch.int32


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def message(kind: type[M]) -> type[M]:
    """Make a class a message: frozen, and allowed to cross an owner's boundary."""
    made = dataclass(frozen=True, slots=True)(kind)
    MESSAGES.append(made)
    return made


TRIES = 2**20  # between the draws of two tries of a round; even, as rounds may alternate


@message
class Ask:
    """S → D_i: run a procedure. Names the round, or the draws of another try of it."""

    t: int

    @property
    def round(self) -> int:
        """The round, whichever try of it this is."""
        return self.t % TRIES


@message
class Mended:
    """Algorithm 1, line 3, D_i → S: G'_i is ready; the graph itself stays with the owner."""


@message
class Classifier:
    """Procedure B, S → every D_i: the shared classifier."""

    phi: Parameters
    moments: Parameters  # of the optimizer; empty unless moments are averaged too


@message
class ClassifierUpdate:
    """Procedure F, D_i → S: the classifier after local training."""

    phi: Parameters  # φ_i
    moments: Parameters  # empty unless they are averaged too
    weight: float  # 1, or the number of training nodes if the mean is weighted by them
    loss: float


@message
class Hits:
    """D_i → S: how many of its validation (or test) nodes the classifier gets right."""

    plain: int  # queried on G_i
    mended: int  # queried on G'_i; equal to ``plain`` if nothing was mended
    both: int  # by the product of both predictions
    total: int


NO_HITS = Hits(0, 0, 0, 0)


def added(first: M, second: M) -> M:
    """The sum of two messages of the same type: of every number and tensor in them."""
    return cast(M, combined(first, second))


def combined(first: Any, second: Any) -> Any:
    """The sum of two values in a message."""
    if is_dataclass(first):
        names = [one.name for one in fields(first)]
        parts = {name: combined(getattr(first, name), getattr(second, name)) for name in names}
        return replace(first, **parts)  # type: ignore[type-var]
    if isinstance(first, dict):
        return {key: combined(value, second[key]) for key, value in first.items()}
    return first + second


def divided(total: M, count: int) -> M:
    """A message with every number and tensor divided by ``count``: the mean of a sum."""

    def part(value: Any) -> Any:
        if is_dataclass(value):
            parts = {one.name: part(getattr(value, one.name)) for one in fields(value)}
            return replace(value, **parts)  # type: ignore[type-var]
        if isinstance(value, dict):
            return {key: part(item) for key, item in value.items()}
        return value / count

    return cast(M, part(total))


def leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Every number, string and tensor in a message, with the name of its field or key."""
    if is_dataclass(value):
        inside = [(one.name, getattr(value, one.name)) for one in fields(value)]
    elif isinstance(value, dict):
        inside = [(str(key), item) for key, item in value.items()]
    else:
        return [(name, value)]
    return [leaf for key, item in inside for leaf in leaves(item, key)]


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in a message."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor)]


Size: TypeAlias = "int | AtMost | None"  # of one axis; None if it is not known here
Form: TypeAlias = (
    "tuple[Size, ...] | Ints | Each | Mapping[str, Any] | Callable[[Any], str | None]"
)


@dataclass(frozen=True, slots=True)
class AtMost:
    """An axis that may be up to ``most`` long."""

    most: int


@dataclass(frozen=True, slots=True)
class Ints:
    """A tensor of integers, of any width."""

    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """A dictionary with any keys, whose values all have the same form."""

    form: Form


def misfit(found: Any, form: Form, name: str = "it") -> str | None:
    """Why ``found`` does not have the agreed form, or None if it does."""
    if isinstance(form, tuple):
        return other_shape(found, form, (torch.float32,), name)
    if isinstance(form, Ints):
        return other_shape(found, form.sizes, WHOLE, name)
    if callable(form):
        return form(found)
    if isinstance(form, Each):
        return first(misfit(item, form.form, f"{name} {key}") for key, item in found.items())
    inside: Mapping[str, Any] = found if isinstance(found, Mapping) else members(found, form)
    for key in sorted({*inside, *form}):
        if key not in form:
            return f"{key} is present, but nothing of that name was agreed"
        if key not in inside:
            return f"{key} is missing"
        if why := misfit(inside[key], form[key], key):
            return why
    return None


def members(message: Any, form: Mapping[str, Form]) -> dict[str, Any]:
    """The fields of a message that a form must cover: at least all those with tensors."""
    inside = {one.name: getattr(message, one.name) for one in fields(message)}
    return {name: value for name, value in inside.items() if name in form or tensors_in(value)}


def first(reasons: Any) -> str | None:
    """The first reason, or None."""
    return next((why for why in reasons if why), None)


def other_shape(
    found: Any, sizes: tuple[Size, ...], dtypes: tuple[torch.dtype, ...], name: str
) -> str | None:
    """Why this is not a tensor of those sizes and one of those types, or None."""
    if not isinstance(found, Tensor):
        return f"{name} is not a tensor"
    if found.dtype not in dtypes:
        return f"{name} has type {found.dtype}, but {dtypes[0]} was agreed"
    fits = len(sizes) == found.ndim and all(map(size_fits, found.shape, sizes))
    return None if fits else f"{name} has shape {shown(found.shape)}, not {shown(sizes)}"


def size_fits(found: int, size: Size) -> bool:
    """Whether one axis has the agreed length."""
    return size is None or (found <= size.most if isinstance(size, AtMost) else found == size)


def shown(sizes: Any) -> str:
    """Sizes in words: ``7 × at most 64``."""
    words = [f"at most {one.most}" if isinstance(one, AtMost) else str(one) for one in sizes]
    return " × ".join(word.replace("None", "any") for word in words) or "one number"


def form_of(parameters: Mapping[str, Tensor]) -> dict[str, Form]:
    """The form of weights with the same names and shapes as these."""
    return {name: tuple(tensor.shape) for name, tensor in parameters.items()}
