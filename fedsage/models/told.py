"""How much an owner has revealed of its features: products with bases, and their columns."""

from __future__ import annotations

from dataclasses import dataclass

from fedsage.models.parameters import sha256_of
from fedsage.models.subspace import Basis


@dataclass(frozen=True, slots=True)
class SketchedState:
    """Which sketches of its features an owner was asked for, and whether it gave them."""

    columns: int  # of all of them together
    answered: dict[str, bool]  # by the checksum of the basis


class Sketched:
    """How much an owner has revealed of its features. It is never forgotten."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.product: Basis | None = None  # the last answer, until it is sent
        self.told = SketchedState(0, {})

    def state(self) -> SketchedState:
        """What was asked for so far."""
        return self.told

    def restore(self, state: SketchedState) -> None:
        """Add what was revealed before a restart; nothing is ever subtracted."""
        columns = max(self.told.columns, state.columns)
        self.told = SketchedState(columns, self.told.answered | state.answered)

    def may_answer(self, basis: Basis) -> bool:
        """Whether all answers together stay within half as many columns as nodes.

        As many columns as nodes would span every row of X_i. The same basis again, after a
        restart, has the same answer and counts once.
        """
        known = sha256_of({"": basis})
        if known not in self.told.answered:
            columns = self.told.columns + basis.shape[1]
            within = 2 * columns <= self.num_nodes
            self.told = SketchedState(columns, self.told.answered | {known: within})
        return self.told.answered[known]
