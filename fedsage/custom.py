"""Methods of a user's own: other owners, or another loop, in a file of theirs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedsage.errors import ConfigError
from fedsage.methods import Outcome, fedsage
from fedsage.protocol.owner import DataOwner

ATTRIBUTE = "METHOD"


@dataclass(frozen=True, slots=True)
class Method:
    """A federated method: a name, the kind of owners, and the loop that runs on them.

    ``train`` is called like :func:`fedsage.methods.fedsage`: with an engine, the first
    classifier, and by name ``rounds_c``, ``selection``, ``queries`` and ``on_round``.
    """

    name: str
    owner: type[DataOwner] = DataOwner
    train: Callable[..., Outcome] = fedsage


def is_file(method: str) -> bool:
    """Whether a method is named by the file it is in."""
    return method.endswith(".py")


def load_method(path: str) -> Method:
    """The ``METHOD`` of a Python file, which is run."""
    if not Path(path).is_file():
        raise ConfigError(f"Method '{path}': no such file. Check the path.")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, ATTRIBUTE, None)
    if not isinstance(found, Method):
        raise ConfigError(
            f"{path} has no {ATTRIBUTE} of type fedsage.Method. Write one, e.g. "
            f'{ATTRIBUTE} = fedsage.Method("mine", owner=MyOwner).'
        )
    return found
