"""A federated run in the coordinator's folder: what to go on with, and what came of it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsage.config import Config
from fedsage.errors import ConfigError
from fedsage.evaluation.results import (
    CHECKPOINT,
    HistoryLine,
    RunRecord,
    append_history,
    claim,
    end_checkpoint,
    read_record,
    read_settings,
    write_json,
    write_settings,
)
from fedsage.federation.job import follow_job
from fedsage.federation.kits import Kit
from fedsage.federation.serve import FEDERATED

RUN = "run.json"  # in the checkpoint: its name, and the job that it is
FETCHED = ("model.safetensors", "model.json", "result.json")


def stored(out: Path | None) -> dict[str, Any] | None:
    """The settings of a federated run to go on with."""
    if out is None or not (out / CHECKPOINT / RUN).exists():
        raise ConfigError(
            f"--resume: {out or 'no --out was given, which'} holds no federated run that was "
            "stopped. Give the folder of one with --out."
        )
    return read_settings(out)


def run_into(
    kit: Kit,
    settings: Config,
    folder: Path,
    command: str,
    resume: bool,
    on_line: Callable[[HistoryLine], None],
    say: Callable[[str], None],
) -> RunRecord:
    """Submit, or go on with, a run; its result is in ``folder`` when it ends."""
    assert settings.run.method in FEDERATED
    claim(folder, resume)
    about = folder / CHECKPOINT / RUN
    if not resume:
        write_settings(folder, settings.model_dump(mode="json"))
        name = f"{settings.run.method}-{time.strftime('%Y%m%d-%H%M%S')}".replace("+", "-plus-")
        write_json(about, {"run": name, "job": None})
    known = json.loads(about.read_text())

    def told(line: HistoryLine) -> None:
        append_history(folder, line)
        on_line(line)

    def submitted(job: str) -> None:
        write_json(about, known | {"job": job})

    with follow_job(kit, settings, known, command, told, say, submitted) as fetched:
        for name in FETCHED:
            shutil.copyfile(fetched / name, folder / name)
    record = replace(read_record(folder), out=str(folder))
    end_checkpoint(folder)
    return record
