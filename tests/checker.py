"""Types are checked in every call the tests make, and shapes wherever a signature has them."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, install_import_hook, jaxtyped

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int passes for a float


@contextmanager
def checking(package: str) -> Iterator[None]:
    """What is imported of ``package`` in this block is checked in every call from then on."""
    with (
        install_import_hook(package, "tests.checker.check"),
        patch.object(jaxtyping, "jaxtyped", checked),
    ):
        yield


def checked(thing: Any = None, *, typechecker: Any) -> Any:
    """The same as jaxtyping's decorator, which binds every argument by name in every call.

    Only shapes need that; where a signature has none, beartype alone says the same, faster.
    """
    if thing is None:
        return partial(checked, typechecker=typechecker)
    if inspect.isclass(thing):
        if is_message(thing):
            return thing  # a hostile party sends what it likes; doors and guards check it
        if dataclasses.is_dataclass(thing) and not has_shapes(thing.__init__):
            thing.__init__ = check(thing.__init__)  # type: ignore[misc]
            return thing
        return jaxtyped(thing, typechecker=typechecker)
    if inspect.isfunction(thing) and not has_shapes(thing):
        return check(thing)
    return jaxtyped(thing, typechecker=typechecker)


def is_message(thing: type) -> bool:
    """Whether it is a class of messages."""
    module = sys.modules.get("fedsage.protocol.messages")
    return thing in getattr(module, "MESSAGES", ())


def has_shapes(function: Any) -> bool:
    """Whether a signature names a shape, or something that is not known yet."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return True
    return any(is_shape(one) for one in hints.values())


def is_shape(hint: Any) -> bool:
    """Whether an array type of jaxtyping is in there."""
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return any(is_shape(one) for one in typing.get_args(hint))
