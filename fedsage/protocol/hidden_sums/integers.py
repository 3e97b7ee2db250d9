"""All numbers of a message as rows of integers, for masking, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedsage.errors import PrivacyError
from fedsage.privacy.sums import KINDS, Numbers, Whole
from fedsage.protocol.wire import field_types

M = TypeVar("M")
Change: TypeAlias = Callable[[str, Any, Any], Any]
POINT = 20  # binary places of a number that is not an integer


def whole_numbers(reply: M) -> tuple[Numbers, Callable[[Numbers], M]]:
    """All numbers in a message, by kind, and the way back; fractions are rounded."""
    found = {path: as_whole(path, leaf) for path, leaf in leaves_of(reply)}
    order = sorted(found)
    rows = {
        kind: [found[path][1].ravel() for path in order if found[path][0] == kind]
        for kind in KINDS
    }

    def rebuilt(numbers: Numbers) -> M:
        ends = dict.fromkeys(KINDS, 0)
        parts: dict[str, np.ndarray] = {}
        for path in order:
            kind, values = found[path]
            begin, ends[kind] = ends[kind], ends[kind] + values.size
            parts[path] = numbers[kind][begin : ends[kind]].reshape(values.shape)
        result: M = mapped(reply, lambda path, leaf, _: like(leaf, parts[path]))
        return result

    return {kind: np.concatenate(rows[kind]) for kind in KINDS if rows[kind]}, rebuilt


def in_numbers(raw: bytes) -> Whole:
    """Bytes in a form that a message can hold."""
    return torch.from_numpy(np.frombuffer(raw, np.int8).copy())


def in_raw(numbers: Whole) -> bytes:
    """The bytes that numbers of a message stand for."""
    return numbers.contiguous().numpy().tobytes()


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and tensor in a message, with its path."""
    inside = vars_of(value)
    if inside is None:
        yield path, value
        return
    for name, item in inside.items():
        yield from leaves_of(item, f"{path}/{name}")


def vars_of(value: Any) -> dict[str, Any] | None:
    """What is in a message or a dictionary; None if it is neither."""
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return value if isinstance(value, dict) else None


def as_whole(path: str, leaf: Any) -> tuple[str, np.ndarray]:
    """A number or a tensor as integers of one kind."""
    if type(leaf) is int:
        return "int64", np.asarray((leaf + 2**63) % 2**64 - 2**63, np.int64)
    values = leaf.numpy() if isinstance(leaf, Tensor) else np.asarray(leaf)
    if values.dtype.kind == "f":
        values = np.round(np.ldexp(values.astype(np.float64), POINT)).astype(np.int64)
    if values.dtype.name not in KINDS:
        raise PrivacyError(f"{path[1:]} is {leaf!r:.40}, which cannot be added up.")
    return values.dtype.name, values


def like(leaf: Any, values: np.ndarray) -> Any:
    """Integers in the form of a leaf of a message."""
    return torch.from_numpy(values.copy()) if isinstance(leaf, Tensor) else int(values)


def with_points(opened: M) -> M:
    """A sum with fractions restored in numbers that were not integers."""

    def pointed(path: str, leaf: Any, kind: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.dtype == torch.int64:
            return (leaf.double() / 2**POINT).float()
        return leaf / 2**POINT if kind is float else leaf

    result: M = mapped(opened, pointed)
    return result


def mapped(value: Any, change: Change, path: str = "", kind: Any = None) -> Any:
    """A message with ``change`` applied to every number and tensor, by path and type."""
    if is_dataclass(value) and not isinstance(value, type):
        kinds = field_types(type(value))
        return replace(value, **{
            name: mapped(getattr(value, name), change, f"{path}/{name}", kinds[name])
            for name in kinds
        })  # fmt: skip
    if isinstance(value, dict):
        return {key: mapped(item, change, f"{path}/{key}") for key, item in value.items()}
    return change(path, value, kind)
