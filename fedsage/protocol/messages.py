"""What may cross an owner's boundary: messages, and those that every run needs.

A message is a class with ``@message``; what is none does not cross. Those of a way of mending
stand in its file, those that parties agree by in ``agreement.py``.
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
View: TypeAlias = Literal["plain", "mended", "both"]  # of a graph that is queried
M = TypeVar("M")
MESSAGES: list[type] = []
WHOLE = torch.int8, torch.int16, torch.int32


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def message(kind: type[M]) -> type[M]:
    """Make a class a message: frozen, and allowed to cross."""
    made = dataclass(frozen=True, slots=True)(kind)
    MESSAGES.append(made)
    return made


@message
class Ask:
    """S → D_i: run a procedure; says which round, and nothing else."""

    t: int


@message
class Mended:
    """Algorithm 1, line 3, D_i → S: G'_i is ready, and stays where it is."""


@message
class Classifier:
    """Procedure B, S → every D_i: the shared classifier."""

    phi: Parameters
    moments: Parameters  # of the optimizer; empty unless they are averaged too


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
    mended: int  # queried on G'_i; the same where nothing is mended
    both: int  # by the product of both answers
    total: int


NO_HITS = Hits(0, 0, 0, 0)


def added(first: M, second: M) -> M:
    """The sum of two messages of one kind: every number and every tensor in them."""
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
    """A message whose every number and tensor is a ``count``-th: the mean of a sum."""

    def part(value: Any) -> Any:
        if is_dataclass(value):
            parts = {one.name: part(getattr(value, one.name)) for one in fields(value)}
            return replace(value, **parts)  # type: ignore[type-var]
        if isinstance(value, dict):
            return {key: part(item) for key, item in value.items()}
        return value / count

    return cast(M, part(total))


def leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Every number, word and tensor in a message, by the name of its field or key."""
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


Size: TypeAlias = "int | AtMost | None"  # of one axis; None where it is not known here
Form: TypeAlias = (
    "tuple[Size, ...] | Ints | Each | Mapping[str, Any] | Callable[[Any], str | None]"
)


@dataclass(frozen=True, slots=True)
class AtMost:
    """An axis that may be shorter."""

    most: int


@dataclass(frozen=True, slots=True)
class Ints:
    """A tensor of whole numbers, of whatever number of bits."""

    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """A dictionary with any keys, whose values all have one form."""

    form: Form


def misfit(found: Any, form: Form, name: str = "it") -> str | None:
    """Why ``found`` does not have the form; nothing if it does."""
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
            return f"{key} is there, where nothing of that name was agreed"
        if key not in inside:
            return f"{key} is missing"
        if why := misfit(inside[key], form[key], key):
            return why
    return None


def members(message: Any, form: Mapping[str, Form]) -> dict[str, Any]:
    """The fields of a message that the form must speak of: those with tensors, at least."""
    inside = {one.name: getattr(message, one.name) for one in fields(message)}
    return {name: value for name, value in inside.items() if name in form or tensors_in(value)}


def first(reasons: Any) -> str | None:
    """The first reason, if there is one."""
    return next((why for why in reasons if why), None)


def other_shape(
    found: Any, sizes: tuple[Size, ...], dtypes: tuple[torch.dtype, ...], name: str
) -> str | None:
    """Why this is no tensor of those sizes and that type."""
    if not isinstance(found, Tensor):
        return f"{name} is no tensor"
    if found.dtype not in dtypes:
        return f"{name} is of type {found.dtype}, where {dtypes[0]} was agreed"
    fits = len(sizes) == found.ndim and all(map(size_fits, found.shape, sizes))
    return None if fits else f"{name} is of shape {shown(found.shape)}, not {shown(sizes)}"


def size_fits(found: int, size: Size) -> bool:
    """Whether one axis is as long as agreed."""
    return size is None or (found <= size.most if isinstance(size, AtMost) else found == size)


def shown(sizes: Any) -> str:
    """Sizes as a person reads them: ``7 × at most 64``."""
    words = [f"at most {one.most}" if isinstance(one, AtMost) else str(one) for one in sizes]
    return " × ".join(word.replace("None", "any") for word in words) or "one number"


def form_of(parameters: Mapping[str, Tensor]) -> dict[str, Form]:
    """The form of weights that are like these."""
    return {name: tuple(tensor.shape) for name, tensor in parameters.items()}
