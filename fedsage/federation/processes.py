"""Which process is a party's: its number and when it began, in a file."""

from __future__ import annotations

from pathlib import Path

import psutil


def remember(file: Path, pid: int) -> None:
    """Write down a process that was just started."""
    file.write_text(f"{pid} {psutil.Process(pid).create_time()}")


def recall(file: Path) -> psutil.Process | None:
    """The process that was written down, if it is there; not another that got its number."""
    try:
        pid, created = file.read_text().split()
        found = psutil.Process(int(pid))
        alive = found.is_running() and found.status() != psutil.STATUS_ZOMBIE
        return found if alive and abs(found.create_time() - float(created)) < 1 else None
    except (OSError, ValueError, psutil.Error):
        return None
