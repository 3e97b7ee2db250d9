"""What may cross an owner's boundary: messages, and those that every run needs.

A message is a class with ``@message``; what is none does not cross. Those of a way of mending
stand in its file, those that parties agree by in ``agreement.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar, cast

from torch import Tensor
from typing_extensions import dataclass_transform

from fedsage.models.parameters import Parameters

OwnerId: TypeAlias = int
View: TypeAlias = Literal["plain", "mended", "both"]  # of a graph that is queried
M = TypeVar("M")
MESSAGES: list[type] = []


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
