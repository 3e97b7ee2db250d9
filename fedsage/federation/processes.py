"""Finding a party's process again: its id and start time, in a file."""

from __future__ import annotations

from pathlib import Path

import psutil


def remember(file: Path, pid: int) -> None:
    """Record a process that was just started."""
    file.write_text(f"{pid} {psutil.Process(pid).create_time()}")


def recall(file: Path) -> psutil.Process | None:
    """The recorded process if it still runs, and not another one with the same id."""
    try:
        pid, created = file.read_text().split()
        found = psutil.Process(int(pid))
        alive = found.is_running() and found.status() != psutil.STATUS_ZOMBIE
        return found if alive and abs(found.create_time() - float(created)) < 1 else None
    except (OSError, ValueError, psutil.Error):
        return None
