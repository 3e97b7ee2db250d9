"""Packages that are not installed with fedsage, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fedsage.errors import ConfigError


def optional(module: str, wanted_by: str, install: str) -> Any:
    """A module of another package; where it is missing, an error says how to install it.

    Args:
        module: ``torch_geometric.data``.
        wanted_by: What the user called.
        install: What ``pip install`` takes: ``fedsage[data]``.
    """
    package = module.partition(".")[0]
    if find_spec(package) is None:
        raise ConfigError(
            f"{wanted_by} needs the package {package}, which is not installed. Install it "
            f"with: pip install '{install}'"
        )
    return import_module(module)
