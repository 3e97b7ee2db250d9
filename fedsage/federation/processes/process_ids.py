"""Finding a party's process again: its id and start time, in a file."""

from __future__ import annotations

from pathlib import Path

import psutil

from fedsage.federation.kits.kit import Kit

PID, CLIENT = "pid", "client"  # files: an owner's gate or a server, and the gate's client
SET = 10.0  # seconds that a clock may be set by; the time of boot is told in whole ones


def remember(file: Path, pid: int) -> None:
    """Record a process that was just started."""
    file.write_text(f"{pid} {psutil.Process(pid).create_time()}")


def recall(file: Path) -> psutil.Process | None:
    """The recorded process if it still runs, and not another one with the same id."""
    try:
        pid, created = file.read_text().split()
        found = psutil.Process(int(pid))
        alive = found.is_running() and found.status() != psutil.STATUS_ZOMBIE
        same = abs(found.create_time() - float(created)) < SET
        return found if alive and same else None
    except (OSError, ValueError, psutil.Error):
        return None


def pid_of(kit: Kit) -> int | None:
    """The id of the party's process, or None."""
    found = process_of(kit)
    return found.pid if found else None


def process_of(kit: Kit) -> psutil.Process | None:
    """The party's process; for an owner whose gate was killed, the client it left behind."""
    return recall(kit.ours / PID) or recall(kit.ours / CLIENT)


def lost_its_gate(kit: Kit) -> bool:
    """Whether an owner runs without its gate, so that nothing can leave."""
    return kit.role == "owner" and recall(kit.ours / PID) is None and running(kit)


def running(kit: Kit) -> bool:
    """Whether the party's process is running."""
    return process_of(kit) is not None
