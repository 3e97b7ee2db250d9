"""A federated run in the coordinator's folder: what it takes to continue, and its result."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsage.config import Config
from fedsage.errors import ConfigError
from fedsage.federation.console.page import remember_folder
from fedsage.federation.coordinator.job import follow_job
from fedsage.federation.kits.kit import Kit
from fedsage.files import write_atomically, write_json
from fedsage.runs.events import HistoryLine
from fedsage.runs.folder import (
    CHECKPOINT,
    RESULT,
    append_history,
    claim,
    end_checkpoint,
    read_record,
    read_settings,
    write_settings,
)
from fedsage.runs.record import RunRecord

RUN = "run.json"  # in the checkpoint: the run's name, and its job
FETCHED = ("history.jsonl", "model.safetensors", "model.json", "result.json")


def stored(out: Path | None) -> dict[str, Any] | None:
    """The settings of a stopped federated run, to continue it."""
    if out is not None and (out / RESULT).exists():
        raise ConfigError(f"{out} is finished: there is nothing left to do.")
    if out is None or not (out / CHECKPOINT / RUN).exists():
        raise ConfigError(
            f"--resume: {out or 'no --out was given, which'} holds no stopped federated run. "
            "Give the folder of one with --out."
        )
    return read_settings(out)


def federated_run(
    kit: Kit,
    settings: Config,
    folder: Path,
    command: str,
    resume: bool,
    on_line: Callable[[HistoryLine], None],
    say: Callable[[str], None],
) -> RunRecord:
    """Submit or continue a run; its result is in ``folder`` when it ends."""
    claim(folder, resume)
    remember_folder(kit.ours, folder)
    about = folder / CHECKPOINT / RUN
    if not resume:
        write_settings(folder, settings.model_dump(mode="json"))
        words = Path(settings.run.method).stem.lower().replace("+", "-plus-")
        method = re.sub("[^a-z0-9]+", "-", words).strip("-")[:60]
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        write_json(about, {"run": f"{method}-{stamp}", "job": None})
    known = json.loads(about.read_text())

    def told(line: HistoryLine) -> None:
        append_history(folder, line)
        on_line(line)

    def submitted(job: str) -> None:
        write_json(about, known | {"job": job})

    with follow_job(kit, settings, known, command, told, say, submitted) as fetched:
        for name in FETCHED:
            body = (fetched / name).read_bytes()
            write_atomically(folder / name, lambda file, body=body: file.write(body))  # type: ignore[misc]
    record = replace(read_record(folder), out=str(folder))
    end_checkpoint(folder)
    return record


def job_of(out: Path) -> str:
    """The job of the run in a folder."""
    stored(out)
    job = json.loads((out / CHECKPOINT / RUN).read_text())["job"]
    if job is None:
        raise ConfigError(f"The run in {out} was never submitted.")
    return str(job)
