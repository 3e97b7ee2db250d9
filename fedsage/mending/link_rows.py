"""Which remote neighbors are summed for which node, so that no sums show a single row.

Of every sum, ``at_least`` nodes at two owners or more are *private*: they are in no other sum
of that receiver. A combination that uses a sum has all its private nodes, all with the same
weight, so it is never a single node. Each contributor can check how many sums its own nodes are
in, so nobody has to be trusted with that, and nobody is shown the receiver's links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from fedsage.shapes import Array, NodeIds

Wanted = Mapping[int, Sequence[int]]  # the remote neighbors of each own node


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The sums that an owner asks for: remote node ``nodes[k]`` is added to row ``row[k]``."""

    here: NodeIds  # the own node that each row is for, in ascending order
    row: NodeIds  # in ascending order
    nodes: NodeIds  # as the receiver numbers them
    private: Bool[Array, " _"]  # whether it is in no other row


def safe_sums(here: NodeIds, there: NodeIds, owner: NodeIds, at_least: int) -> Sums:
    """A sum for as many own nodes as can be had, each over as many neighbors as can be had.

    Args:
        here: The own end of each known link.
        there: The other end, by number.
        owner: Whose node each number is.
        at_least: The fewest private nodes of a sum; two of them are at different owners.
    """
    wanted: dict[int, list[int]] = {}
    for v, u in np.unique(np.stack([here, there]), axis=1).T.tolist():
        wanted.setdefault(v, []).append(u)
    private = private_nodes(wanted, owner.tolist(), at_least)
    whose = {u: v for v, nodes in private.items() for u in nodes}
    members = [
        (row, u, u in whose)
        for row, v in enumerate(sorted(private))
        for u in wanted[v]
        if whose.get(u, v) == v
    ]
    row, nodes, alone = np.array(members, dtype=np.int64).reshape(-1, 3).T
    return Sums(np.array(sorted(private), dtype=np.int64), row, nodes, alone.astype(bool))


def private_nodes(wanted: Wanted, owner: Sequence[int], at_least: int) -> dict[int, list[int]]:
    """Disjoint sets of remote neighbors, by the own node that each is for.

    Nodes with few remote neighbors choose first, and take what the fewest want.
    """
    popular = Counter(u for nodes in wanted.values() for u in nodes)
    taken: set[int] = set()
    chosen: dict[int, list[int]] = {}
    for v in sorted(wanted, key=lambda v: (len(wanted[v]), v)):
        free = sorted((u for u in wanted[v] if u not in taken), key=lambda u: (popular[u], u))
        elsewhere = [u for u in free if owner[u] != owner[free[0]]]
        if len(free) >= at_least and elsewhere:
            first = [free[0], elsewhere[0]]
            chosen[v] = first + [u for u in free if u not in first][: at_least - 2]
            taken.update(chosen[v])
    return chosen
