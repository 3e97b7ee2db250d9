"""``sent.jsonl`` as a chain: every line holds the checksum of the line before it.

The first line holds a checksum of the run's name and of the agreement, and ``sent.head`` says
how many lines there are and what the checksum of the last one is. So a line that was edited,
removed, moved or copied from another run is noticed, and so is a missing end.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from fedsage.errors import StorageError
from fedsage.files import write_json

SENT, HEAD, AGREED = "sent.jsonl", "sent.head", "agreed.json"
RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
Stamp: TypeAlias = tuple[int, int, int]  # of a file: differs after every change


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain ends."""

    lines: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Chain:
    """What was found in a log: its end, the bytes sent, and the first problem."""

    head: Head
    before: str = ""  # checksum of the last line but one
    num_bytes: int = 0  # of all messages
    size: int = 0  # of the file, up to the end of its last complete line
    wrong: str | None = None
    note: str | None = None


def root_of(folder: Path) -> str:
    """What the first line of a run holds instead of the checksum of a line before it."""
    agreed = folder / AGREED
    known = agreed.read_bytes() if agreed.exists() else b""
    return sha256(f"{SENT} of {folder.name}\n".encode() + known).hexdigest()


def sealed(line: Mapping[str, Any], before: str, now: str) -> bytes:
    """A line as it is written; its time and its place in the chain are always set here."""
    ours = {"before": before, "time": now}
    return (json.dumps({**ours, **line, **ours}) + "\n").encode()


def linked(text: bytes, root: str) -> Chain:
    """Follow a log from its first line to its end, or to the first line that does not fit."""
    found = Chain(Head(0, root))
    for raw in text.split(b"\n")[:-1]:
        number, before, line = found.head.lines + 1, found.head.sha256, as_json(raw)
        if line.get("before") != before:
            return replace(found, wrong=misplaced(number, line.get("before")))
        told, size = line.get("bytes"), found.size + len(raw) + 1
        num_bytes = found.num_bytes + (told if isinstance(told, int) else 0)
        found = Chain(Head(number, sha256(raw + b"\n").hexdigest()), before, num_bytes, size)
    return found


def as_json(raw: bytes) -> dict[str, Any]:
    """The fields of a line, or none if it is not JSON."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def misplaced(number: int, before: object) -> str:
    """What is wrong with a line that does not follow the one before it."""
    if before is None:
        return f"line {number} has no checksum of the line before it"
    if number == 1:
        return "line 1 is not the start of this run: it is from another run, or a line is gone"
    return f"line {number} does not follow line {number - 1}: one was edited, removed or moved"


def read_chain(folder: Path) -> Chain:
    """The log of a run, compared with its head."""
    path = folder / SENT
    text = path.read_bytes() if path.exists() else b""
    found, head = linked(text, root_of(folder)), read_head(folder)
    if found.wrong:
        return found
    if wrong := unlike(found, head):
        return replace(found, wrong=wrong)
    if found.size < len(text):
        return replace(found, note="it ends in half a line: that message was not sent")
    if head is not None and found.head.lines > head.lines:
        return replace(found, note="the message of the last line was not sent")
    return found


def unlike(found: Chain, head: Head | None) -> str | None:
    """How the end of a log differs from its head, or None.

    A gate killed between writing a line and its head leaves exactly one extra line.
    """
    lines = found.head.lines
    if head is None:
        return f"{HEAD} is missing, so the end of the log is unknown" if lines else None
    if lines < head.lines:
        gone = head.lines - lines
        return f"the last {gone:,} of {head.lines:,} lines {'is' if gone == 1 else 'are'} gone"
    if lines > head.lines + 1:
        return f"line {head.lines + 1} and those after it are not recorded in {HEAD}"
    ours = found.head.sha256 if lines == head.lines else found.before
    return None if ours == head.sha256 else f"line {head.lines} is not the one in {HEAD}"


def read_head(folder: Path) -> Head | None:
    """The end of the chain as the gate recorded it."""
    try:
        known = json.loads((folder / HEAD).read_text())
        return Head(int(known["lines"]), str(known["sha256"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Head(0, "unreadable")


class Ledger:
    """Writes chains, and remembers where each of them ends."""

    def __init__(self) -> None:
        self.ends: dict[Path, tuple[Head, Stamp]] = {}

    def append(self, folder: Path, line: Mapping[str, Any]) -> str:
        """Add a line, return its checksum; the line is on disk when this returns."""
        head = self.end_of(folder)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        raw = sealed(line, head.sha256, now)
        path, new = folder / SENT, Head(head.lines + 1, sha256(raw).hexdigest())
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "ab", buffering=0) as file:
            size = file.tell()
            try:
                if file.write(raw) < len(raw):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
                write_json(folder / HEAD, asdict(new))
            except OSError:
                os.truncate(path, size)  # an unacknowledged message has no line
                raise
        self.ends[folder] = new, stamp(path)
        return new.sha256

    def end_of(self, folder: Path) -> Head:
        """Where the chain ends; refuses to continue one that something else changed."""
        folder.mkdir(parents=True, exist_ok=True)
        path, known = folder / SENT, self.ends.get(folder)
        if known and path.exists() and stamp(path) == known[1]:
            return known[0]
        found = read_chain(folder)
        if not found.wrong and known and found.head != known[0]:
            found = replace(found, wrong="another program wrote to it")
        if found.wrong:
            raise StorageError(
                f"{SENT} of run {folder.name} is broken ({found.wrong}), so nothing was sent. "
                "See 'fedsage federation verify', keep the folder, and start a new run."
            )
        if not found.head.lines:
            write_json(folder / HEAD, asdict(found.head))  # from now on a lost line is noticed
        if path.exists() and path.stat().st_size > found.size:
            os.truncate(path, found.size)  # half a line, never acknowledged
        return found.head


def stamp(path: Path) -> Stamp:
    """Differs after every change: programs cannot set the time of change."""
    about = path.stat()
    return about.st_ino, about.st_size, about.st_ctime_ns
