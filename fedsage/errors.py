"""What can go wrong that a user can put right. Nothing else is raised on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedSageError(Exception):
    """Something the user can put right. Says what is wrong, what we saw, what to do."""


class ConfigError(FedSageError):
    """A setting is unknown or out of range."""


class DataError(FedSageError):
    """A graph or dataset file is not what it should be."""


class ProtocolError(FedSageError):
    """A message is missing, late, or does not fit the procedure that asked for it."""


class PrivacyError(FedSageError):
    """Going on would break a privacy guarantee."""


def nearest(name: str, known: Iterable[str]) -> str:
    """``" Did you mean 'x'?"`` or the list of what is known: the end of an error line."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else f" Known: {', '.join(names)}."
