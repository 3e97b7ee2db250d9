"""How far a run has come, on disk: the server's state after every round, and its owners'."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fedsage.checkpoint.store import Shelf
from fedsage.errors import StorageError
from fedsage.evaluation.results import HistoryLine
from fedsage.methods import Journal, Progress
from fedsage.protocol.engine import Engine, Taken
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.procedures import Phase

Can: TypeAlias = Callable[["ServerState"], bool]
PHASES: tuple[Phase, ...] = ("classifier", "neighgen")


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server keeps after a round."""

    progress: Progress
    taken: dict[OwnerId, Taken]
    traffic: dict[str, dict[str, int]]
    history: list[dict[str, Any]]
    resumed: int


class DiskJournal(Journal):
    """Keeps every round in ``folder``, and starts after the last one that all parties have.

    Args:
        folder: For the states of the server.
        engine: Its traffic, and who took part in what, are set to what they were.
        can: Whether all owners can go on from a state.
        durable: Whether states must survive a power cut.
    """

    def __init__(self, folder: Path, engine: Engine, can: Can, durable: bool = False) -> None:
        self.folder, self.engine, self.durable = folder, engine, durable
        self.traffic = engine.traffic
        self.lines: list[HistoryLine] = []
        self.resumed = 0
        found = self.newest(can)
        if found is None:
            return
        self.start = found.progress
        engine.taken = {i: found.taken.get(i, Taken()) for i in engine.owners}
        self.resumed = found.resumed + 1
        self.lines = [HistoryLine(**line) for line in found.history]
        for phase, counted in self.traffic.items():
            counted.up, counted.down = (found.traffic[phase][way] for way in ("up", "down"))
        self.keep(found.progress)  # that it was started again, should it get no further

    def newest(self, can: Can) -> ServerState | None:
        """The last round that the server and every owner have whole."""
        seen = False
        for phase in PHASES:
            shelf = self.shelf(phase)
            for step in shelf.steps():
                seen = True
                found = shelf.get(step, ServerState)
                if found is not None and can(found):
                    return found
        if seen:
            raise StorageError(
                f"The run cannot go on: there are states in {self.folder}, but no round that "
                "server and owners all have whole. Start a new run."
            )
        return None

    def shelf(self, phase: str) -> Shelf:
        """The rounds of a phase."""
        return Shelf(self.folder, f"server-{phase}", self.durable)

    def keep(self, progress: Progress) -> None:
        """Write it down."""
        traffic = {str(phase): asdict(counted) for phase, counted in self.traffic.items()}
        history = [asdict(line) for line in self.lines]
        state = ServerState(progress, self.engine.taken, traffic, history, self.resumed)
        self.shelf(progress.phase).put(progress.t, state)


class LocalJournals(Journal):
    """One journal for every local model."""

    def __init__(self, journals: dict[OwnerId, DiskJournal]) -> None:
        self.journals = journals

    def of(self, owner: OwnerId) -> Journal:
        """The journal of one owner's local model."""
        return self.journals[owner]


def step_of(state: ServerState, owner: OwnerId) -> tuple[Phase, int, bool]:
    """Where one owner was then: phase, rounds it took part in, whether its graph was mended."""
    taken, phase = state.taken.get(owner, Taken()), state.progress.phase
    return phase, taken.neighgen if phase == "neighgen" else taken.classifier, taken.mended
