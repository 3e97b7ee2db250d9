"""An owner that writes down what it takes to go on, before its reply leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsage.checkpoint.store import Shelf
from fedsage.errors import ProtocolError
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import (
    LOCAL_UPDATE_C,
    PROCEDURES,
    SKETCH_FEATURES,
    UPDATE_NEIGHGEN,
    UPDATE_SHARED_NEIGHGEN,
    Phase,
    Procedure,
    Reply,
    Request,
)
from fedsage.protocol.state import ClassifierState, GenState, Sketched

GEN_ROUND = (UPDATE_NEIGHGEN.name, UPDATE_SHARED_NEIGHGEN.name)


class Keeper:
    """Runs procedures on an owner; with a folder, what changed is there when it answers.

    A step of NeighGen is kept after its round, the request that mended the graph when it was
    mended, moments after procedure F where nobody averages them. φ is the server's to keep.
    """

    def __init__(
        self, owner: DataOwner, folder: Path | None = None, durable: bool = False
    ) -> None:
        self.owner, self.folder, self.durable = owner, folder, durable
        if folder and (sketched := self.shelf("sketched").get(0, Sketched)):
            owner.sketched = sketched

    def shelf(self, kind: str) -> Shelf:
        """The steps of one kind."""
        assert self.folder is not None
        return Shelf(self.folder, kind, self.durable)

    def perform(self, procedure: Procedure[Any, Request, Reply], request: Request) -> Reply:
        """Run a procedure and keep what it changed."""
        reply = procedure.run(self.owner, request)
        if self.folder is None:
            return reply
        t = getattr(request, "t", 0)
        if procedure.name in GEN_ROUND:
            self.shelf("neighgen").put(t + 1, self.owner.gen_state())
        elif procedure.name == SKETCH_FEATURES.name:
            self.shelf("sketched").put(0, self.owner.sketched)
        elif procedure.owed:
            if self.owner.gen is not None:
                self.shelf("mended").put(0, self.owner.gen_state())
            self.shelf(procedure.name).put(0, request)
        elif procedure.name == LOCAL_UPDATE_C.name and self.keeps_moments:
            self.shelf("classifier").put(t + 1, self.owner.classifier_state())
        return reply

    @property
    def keeps_moments(self) -> bool:
        """Whether procedure F leaves something behind."""
        return self.owner.config.classifier.moments == "own"

    def has(self, phase: Phase, t: int, mends: bool) -> bool:
        """Whether this owner can go on after ``t`` rounds of a phase."""
        if phase == "neighgen":
            return t == 0 or self.shelf("neighgen").get(t, GenState) is not None
        mended = not mends or self.mended_by() is not None
        if not self.keeps_moments or t == 0:
            return mended
        return mended and self.shelf("classifier").get(t, ClassifierState) is not None

    def mended_by(self) -> Procedure[DataOwner, Any, Any] | None:
        """The procedure that mended the graph, if it can be done again."""
        for procedure in PROCEDURES.values():
            if procedure.owed and self.shelf(procedure.name).get(0, procedure.request):
                gen = self.owner.gen and self.shelf("mended").get(0, GenState)
                return procedure if gen or self.owner.gen is None else None
        return None

    def restore(self, phase: Phase, t: int, mends: bool) -> None:
        """Be again as after ``t`` rounds of a phase."""
        if not self.has(phase, t, mends):
            raise ProtocolError(
                f"Owner {self.owner.id} cannot go on after round {t} of {phase}: the state "
                "that it kept is missing or damaged. Start a new run."
            )
        if phase == "neighgen" and (gen := self.shelf("neighgen").get(t, GenState)):
            self.owner.restore_gen(gen)
        if phase == "classifier" and mends and (procedure := self.mended_by()):
            if self.owner.gen is not None and (gen := self.shelf("mended").get(0, GenState)):
                self.owner.restore_gen(gen)
            request = self.shelf(procedure.name).get(0, procedure.request)
            procedure.run(self.owner, request)
        if phase == "classifier" and (own := self.shelf("classifier").get(t, ClassifierState)):
            self.owner.restore_classifier(own)
