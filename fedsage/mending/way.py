"""A way of mending: what the server does until every owner has its G'_i.

The procedures that it asks owners for are those in the same file, or in modules that it names;
an owner that agreed to it answers no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fedsage.config import Config, MendConfig, NeighGenConfig
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import RemoteLinks
from fedsage.graph.mend import Generated
from fedsage.models.parameters import Parameters
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Procedure, procedures_in
from fedsage.registry import Registry
from fedsage.rng import Stream
from fedsage.shapes import NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class NewNodes:
    """Nodes that came after a run, for a way of mending to attach neighbors to."""

    graph: Graph  # their neighborhood
    nodes: NodeIds  # which of its nodes are new
    remote: RemoteLinks  # their links to other owners' nodes, from places in ``nodes``
    known: Graph  # G_i as it was mended in the run
    remembered: Parameters  # what the way left with the owner
    mend: MendConfig
    neighgen: NeighGenConfig
    stream: Stream


Continues: TypeAlias = Literal["nothing", "own", "common"]
Renew: TypeAlias = Callable[[NewNodes], Generated]
Truth: TypeAlias = Callable[[Graph, Sequence[NodeIds]], list[Generated]]


def no_rounds(config: Config) -> int:
    """For ways without rounds."""
    return 0


def nothing_to_refuse(plan: Plan) -> None:
    """For ways that are always possible."""


def can_be_hidden(config: Config) -> str | None:
    """For ways that are possible wherever sums are hidden."""
    return None


def little(plan: Plan) -> int:
    """For ways that exchange almost nothing."""
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
    abroad: bool
    renew: Renew | None
    continues: Continues
    bares: Callable[[Config], str | None]

    @property
    def asks(self) -> dict[str, Procedure[Any, Any, Any]]:
        """The procedures that it asks owners for."""
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
    abroad: bool = False,
    renew: Renew | None = None,
    continues: Continues = "nothing",
    bares: Callable[[Config], str | None] = can_be_hidden,
) -> Callable[[Callable[[Exchange], None]], Callable[[Exchange], None]]:
    """Register the server's side of a way of mending.

    Args:
        name: For ``mend.how`` and ``--method fedsage+NAME``.
        rounds: How many rounds it takes, for progress bars.
        check: Refuses, before anything is trained, what owners would refuse.
        carries: About how many bytes are exchanged.
        sections: Settings that it depends on and other ways do not.
        truth: Makes neighbors from the whole graph, before the run: only in simulations.
        also: Other modules with procedures that it asks for.
        abroad: Whether it needs links to other owners that owners know of.
        renew: Makes neighbors for nodes that came after the run; without it they get none.
        continues: Whether a run can begin with the generators of an earlier one: each owner
            with its ``own``, or all with a ``common`` one.
        bares: Why it cannot be hidden with these settings, and what to do; or None.
    """

    def register(mend: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
        way = Way(
            name, mend, rounds, check, carries, sections, truth, also, abroad, renew, continues,
            bares,
        )  # fmt: skip
        WAYS.add(name, way, mend)
        return mend

    return register


@way_of_mending("none", sections=())
def by_nothing(exchange: Exchange) -> None:
    """Leave every graph as it is: nothing is exchanged."""
