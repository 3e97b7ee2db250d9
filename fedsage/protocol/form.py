"""The form that a reply must have in an agreed run: the one place where shapes are checked.

A procedure says it in its declaration, by field: a tuple of sizes for a tensor, a table of
forms for a dictionary. An owner's door holds every reply against it before it leaves, and the
server's guard when it has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

Size: TypeAlias = "int | AtMost | None"  # of one axis; None where it is not known here
Form: TypeAlias = "tuple[Size, ...] | Doubles | Each | Optional | Mapping[str, Any]"


@dataclass(frozen=True, slots=True)
class AtMost:
    """An axis that may be shorter."""

    most: int


@dataclass(frozen=True, slots=True)
class Doubles:
    """A tensor of float64, where all others are of float32."""

    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """A dictionary with any keys, whose values all have one form."""

    form: Form


@dataclass(frozen=True, slots=True)
class Optional:
    """A dictionary that may be empty instead."""

    form: Form


def misfit(found: Any, form: Form, name: str = "it") -> str | None:
    """Why ``found`` does not have the form; nothing if it does."""
    if isinstance(form, tuple):
        return other_shape(found, form, torch.float32, name)
    if isinstance(form, Doubles):
        return other_shape(found, form.sizes, torch.float64, name)
    if isinstance(form, Optional):
        return misfit(found, form.form, name) if found else None
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
    """The fields of a message that the form speaks of."""
    return {name: getattr(message, name) for name in form}


def first(reasons: Any) -> str | None:
    """The first reason, if there is one."""
    return next((why for why in reasons if why), None)


def other_shape(
    found: Any, sizes: tuple[Size, ...], dtype: torch.dtype, name: str
) -> str | None:
    """Why this is no tensor of those sizes and that type."""
    if not isinstance(found, Tensor):
        return f"{name} is no tensor"
    if found.dtype != dtype:
        return f"{name} is of type {found.dtype}, where {dtype} was agreed"
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
