"""What runs leave behind in a kit: how much it is, and what may be removed.

Of a run that is removed, the record stays: what was agreed, what left, and its log.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsage.errors import ConfigError
from fedsage.federation.kits.kit import JOBS, Kit
from fedsage.federation.owner.site import BEFORE, LEAVES
from fedsage.federation.processes.gate import RUNS
from fedsage.federation.status.status import stored
from fedsage.models.classifier import CARD
from fedsage.protocol.sent_log import AGREED, HEAD, SENT
from fedsage.runs.folder import SETTINGS

REMOVED = "removed"  # an empty file: what the run left is gone
RECORD = (AGREED, LEAVES, SENT, HEAD, SETTINGS, REMOVED)  # stays for as long as the kit does
JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # a folder of NVFlare's
OVER = "FINISHED"  # how NVFlare's words for a job that is over begin
MEGABYTE = 10**6


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run in a party's kit."""

    run: str
    result: str  # running, ended, stopped or removed
    bytes: int
    time: float  # of its last change, in seconds since 1970


def kept_runs(kit: Kit, going: str | None = None) -> list[KeptRun]:
    """All runs in a kit, the newest first; ``going`` is in progress if the kit does not say."""
    if kit.role == "coordinator":
        raise ConfigError(
            "A coordinator's kit holds no runs: they are in the folders given with --out. "
            "Give the kit of the server or of an owner."
        )
    going = going or stored(kit.ours)[0].run
    folders = [path for path in (kit.ours / RUNS).glob("*") if path.is_dir()]
    found = [kept_run(path, going) for path in folders if path.name != BEFORE]
    return sorted(found, key=lambda one: (one.time, one.run), reverse=True)


def kept_run(folder: Path, going: str | None) -> KeptRun:
    """One run; ``going`` is the name of the run in progress."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    changed = max((path.stat().st_mtime for path in files), default=folder.stat().st_mtime)
    if folder.name == going:
        result = "running"
    elif (folder / CARD).exists():
        result = "ended"
    else:
        result = "removed" if (folder / REMOVED).exists() else "stopped"
    return KeptRun(folder.name, result, sum(path.stat().st_size for path in files), changed)


def prune(kit: Kit, keep: int) -> tuple[list[str], int]:
    """Remove all but the newest runs; returns their names, and how many bytes that freed."""
    found = [one for one in kept_runs(kit) if one.result != "removed"]
    return removed(kit, [one for one in found[keep:] if one.result != "running"])


def keep_within(kit: Kit, megabytes: int, but: str = "") -> tuple[list[str], int]:
    """Remove the oldest runs that ended until all take at most so much space.

    Runs that stopped are left alone: they can be resumed. So is the run named ``but``.
    """
    found = kept_runs(kit)
    over = sum(one.bytes for one in found) - megabytes * MEGABYTE
    chosen = []
    for one in reversed(found):
        if over > 0 and one.result == "ended" and one.run != but:
            chosen.append(one)
            over -= one.bytes
    return removed(kit, chosen)


def removed(kit: Kit, runs: Sequence[KeptRun]) -> tuple[list[str], int]:
    """Remove what these runs left, and at a server what their jobs did."""
    freed = 0
    for one in runs:
        for path in (kit.ours / RUNS / one.run).iterdir():
            if path.name not in RECORD:
                freed += remove(path)
        (kit.ours / RUNS / one.run / REMOVED).touch()
    if runs:
        newest = max(one.time for one in runs)
        freed += sum(remove(path) for path in old_jobs(kit, newest))
    return [one.run for one in runs], freed


def old_jobs(kit: Kit, before: float) -> Iterator[Path]:
    """Folders that NVFlare left of jobs that ended by then: their logs, and what it stored."""
    for path in [*kit.path.iterdir(), *(kit.ours / JOBS).glob("*")]:
        if not JOB.fullmatch(path.name) or path.stat().st_mtime > before:
            continue
        if path.parent == kit.path or is_over(path):  # a stored job may still wait its turn
            yield path


def is_over(job: Path) -> bool:
    """Whether a job in the server's store has ended."""
    try:
        return str(json.loads((job / "meta").read_text())["status"]).startswith(OVER)
    except (OSError, ValueError, KeyError):
        return False


def remove(path: Path) -> int:
    """Remove a file or folder; returns how many bytes it had."""
    files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    size = sum(one.stat().st_size for one in files)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    return size
