"""What counts of right predictions can be, of one owner and of all together."""

from __future__ import annotations

from fedsage.protocol.messages import Hits, OwnerId
from fedsage.protocol.plan import Plan


def too_many_hits(plan: Plan, owner: OwnerId, request: object, hits: Hits) -> str | None:
    """Refuse more right predictions than nodes, or more nodes than the owner has."""
    if hits.total > (most := plan.nodes_of.get(owner, hits.total)):
        return f"hits of {hits.total} nodes, but it has {most}"
    return no_share(hits)


def no_share(hits: Hits) -> str | None:
    """Refuse more right predictions than nodes."""
    right = (hits.plain, hits.mended, hits.both)
    fits = all(0 <= count <= hits.total for count in right)
    return None if fits else f"{max(right)} right predictions for {hits.total} nodes"


def too_many_in_all(plan: Plan, hits: Hits, owners: int) -> str | None:
    """The same for the sum of all owners' hits."""
    if hits.total > plan.num_nodes:
        return f"hits of {hits.total} nodes, but all owners have {plan.num_nodes}"
    return no_share(hits)


def no_hits(hits: Hits) -> bool:
    """Whether no node was counted."""
    return not hits.total
