"""What an audit works on: a recorded run, and the truth to compare guesses with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from scipy.sparse import issparse
from torch import Tensor

from fedsage.graph.graph import Graph
from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import in_sums
from fedsage.rng import Stream, generator
from fedsage.runs.messages_seen import Recording
from fedsage.runs.setup import Setup
from fedsage.shapes import Array, NodeFeatures

MOST_ROWS = 1000  # of one kind that are tested
Rows = Float[Array, "rows d_x"]


@dataclass(frozen=True, eq=False)
class Case:
    """One run under audit."""

    setup: Setup
    recording: Recording
    phi: Parameters  # the resulting classifier
    left_out: NodeFeatures | None = None  # rows like the owners' that no owner holds
    quick: bool = True
    read: dict[OwnerId | None, list[Tensor]] = field(default_factory=dict)  # by seen.py

    @property
    def plan(self) -> Plan:
        """The agreed run, which a server knows."""
        return self.setup.plan

    @property
    def masked(self) -> bool:
        """Whether single replies are hidden from the server."""
        return in_sums(self.setup.config)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The owners' subgraphs: what nobody else should know."""
        return self.setup.owners.subgraphs

    @property
    def attacked(self) -> list[OwnerId]:
        """The owners whose replies are attacked: the first, or the first three."""
        return list(range(len(self.graphs)))[: 1 if self.quick else 3]

    def stream(self, *path: str | int) -> Stream:
        """The attacker's own random draws."""
        return generator(self.plan.seed, "audit", *path)

    def rows_of(self, owner: OwnerId) -> Rows:
        """Rows of an owner."""
        return some_rows(self.graphs[owner].x, self.stream("rows", owner))

    def rows_of_others(self, owner: OwnerId) -> Rows:
        """Rows of the other owners."""
        others = [self.rows_of(j) for j in range(len(self.graphs)) if j != owner]
        return some_rows(np.concatenate(others), self.stream("rows of others", owner))

    def rows_of_all(self) -> Rows:
        """Rows of any owner."""
        everyone = [self.rows_of(j) for j in range(len(self.graphs))]
        return some_rows(np.concatenate(everyone), self.stream("rows of all"))

    def rows_left_out(self) -> Rows | None:
        """Rows of the same kind that are nowhere in the run, if any were left out."""
        if self.left_out is None:
            return None
        return some_rows(self.left_out, self.stream("rows left out"))


def some_rows(x: NodeFeatures, stream: Stream) -> Rows:
    """A limited number of rows, none of them empty, scaled to length one."""
    filled = np.flatnonzero(np.asarray((x != 0).sum(axis=1)).reshape(-1))
    chosen = np.sort(stream.permutation(filled)[:MOST_ROWS])
    rows = x[chosen].toarray() if issparse(x) else x[chosen]
    rows = rows.astype(np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
