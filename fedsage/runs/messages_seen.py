"""What a server sees of a run, kept as it was sent: for ``fedsage audit``.

``messages/`` in the run's folder has one line for each message in ``index.jsonl`` and the bytes
of all of them, one after the other, in ``frames.bin``. Replies are as they left the owners'
doors; where the server adds them up, the sum that it gets stands behind them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedsage.errors import DataError
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.procedures import Phase, Procedure
from fedsage.protocol.wire import decode, encode

MESSAGES, INDEX, FRAMES = "messages", "index.jsonl", "frames.bin"
Way: TypeAlias = Literal["down", "up", "sum"]  # to an owner, from it, of all replies


@dataclass(frozen=True, slots=True)
class Line:
    """One message in the index."""

    exchange: int  # the first is 0
    procedure: str
    phase: Phase
    way: Way
    owner: OwnerId | None  # None for a sum
    type: str
    start: int  # of its bytes
    bytes: int


class Recorder:
    """Writes down every message; to be used as a context."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / MESSAGES
        self.end, self.exchange = 0, -1
        self.last: tuple[bytes, int] = b"", 0  # a broadcast is stored once
        self._open = ExitStack()

    def __enter__(self) -> Recorder:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.index = self._open.enter_context((self.folder / INDEX).open("w"))
        self.frames = self._open.enter_context((self.folder / FRAMES).open("wb"))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def carried(
        self,
        exchange: int,
        procedure: Procedure[Any, Any, Any],
        owner: OwnerId,
        asked: bytes,
        answer: bytes,
    ) -> None:
        """A request and its reply, as an engine carried them."""
        self.exchange = exchange
        self.add(procedure, "down", owner, procedure.request, asked)
        self.add(procedure, "up", owner, procedure.reply, answer)

    def summed(self, procedure: Procedure[Any, Any, Any], total: Any) -> None:
        """What the server gets of all replies together."""
        self.add(procedure, "sum", None, procedure.reply, encode(total))

    def add(
        self,
        procedure: Procedure[Any, Any, Any],
        way: Way,
        owner: OwnerId | None,
        kind: type,
        frame: bytes,
    ) -> None:
        """One message."""
        before, start = self.last
        if way != "down" or frame is not before:
            start, self.end = self.end, self.end + len(frame)
            self.frames.write(frame)
        if way == "down":
            self.last = frame, start
        name, phase = procedure.name, procedure.phase
        line = Line(self.exchange, name, phase, way, owner, kind.__name__, start, len(frame))
        self.index.write(json.dumps(asdict(line)) + "\n")


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """The messages of a run, in the order in which they were sent."""

    folder: Path
    lines: Sequence[Line]
    procedures: Mapping[str, Procedure[Any, Any, Any]]  # for the types of messages

    def find(
        self, procedure: str, way: Way, owner: OwnerId | None = None
    ) -> Iterator[tuple[Line, Any]]:
        """The messages of one procedure, one way, of one owner or of the sum."""
        for line in self.lines:
            if (line.procedure, line.way, line.owner) == (procedure, way, owner):
                yield line, self.message(line)

    def message(self, line: Line) -> Any:
        """One message."""
        procedure = self.procedures[line.procedure]
        kind = procedure.request if line.way == "down" else procedure.reply
        return decode(kind, self.frame(line))

    def frame(self, line: Line) -> bytes:
        """Its bytes."""
        with (self.folder / MESSAGES / FRAMES).open("rb") as file:
            file.seek(line.start)
            return file.read(line.bytes)

    @property
    def names(self) -> list[str]:
        """The procedures that were asked for."""
        return list(dict.fromkeys(line.procedure for line in self.lines))


def read_recording(
    folder: Path, procedures: Mapping[str, Procedure[Any, Any, Any]]
) -> Recording:
    """The messages in a run's folder."""
    try:
        text = (folder / MESSAGES / INDEX).read_text()
        lines = [Line(**json.loads(line)) for line in text.splitlines()]
    except FileNotFoundError:
        raise DataError(
            f"{folder} holds no messages: there is no {MESSAGES}/{INDEX}. Run it again with "
            "--record."
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{folder / MESSAGES / INDEX} cannot be read ({error}). Run it again."
        ) from None
    return Recording(folder, lines, procedures)
