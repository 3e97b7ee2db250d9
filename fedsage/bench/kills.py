"""Kill a run at a random moment, go on, compare: is it the model of an undisturbed run?"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsage.config import Config
from fedsage.runs import ignore_line, run_config


@dataclass(frozen=True, slots=True)
class Killed:
    """One run that was killed again and again until it got to its end."""

    kills: int
    resumed: int  # how often something had been kept by then
    model_sha256: str


def model_of(config: Config, checkpoint: Path | None) -> tuple[str, int]:
    """The checksum of the trained model, and how often the run was resumed."""
    record = run_config(config, ignore_line, checkpoint=checkpoint).record
    return record.model_sha256, record.resumed


def killed_run(
    config: Config, checkpoint: Path, kills: int, longest: float, stream: np.random.Generator
) -> Killed:
    """Start, kill -9 after a random time, start again …; the last time it may end."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    fork = multiprocessing.get_context("fork")
    done = 0
    for _ in range(kills):
        child = fork.Process(target=model_of, args=(config, checkpoint))
        child.start()
        time.sleep(float(stream.uniform(0, longest)))
        if child.is_alive() and child.pid is not None:
            os.kill(child.pid, signal.SIGKILL)
            done += 1
        child.join()
    found, resumed = model_of(config, checkpoint)
    return Killed(done, resumed, found)
