"""The server's state after its rounds, on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fedsage.checkpoint.store import Due, Shelf, always
from fedsage.errors import StorageError
from fedsage.protocol.exchange import Exchange, Taken
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.plan import Journal, Progress
from fedsage.protocol.procedures import Phase

Can: TypeAlias = Callable[["ServerState"], bool]
PHASES: tuple[Phase, ...] = ("training", "mending")


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server keeps after a round."""

    progress: Progress
    taken: dict[OwnerId, Taken]
    traffic: dict[str, dict[str, int]]
    history: list[dict[str, Any]]
    resumed: int


class DiskJournal(Journal):
    """Keeps rounds in ``folder``, and starts after the last one that all parties have.

    Args:
        folder: For the states of the server.
        exchange: Its traffic, and who took part in what, are restored.
        can: Whether all owners can continue from a state.
        durable: Whether states must survive a power cut.
        due: Which rounds are kept.
    """

    def __init__(
        self,
        folder: Path,
        exchange: Exchange,
        can: Can,
        durable: bool = False,
        due: Due = always,
    ) -> None:
        self.folder, self.exchange, self.durable, self.due = folder, exchange, durable, due
        self.lines: list[dict[str, Any]] = []  # of history so far
        self.resumed = 0
        found = self.newest(can)
        if found is None:
            return
        self.start = found.progress
        exchange.taken = dict.fromkeys(exchange.owners, Taken()) | found.taken
        self.resumed = found.resumed + 1
        self.lines = found.history
        for phase, counted in exchange.engine.traffic.items():
            for way, count in found.traffic[phase].items():
                setattr(counted, way, count)
        self.store(found.progress)  # records the restart, even if it gets no further

    def newest(self, can: Can) -> ServerState | None:
        """The last round that the server and every owner have complete, or None."""
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
                f"The run cannot continue: {self.folder} holds states, but no round that the "
                "server and all owners have complete. If it is an older copy, put the newest "
                "copy back and use --resume; otherwise start a new run."
            )
        return None

    def shelf(self, phase: str) -> Shelf:
        """The rounds of a phase."""
        return Shelf(self.folder, f"server-{phase}", self.durable)

    def keep(self, progress: Progress) -> None:
        """Store the server's state, if this round is to be kept."""
        if self.due(progress.phase, progress.t):
            self.store(progress)

    def store(self, progress: Progress) -> None:
        """Store the server's state."""
        counted = self.exchange.engine.traffic.items()
        traffic = {str(phase): asdict(one) for phase, one in counted}
        state = ServerState(progress, self.exchange.taken, traffic, self.lines, self.resumed)
        self.shelf(progress.phase).put(progress.t, state)


def step_of(state: ServerState, owner: OwnerId) -> tuple[Phase, int, bool]:
    """Where one owner was then: phase, rounds it took part in, whether its graph was mended."""
    taken, phase = state.taken.get(owner, Taken()), state.progress.phase
    return phase, taken.mending if phase == "mending" else taken.training, taken.mended
