"""Many owners as real processes on one machine: does a run end, and what does it take?

    python benchmarks/many_owners.py --owners 50 --rounds 20

Prints seconds and memory as they come, and whether the model is that of one
process; ``--out`` keeps the figures as JSON. Memory is what the machine has less of.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import psutil

from fedsage.config import Config, load_config
from fedsage.federation.coordinator.rehearse import rehearsal
from fedsage.federation.coordinator.run_folder import federated_run
from fedsage.files import write_json
from fedsage.machine import commit, machine, versions
from fedsage.runs.execute import run_config

EVERY = 0.3  # seconds between two looks at memory


def config_of(owners: int, rounds: int, privacy: str) -> Config:
    """Small parts of a random graph, and time enough for all to start on two cores."""
    return load_config(
        {"run": {"method": "fedsage", "engine": "nvflare"}, "privacy": {"level": privacy}},
        {"data": {"dataset": "synthetic", "owners": owners, "partition": "random"}},
        {"synthetic": {"nodes": 150 * owners, "features": 20}, "model": {"widths": [16, 8]}},
        {"classifier": {"rounds_c": rounds}, "federation": {"deadline": 300, "wait": 600}},
    )


class Watch:
    """Seconds since the beginning, and the most memory that was taken so far."""

    def __init__(self) -> None:
        self.begin, self.free = time.monotonic(), psutil.virtual_memory().available
        self.least = self.free
        threading.Thread(target=self.look, daemon=True).start()

    def look(self) -> None:
        """Keep looking at memory."""
        while True:
            self.least = min(self.least, psutil.virtual_memory().available)
            time.sleep(EVERY)

    def seen(self, what: str) -> dict[str, float]:
        """Print both, and return them by name."""
        found = {
            f"{what}_s": round(time.monotonic() - self.begin, 1),
            f"{what}_gb": round((self.free - self.least) / 1e9, 2),
        }
        print(found, flush=True)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--privacy", choices=("open", "sums"), default="open")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    config, watch, times = config_of(asked.owners, asked.rounds, asked.privacy), Watch(), []

    def say(words: str) -> None:
        print(f"{time.monotonic() - watch.begin:.0f} s: {words}", flush=True)

    with rehearsal(config, None, lambda words: None) as kit, tempfile.TemporaryDirectory() as d:
        found = watch.seen("started")
        about = kit, config, Path(d) / "run", "a benchmark", False
        there = federated_run(*about, lambda line: times.append(line.seconds), say)
        found |= watch.seen("ended")
    alone = config.model_copy(
        update={"run": config.run.model_copy(update={"engine": "inprocess"})}
    )
    found["round_s"] = round((times[-1] - times[0]) / (len(times) - 1), 2)
    found["same_model"] = run_config(alone).record.model_sha256 == there.model_sha256
    print(found)
    if asked.out:
        about = {"commit": commit(), "machine": machine(), "versions": versions()}
        write_json(asked.out, vars(asked) | {"out": None} | found | about)


if __name__ == "__main__":
    main()
