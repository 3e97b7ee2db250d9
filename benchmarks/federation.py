"""What the network costs: a federation on this machine beside the same run in one process.

    python benchmarks/federation.py

writes ``docs/results/federation.json``: the median time of a round both ways, the time from
submitting a run to its first round, and that of a whole FedSage+ run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from fedsage.config import Config, load_config
from fedsage.federation.coordinator.rehearse import rehearsal
from fedsage.federation.coordinator.run_folder import federated_run
from fedsage.files import write_json
from fedsage.machine import commit, machine, versions
from fedsage.runs.events import HistoryLine
from fedsage.runs.execute import run_config

FOLDER = Path(__file__).parent.parent / "docs" / "results"


def config_of(method: str, rounds: int, dataset: str) -> Config:
    """Three owners, preset best."""
    return load_config(
        {"run": {"method": method, "engine": "nvflare"}},
        {"data": {"dataset": dataset, "owners": 3}, "classifier": {"rounds_c": rounds}},
    )


def between_rounds(lines: list[HistoryLine]) -> list[float]:
    """Seconds from each round of the classifier to the next."""
    times = [line.seconds for line in lines if line.phase == "training"]
    return [b - a for a, b in pairwise(times)]


def quiet(words: str) -> None:
    """Nothing to say."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--out", type=Path, default=FOLDER / "federation.json")
    asked = parser.parse_args()
    config = config_of("fedsage", asked.rounds, asked.dataset)
    plus = config_of("fedsage+", 50, asked.dataset)
    begin = time.monotonic()
    first: list[float] = []

    def on_line(line: HistoryLine) -> None:
        first.append(time.monotonic())

    with tempfile.TemporaryDirectory() as scratch, rehearsal(config, None, quiet) as kit:
        ready = time.monotonic()
        there = federated_run(kit, config, Path(scratch) / "run", "", False, on_line, quiet)
        text = (Path(scratch) / "run" / "history.jsonl").read_text().splitlines()
        lines = [HistoryLine(**json.loads(line)) for line in text]
        plus_begin = time.monotonic()
        federated_run(kit, plus, Path(scratch) / "plus", "", False, on_line, quiet)
        plus_end = time.monotonic()
    alone = config.model_copy(
        update={"run": config.run.model_copy(update={"engine": "inprocess"})}
    )
    run_config(alone)  # compiles
    here = run_config(alone)
    there_s, here_s = median(between_rounds(lines)), median(between_rounds(here.history))
    found = {
        "dataset": asked.dataset,
        "rounds": asked.rounds,
        "same_model": there.model_sha256 == here.record.model_sha256,
        "round_federation_s": there_s,
        "round_inprocess_s": here_s,
        "more_a_round_s": there_s - here_s,
        "start_all_parties_s": ready - begin,
        "submit_to_first_round_s": first[0] - ready,
        "fedsage_plus_50_rounds_s": plus_end - plus_begin,
        "try_fedsage_plus_s": ready - begin + plus_end - plus_begin,
    }
    made = {"versions": versions(), "commit": commit(), "machine": machine()}
    write_json(asked.out, found | made)
    for key, value in found.items():
        print(f"{key}: {value:.2f}" if isinstance(value, float) else f"{key}: {value}")


if __name__ == "__main__":
    main()
