"""Kill a run at a random moment, go on, compare: is it the model of an undisturbed run?

    python benchmarks/kills.py --kills 200

writes ``docs/results/kills.json``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsage.config import Config, load_config
from fedsage.files import write_json
from fedsage.machine import commit, machine, versions
from fedsage.runs.execute import run_config

FOLDER = Path(__file__).parent.parent / "docs" / "results"
SMALL = {
    "data": {"dataset": "synthetic"},
    "synthetic": {"nodes": 600, "features": 200},
    "classifier": {"rounds_c": 15},
    "neighgen": {"rounds_gen": 10, "widths": [32, 16], "hidden": [32]},
}


@dataclass(frozen=True, slots=True)
class Killed:
    """One run that was killed again and again until it got to its end."""

    kills: int
    resumed: int  # how often something had been kept by then
    model_sha256: str


def model_of(config: Config, checkpoint: Path | None) -> tuple[str, int]:
    """The checksum of the trained model, and how often the run was resumed."""
    record = run_config(config, checkpoint=checkpoint).record
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


def main() -> None:
    """Kill many runs of several methods, and write how many ended in an equal model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--methods", default="fedsage,fedsage+,fedsage+neighgen,locsage")
    parser.add_argument("--out", type=Path, default=FOLDER / "kills.json")
    asked = parser.parse_args()
    rows = []
    methods = asked.methods.split(",")
    for method in methods:
        config = load_config(SMALL, {"run": {"method": method}})
        model_of(config, None)  # compile
        begin = time.perf_counter()
        wanted, _ = model_of(config, None)
        longest = time.perf_counter() - begin
        stream = np.random.default_rng(0)
        killed, resumed, equal = 0, 0, 0
        while killed < asked.kills / len(methods):
            with tempfile.TemporaryDirectory() as folder:
                found = killed_run(config, Path(folder) / "checkpoint", 1, longest, stream)
            killed, resumed = killed + found.kills, resumed + min(found.resumed, found.kills)
            equal += found.kills * (found.model_sha256 == wanted)
        rows.append({"method": method, "kills": killed, "resumed": resumed, "equal": equal})
        print(rows[-1], flush=True)
    made = {"versions": versions(), "commit": commit(), "machine": machine()}
    write_json(asked.out, {"rows": rows} | made)


if __name__ == "__main__":
    main()
