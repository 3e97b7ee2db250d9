"""An owner that stores what it needs to continue, before its reply leaves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_type_hints

from fedsage.checkpoint.store import Due, Shelf, always
from fedsage.errors import ProtocolError
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Kept, Phase, Procedure, Reply, Request

MENDED = "mended-"  # state of a part when the graph was mended


class Keeper:
    """Runs procedures on an owner; with a folder, what changed is on disk before it answers.

    A procedure declares which part of the owner it changes. Mending is kept as the request that
    caused it, with all parts as they were then. φ is kept by the server. ``due`` says which
    rounds are kept.
    """

    def __init__(
        self,
        owner: DataOwner,
        asks: Iterable[Procedure[Any, Any, Any]],
        folder: Path | None = None,
        durable: bool = False,
        due: Due = always,
    ) -> None:
        self.owner, self.folder, self.durable, self.due = owner, folder, durable, due
        self.asks = list(asks)
        for procedure in self.asks if folder else ():
            if procedure.keeps:
                part = procedure.keeps(owner)  # must exist from now on, to be restored
                if not procedure.by_round:  # never forgotten
                    self.bring_back(part, procedure.name, 0)

    def shelf(self, name: str) -> Shelf:
        """The stored steps of one kind."""
        assert self.folder is not None
        return Shelf(self.folder, name, self.durable)

    def perform(self, procedure: Procedure[Any, Request, Reply], request: Request) -> Reply:
        """Run a procedure and keep what it changed."""
        reply = procedure.run(self.owner, request)
        if self.folder is None:
            return reply
        if procedure.keeps:
            step = getattr(request, "t", -1) + 1
            if not procedure.by_round or self.due(procedure.phase, step):
                self.keep(procedure.keeps(self.owner), procedure.name, step)
        if procedure.owed:
            for name, part in self.mending_parts().items():
                self.keep(part, MENDED + name, 0)
            self.shelf(procedure.name).put(0, request)
        return reply

    def mending_parts(self) -> dict[str, Kept]:
        """The parts that mending works with, without those that are never forgotten."""
        lasting = [p.keeps(self.owner) for p in self.asks if p.keeps and not p.by_round]
        parts = self.owner.parts.items()
        return {name: part for name, part in parts if not any(part is one for one in lasting)}

    def keep(self, part: Kept, name: str, step: int) -> None:
        """Store a part, if there is anything to store."""
        if (state := part.state()) is not None:
            self.shelf(name).put(step, state)

    def state(self, part: Kept, name: str, step: int) -> Any:
        """The stored state of a part; None if it is missing or damaged."""
        return self.shelf(name).get(step, kind_of(part))

    def bring_back(self, part: Kept, name: str, step: int) -> None:
        """Return a part to its stored state, if there is one."""
        if (state := self.state(part, name, step)) is not None:
            part.restore(state)

    def rounds_of(self, phase: Phase) -> list[tuple[str, Kept]]:
        """What is kept round by round in a phase."""
        found = [
            (one.name, one.keeps(self.owner))
            for one in self.asks
            if one.keeps and one.by_round and one.phase == phase
        ]
        return [(name, part) for name, part in found if part.state() is not None]

    def has(self, phase: Phase, t: int, mends: bool) -> bool:
        """Whether this owner can continue after ``t`` rounds of a phase."""
        if phase == "training" and mends and self.mended_by() is None:
            return False
        kept = self.rounds_of(phase) if t else []
        return all(self.state(part, name, t) is not None for name, part in kept)

    def mended_by(self) -> Procedure[DataOwner, Any, Any] | None:
        """The procedure that mended the graph, if it can be repeated; else None."""
        for procedure in self.asks:
            if procedure.owed and self.shelf(procedure.name).get(0, procedure.request):
                held = {n: p for n, p in self.mending_parts().items() if p.state() is not None}
                whole = all(self.state(p, MENDED + name, 0) for name, p in held.items())
                return procedure if whole and self.kept_names() <= set(held) else None
        return None

    def kept_names(self) -> set[str]:
        """The parts that were stored when the graph was mended."""
        assert self.folder is not None
        files = self.folder.glob(f"{MENDED}*-00000.state")
        return {path.name.removeprefix(MENDED).removesuffix("-00000.state") for path in files}

    def restore(self, phase: Phase, t: int, mends: bool) -> None:
        """Return this owner to its state after ``t`` rounds of a phase."""
        if not self.has(phase, t, mends):
            raise ProtocolError(
                f"Owner {self.owner.id} cannot continue after round {t} of {phase}: its stored "
                "state is missing or damaged. Start a new run."
            )
        if phase == "training" and mends and (procedure := self.mended_by()):
            for name, part in self.mending_parts().items():
                self.bring_back(part, MENDED + name, 0)
            request = self.shelf(procedure.name).get(0, procedure.request)
            procedure.run(self.owner, request)
        for name, part in self.rounds_of(phase) if t else ():
            self.bring_back(part, name, t)


def kind_of(part: Kept) -> Any:
    """The dataclass of a part's state, from its signature."""
    found = get_type_hints(type(part).state)["return"]
    kinds = [one for one in getattr(found, "__args__", (found,)) if one is not type(None)]
    return kinds[0]
