"""How far a run has come, on disk: the server's state after every round, and its owners'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fedsage.engines.checkpoint import Shelf
from fedsage.evaluation.results import HistoryLine
from fedsage.methods import Journal, Progress
from fedsage.protocol.engine import Traffic
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.procedures import Phase

Can: TypeAlias = Callable[[Phase, int], bool]
PHASES: tuple[Phase, ...] = ("classifier", "neighgen")


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server keeps after a round."""

    progress: Progress
    traffic: dict[str, dict[str, int]]
    history: list[dict[str, Any]]
    resumed: int


class DiskJournal(Journal):
    """Keeps every round in ``folder``, and starts after the last one that all parties have.

    Args:
        folder: For the states of the server.
        traffic: Of the engine; set to what it was.
        can: Whether all owners can go on after so many rounds of a phase.
    """

    def __init__(self, folder: Path, traffic: Mapping[Phase, Traffic], can: Can) -> None:
        self.folder, self.traffic = folder, traffic
        self.lines: list[HistoryLine] = []
        self.resumed = 0
        found = self.newest(can)
        if found is None:
            return
        self.start = found.progress
        self.resumed = found.resumed + 1
        self.lines = [HistoryLine(**line) for line in found.history]
        for phase, counted in self.traffic.items():
            counted.up, counted.down = (found.traffic[phase][way] for way in ("up", "down"))

    def newest(self, can: Can) -> ServerState | None:
        """The last round that the server and every owner have whole."""
        for phase in PHASES:
            shelf = Shelf(self.folder, f"server-{phase}")
            for step in shelf.steps():
                found = shelf.get(step, ServerState)
                if found is not None and can(phase, step):
                    return found
        return None

    def keep(self, progress: Progress) -> None:
        """Write it down."""
        traffic = {str(phase): asdict(counted) for phase, counted in self.traffic.items()}
        history = [asdict(line) for line in self.lines]
        state = ServerState(progress, traffic, history, self.resumed)
        Shelf(self.folder, f"server-{progress.phase}").put(progress.t, state)


class LocalJournals(Journal):
    """One journal for every local model."""

    def __init__(self, journals: dict[OwnerId, DiskJournal]) -> None:
        self.journals = journals

    def of(self, owner: OwnerId) -> Journal:
        """The journal of one owner's local model."""
        return self.journals[owner]
