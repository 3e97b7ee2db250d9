"""Row span: updates of the first layer are sums of rows, so rows lie in their span."""

from __future__ import annotations

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.audit.membership_of_rows import asked_about
from fedsage.audit.seen import Party, directions

ATTEMPT = Attempt(
    "row-span",
    "curious server",
    "the updates of one owner in all rounds, and a row that it already holds",
    "AUC",
)


@attack("row-span")
def row_span(case: Case) -> Finding:
    """Is this row at this owner? More likely, the more of it lies in the updates' span."""
    parties: list[Party] = [*case.attacked, None]
    return asked_about(case, ATTEMPT, {party: directions(case, party) for party in parties})
