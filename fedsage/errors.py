"""Errors that a user can fix, and packages that may be missing. No others are meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

SHOWN = 20  # names in an error line


class FedSageError(Exception):
    """Something the user can fix. Says what is wrong, what we saw, what to do."""


class ConfigError(FedSageError):
    """A setting is unknown or out of range."""


class DataError(FedSageError):
    """A graph or dataset file is not what it should be."""


class DataErrors(DataError):
    """All problems of somebody's tables, one line for each."""

    def __init__(self, place: str, lines: Sequence[str], count: int) -> None:
        self.place, self.lines, self.count = place, tuple(lines), count
        problems = "1 problem" if count == 1 else f"{count:,} problems"
        super().__init__("\n".join([f"{place} has {problems}:", *(f"- {x}" for x in lines)]))

    def __reduce__(self) -> tuple[type[DataErrors], tuple[str, tuple[str, ...], int]]:
        return type(self), (self.place, self.lines, self.count)  # so that workers can raise it

    @property
    def in_one_line(self) -> str:
        """The first problem, and how to see the others."""
        if self.count == 1:
            return f"{self.place}: {self.lines[0]}"
        return (
            f"{self.place} has {self.count:,} problems, the first: {self.lines[0]} "
            f"See them all with 'fedsage data check {self.place}'."
        )


class ProtocolError(FedSageError):
    """A message is missing, late, or does not fit the procedure that asked for it."""


class Absent(ProtocolError):
    """Too few owners are there to continue; what was done before is safe."""


class StorageError(FedSageError):
    """A file cannot be written. What was written before is safe."""


class PrivacyError(FedSageError):
    """Continuing would break a privacy guarantee."""


def nearest(name: str, known: Iterable[str]) -> str:
    """``" Did you mean 'x'?"`` or the list of known names: the end of an error line."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f" Did you mean '{close[0]}'?"
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f" Known: {', '.join(names[:SHOWN])}{more}."


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
