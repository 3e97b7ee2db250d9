"""What a way of mending is: what the server does until every owner has its G'_i.

The procedures that it asks owners for are those that stand in the same file, or in one that it
names, and an owner that agreed to it answers no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fedsage.config import Config
from fedsage.graph.attach import Generated
from fedsage.graph.graph import Graph
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Procedure, procedures_in
from fedsage.registry import Registry
from fedsage.shapes import NodeIds

Truth: TypeAlias = Callable[[Graph, Sequence[NodeIds]], list[Generated]]


def no_rounds(config: Config) -> int:
    """For ways that are done at once."""
    return 0


def nothing_to_refuse(plan: Plan) -> None:
    """For ways that can always be taken."""


def little(plan: Plan) -> int:
    """For ways that carry next to nothing."""
    return 0


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """One way of mending; see :func:`way_of_mending`."""

    name: str
    mend: Callable[[Exchange], None]
    rounds: Callable[[Config], int]
    check: Callable[[Plan], None]
    carries: Callable[[Plan], int]
    sections: tuple[str, ...]
    truth: Truth | None
    also: tuple[str, ...]

    @property
    def asks(self) -> dict[str, Procedure[Any, Any, Any]]:
        """What it asks owners for."""
        return procedures_in(self.mend.__module__, *self.also)


WAYS: Registry[Way] = Registry("way of mending", "way_of_mending", "fedsage.mending")


def way_of_mending(
    name: str,
    *,
    rounds: Callable[[Config], int] = no_rounds,
    check: Callable[[Plan], None] = nothing_to_refuse,
    carries: Callable[[Plan], int] = little,
    sections: tuple[str, ...] = ("mend",),
    truth: Truth | None = None,
    also: tuple[str, ...] = (),
) -> Callable[[Callable[[Exchange], None]], Callable[[Exchange], None]]:
    """Register the server's side of a way of mending.

    Args:
        name: For ``mend.how`` and ``--method fedsage+NAME``.
        rounds: How many rounds it takes, for those who wait.
        check: Refuses, before anything is trained, what owners would refuse.
        carries: About how many bytes the exchange takes.
        sections: Of the settings that it depends on, of those that others do not.
        truth: Makes neighbors from the whole graph, before the run: in simulations alone.
        also: Other modules with procedures that it asks for.
    """

    def register(mend: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
        way = Way(name, mend, rounds, check, carries, sections, truth, also)
        WAYS.add(name, way, mend)
        return mend

    return register
