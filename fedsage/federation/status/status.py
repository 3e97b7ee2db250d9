"""The state of a federation as one value: who is there, what runs, who is waited for.

The server hears every owner twice a second and answers with this value, so all parties see the
same. Each keeps the latest in its kit (``fedsage/status.json``).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedsage.federation.kits.kit import Role

STATUS = "status.json"
BEAT = 0.5  # seconds between two signs of life of an owner
GONE = 3.0  # seconds without one, after which a party counts as gone
SLOW = 1.0  # seconds after which an exchange counts as waiting for somebody
Server: TypeAlias = Literal["up", "down", "not answering"]


@dataclass(frozen=True, slots=True)
class OwnerStatus:
    """What the server knows of one owner."""

    connected: bool = False
    in_run: bool = False  # takes part in the run, and answered when it was last asked
    last_answer_seconds: float | None = None  # since it answered in this run
    working: bool = False  # its process for the run is up
    seconds: float | None = (
        None  # it has been connected, or gone, for so long; None: never here
    )


@dataclass(frozen=True, slots=True)
class Status:
    """A federation, seen from one party."""

    party: str = ""
    role: Role = "server"
    process: int | None = None  # of this party on this machine
    server: Server = "down"
    run: str | None = None
    phase: str | None = None
    round: int | None = None  # rounds of this phase that are done
    rounds: int | None = None
    exchange: str | None = None  # the procedure that owners were asked for last
    answered: list[str] = field(default_factory=list)  # who has answered it
    exchange_seconds: float | None = None  # since they were asked
    owners: dict[str, OwnerStatus] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)  # that the server has a process for
    waiting_for: list[str] = field(default_factory=list)
    waiting_seconds: float | None = None
    decisions: str = ""  # for whose consent the run waits, in words
    deadline_seconds: float | None = None  # until the run goes on without them, or stops
    disk_free_bytes: int = 0  # where this party's kit is
    certificate_days: int | None = None  # until this party's certificate ends
    note: str = ""  # something this party's people must do

    def older(self, seconds: float) -> Status:
        """The same state when so many seconds have passed."""

        def later(found: float | None, way: int = 1) -> float | None:
            return None if found is None else max(0.0, round(found + way * seconds, 1))

        return replace(
            self,
            exchange_seconds=later(self.exchange_seconds),
            waiting_seconds=later(self.waiting_seconds),
            deadline_seconds=later(self.deadline_seconds, -1),
            owners={
                name: replace(
                    one,
                    last_answer_seconds=later(one.last_answer_seconds),
                    seconds=later(one.seconds),
                )
                for name, one in self.owners.items()
            },
        )


def status_in(told: Mapping[str, Any]) -> Status:
    """The status in a JSON object; what a newer version adds is left out."""
    known = {one.name for one in fields(Status)}
    parts = {name: value for name, value in told.items() if name in known}
    about = {one.name for one in fields(OwnerStatus)}
    parts["owners"] = {
        name: OwnerStatus(**{key: value for key, value in one.items() if key in about})
        for name, one in told.get("owners", {}).items()
    }
    return Status(**parts)


def store(ours: Path, status: Status) -> None:
    """Keep what was heard last; a reader sees all of it or the one before."""
    partial = ours / f".{STATUS}"
    partial.write_text(json.dumps({"heard": time.monotonic()} | asdict(status)))
    os.replace(partial, ours / STATUS)


def stored(ours: Path) -> tuple[Status, float]:
    """What was heard last, and how many seconds ago."""
    try:
        told = json.loads((ours / STATUS).read_text())
        age = time.monotonic() - float(told["heard"])
        return status_in(told), age if age >= 0 else float("inf")  # another boot
    except (OSError, ValueError, KeyError, TypeError):
        return Status(), float("inf")
