"""A run's folder: history, models, ``result.json`` with what the run was made with."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedsage.errors import ConfigError, DataError
from fedsage.evaluation.evaluate import mending_from
from fedsage.files import PARTIAL, write_json
from fedsage.machine import commit, machine, now, versions
from fedsage.presets import RENAMED, renamed
from fedsage.runs.events import HistoryLine
from fedsage.runs.messages_seen import MESSAGES
from fedsage.runs.record import FORMAT, OPEN, OwnerLine, RunRecord
from fedsage.runs.stored_graph import forget_answers

RESULT, HISTORY, CHECKPOINT = "result.json", "history.jsonl", "checkpoint"
SETTINGS = "settings.json"  # in the checkpoint
OURS = (RESULT, HISTORY, "model.safetensors", "model.json", "compare.json", "audit.json")
EARLIER = {"neighgen": "mending", "classifier": "training", "evaluate": "evaluation"}


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a run was made with."""

    config: dict[str, Any]
    command: str
    versions: dict[str, str] = field(default_factory=lambda: versions())
    commit: str | None = field(default_factory=lambda: commit())
    machine: dict[str, str | int | None] = field(default_factory=lambda: machine())
    finished: str = field(default_factory=lambda: now())


def check_free(folder: Path, force: bool = False) -> None:
    """Refuse a folder that holds another run, unless forced."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file. Give a folder.")
    held = [name for name in OURS if (folder / name).exists()]
    if held and not force:
        raise ConfigError(
            f"{folder} holds another run ({', '.join(held)}). Choose another folder, or "
            "replace it: --force, in Python force=True."
        )


def claim(folder: Path, resume: bool = False) -> None:
    """Make ``folder`` ready for a run: what another run left there goes.

    To resume is to keep its checkpoint; lines of history are written again from there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in [*(folder / name for name in OURS), *folder.glob(f".*{PARTIAL}")]:
            path.unlink(missing_ok=True)
        forget_answers(folder)
        for inside in (MESSAGES,) if resume else (MESSAGES, CHECKPOINT):
            if (folder / inside).is_dir():
                shutil.rmtree(folder / inside)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}). Choose another folder."
        ) from None


def append_history(folder: Path, line: HistoryLine) -> None:
    """Add one whole line: a single write, so that a kill leaves no half of it."""
    text = json.dumps(asdict(line), allow_nan=False) + "\n"
    handle = os.open(folder / HISTORY, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def write_result(folder: Path, record: RunRecord, provenance: Provenance) -> None:
    """Write ``result.json``; it comes last in a run's folder and says that the run is whole."""
    write_json(folder / RESULT, asdict(record) | asdict(provenance))


def read_result(folder: Path) -> dict[str, Any]:
    """The object in a folder's ``result.json``."""
    try:
        found = json.loads((folder / RESULT).read_text())
    except FileNotFoundError:
        raise DataError(
            f"{folder} holds no finished run: there is no {RESULT}. Give the folder that "
            "'fedsage run' wrote to."
        ) from None
    except OSError as error:
        raise DataError(
            f"{folder / RESULT} cannot be read ({error.strerror}). Check its permissions."
        ) from None
    except ValueError as error:
        raise DataError(f"{folder / RESULT} is not JSON ({error}). Run it again.") from None
    seen = found.get("format") if isinstance(found, dict) else None
    if seen == 1:
        found = with_phases(found)
    elif seen != FORMAT:
        raise DataError(
            f"{folder / RESULT} has format {seen}, but this fedsage reads format {FORMAT}. "
            "Update fedsage, or run it again."
        )
    earlier = {"bytes_full": found["bytes"], "privacy": OPEN}  # full messages, seen by all
    return earlier | found


def with_phases(found: dict[str, Any]) -> dict[str, Any]:
    """A result of format 1, in which phases had other names."""
    changed = {
        key: {EARLIER.get(phase, phase): value for phase, value in found[key].items()}
        for key in ("bytes", "seconds", "cpu_seconds_by_phase")
    }
    return found | changed | {"format": FORMAT, "backbone": "graphsage"}


def read_history(folder: Path) -> list[HistoryLine]:
    """The rounds of a run, in the order they ended."""
    try:
        text = (folder / HISTORY).read_text()
        lines = [HistoryLine(**json.loads(line)) for line in text.splitlines()]
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{folder / HISTORY} cannot be read ({error}). Run it again.") from None
    return [replace(line, phase=EARLIER.get(line.phase, line.phase)) for line in lines]


def read_record(folder: Path) -> RunRecord:
    """The record in a folder's ``result.json``."""
    found = read_result(folder)
    known = {field.name for field in fields(RunRecord)}
    lines = [OwnerLine(**line) for line in found["per_owner"]]
    mending = mending_from(found["mending"]) if found["mending"] else None
    values = {key: value for key, value in found.items() if key in known}
    names = tuple(found["class_names"])
    return RunRecord(**values | {"per_owner": lines, "mending": mending, "class_names": names})


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Keep what a run was asked for, so that it can be resumed by its folder alone."""
    write_json(folder / CHECKPOINT / SETTINGS, settings)


def read_settings(folder: Path) -> dict[str, Any] | None:
    """What the run in ``folder`` was asked for; nothing if it never began."""
    try:
        if (folder / RESULT).exists():
            return dict(read_result(folder)["config"])
        return dict(json.loads((folder / CHECKPOINT / SETTINGS).read_text()))
    except (OSError, ValueError):
        return None


def check_same_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuse to go on with a run under other settings, but for how long owners have."""
    before = renamed(read_settings(folder) or {}, RENAMED)
    for section, values in before.items():
        for key, value in values.items() if section != "federation" else ():
            if (now := settings[section].get(key)) != value:
                raise ConfigError(
                    f"The run in {folder} has other settings: {section}.{key} was {value} and "
                    f"is now {now}. Leave out what is different, or start a new run in another "
                    "folder."
                )


def end_checkpoint(folder: Path) -> None:
    """A finished run needs no checkpoint."""
    shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
