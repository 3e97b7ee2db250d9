"""Sketch membership: products of a feature table with itself span its rows."""

from __future__ import annotations

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.audit.membership_of_rows import asked_about
from fedsage.audit.seen import Party, sketches

ATTEMPT = Attempt(
    "sketch-membership",
    "curious server",
    "the products of one owner's features that are used for mending, and a row",
    "AUC",
)


@attack("sketch-membership")
def sketch_membership(case: Case) -> Finding:
    """Is this row at this owner? More likely, the more of it lies in the products' span."""
    parties: list[Party] = [*case.attacked, None]
    found = {party: sketches(case, party) for party in parties}
    seen = {party: one for party, one in found.items() if one is not None}
    if len(seen) < len(parties):
        return ATTEMPT.not_run("this run mends without such products")
    return asked_about(case, ATTEMPT, seen)
