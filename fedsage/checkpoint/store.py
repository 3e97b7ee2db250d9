"""State on disk: one file for each step, all or nothing, with a checksum, without pickle.

Where all parties are one process, and stop together, a few rounds are kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from fedsage.errors import ProtocolError, StorageError
from fedsage.protocol.procedures import Phase
from fedsage.protocol.wire import decode, to_bytes

KEPT = 3  # steps of a kind: one may be damaged, and owners may be one ahead of the server
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Shelf:
    """The last steps of one kind of state, e.g. ``neighgen-00007.state``."""

    folder: Path
    kind: str
    durable: bool = False  # survives a power cut too, not only a kill

    def path(self, step: int) -> Path:
        """The file of a step."""
        return self.folder / f"{self.kind}-{step:05d}.state"

    def put(self, step: int, state: Any) -> None:
        """Store ``state``, and delete older steps that can no longer be needed."""
        body = to_bytes(state)
        path = self.path(step)
        partial = path.with_suffix(".partial")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_pieces(partial, seal_of(body) + b"\n", body)
            if self.durable:
                settle_on_disk(partial)
            os.replace(partial, path)
            if self.durable:
                settle_on_disk(self.folder)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StorageError(
                f"The checkpoint {path} cannot be written ({error.strerror}). What was written "
                "before is safe: make room or give permission, then continue with --resume."
            ) from None
        held = self.steps()
        later = [one for one in held if one > step]
        for old in [*later, *held[len(later) + KEPT :]]:
            self.path(old).unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """The steps that have a file, newest first."""
        pattern = re.compile(rf"{re.escape(self.kind)}-(\d+)\.state")
        names = [path.name for path in self.folder.glob(f"{self.kind}-*.state")]
        found = [match for name in names if (match := pattern.fullmatch(name))]
        return sorted((int(match[1]) for match in found), reverse=True)

    def get(self, step: int, kind: type[S]) -> S | None:
        """The state of a step, or None if its file is missing, cut short or altered."""
        try:
            seal, _, body = self.path(step).read_bytes().partition(b"\n")
        except OSError:
            return None
        if seal != seal_of(body):
            return None
        try:
            return decode(kind, body)
        except ProtocolError:
            return None


def write_pieces(path: Path, *pieces: bytes) -> None:
    """Write pieces one after the other, without joining them in memory."""
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)


def settle_on_disk(path: Path) -> None:
    """Wait until it is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def seal_of(body: bytes) -> bytes:
    """A checksum that exposes a file that was cut short or altered."""
    return hashlib.sha256(body).hexdigest().encode()


Due: TypeAlias = Callable[[Phase, int], bool]
SECONDS = 1.0  # of work that a kill may cost


def always(phase: Phase, step: int) -> bool:
    """Every round, where parties stop one by one."""
    return True


def once_a_second() -> Due:
    """The first round of a phase, and then one whenever a second has passed.

    The server and all owners ask, and get one answer for a round: what one of them keeps, all
    of them keep.
    """
    told: dict[tuple[Phase, int], bool] = {}
    last: dict[Phase, float] = {}
    one_by_one = Lock()  # owners may work in threads

    def due(phase: Phase, step: int) -> bool:
        with one_by_one:
            if (phase, step) not in told:
                now = time.monotonic()
                told[phase, step] = phase not in last or now - last[phase] >= SECONDS
                if told[phase, step]:
                    last[phase] = now
            return told[phase, step]

    return due
