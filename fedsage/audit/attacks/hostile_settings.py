"""Hostile settings: a server proposes runs that would show single nodes, or break owners."""

from __future__ import annotations

from importlib import import_module

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack

POLICY = (
    "fedsage.privacy.attacks.hostile_settings"  # the proposals, and how many owners agree to
)
ATTEMPT = Attempt(
    "hostile-settings",
    "hostile server",
    "whether owners agree to settings that it made up",
    "proposals agreed to",
)


@attack("hostile-settings")
def hostile_settings(case: Case) -> Finding:
    """How many of the hostile proposals does an owner agree to?"""
    try:
        proposals = import_module(POLICY)
    except ModuleNotFoundError:
        return ATTEMPT.not_run("owners have no policy yet that could refuse")
    agreed: list[str] = proposals.agreed_to()
    return ATTEMPT.found(len(agreed), 0, bool(agreed), note=", ".join(agreed))
