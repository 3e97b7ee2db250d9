"""What preset ``best`` should set, by accuracy on **validation** nodes alone.

    python benchmarks/choose_preset.py features --seeds 100,101
    python benchmarks/choose_preset.py backbone    # what is there is not run again

FedSage+ of preset ``best`` with each of several settings. Prints and keeps no accuracy on test
nodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from result_tables import NAMES, ROOT, markdown
from traffic import read

from fedsage.config import load_config
from fedsage.config.kinds import Features
from fedsage.files import write_json
from fedsage.machine import commit, machine, versions
from fedsage.presets import Settings, overlaid
from fedsage.runs.execute import run_config

FEW: Settings = {"data": {"partition": "metis", "train": 0.2, "val": 0.4}}
QUESTIONS: dict[str, dict[str, Settings]] = {
    "features": {
        form: {"data": {"features": form}} for form in get_args(Features) if form != "auto"
    },
    "backbone": {
        "graphsage": {"model": {"backbone": "graphsage"}},
        "mix, share .3": {"model": {"backbone": "mix", "share": 0.3}},
        "mix, share .5": {"model": {"backbone": "mix", "share": 0.5}},
        "ensemble of 3": {"model": {"backbone": "ensemble"}},
    },
    "cooling": {
        f"cooling {share:g}": {"classifier": {"cooling": share}} for share in (0.0, 0.5, 1.0)
    },
    "self-training": {
        "labels alone": FEW,
        **{
            f"answers of {sure:g}": overlaid(FEW, {"classifier": {"self_training": sure}})
            for sure in (0.7, 0.8, 0.9)
        },
    },
}
CELLS = [("cora", 10), ("citeseer", 10), ("pubmed", 10), ("msacademic", 3)]


def run_of(dataset: str, owners: int, question: str, arm: str, seed: int) -> dict[str, Any]:
    """One run: what it gets right of the validation nodes."""
    given = {"data": {"dataset": dataset, "owners": owners}, "run": {"seed": seed}}
    found = run_config(load_config(overlaid(given, QUESTIONS[question][arm]))).record
    return {
        "cell": [dataset, owners],
        "arm": arm,
        "seed": seed,
        "validation": {"global": found.validation_global, "local": found.validation},
        "cpu": found.cpu_seconds,
        "commit": commit(),
    }


def measure(
    path: Path, question: str, seeds: Sequence[int], cells: Sequence[tuple[str, int]]
) -> None:
    """Run what is not in the file yet."""
    for seed in seeds:
        for dataset, owners in reversed(cells):
            for arm in QUESTIONS[question]:
                runs = read(path)
                wanted = [dataset, owners], arm, seed
                if any((r["cell"], r["arm"], r["seed"]) == wanted for r in runs):
                    continue
                runs.append(run_of(dataset, owners, question, arm, seed))
                write_json(path, {"runs": runs, "versions": versions(), "machine": machine()})


def table(runs: Sequence[dict[str, Any]], question: str) -> Iterator[str]:
    """A line for each arm: the mean over seeds on the whole graph and at the owners."""
    columns = [question, *(f"{NAMES[dataset]}, M = {owners}" for dataset, owners in CELLS)]
    rows = []
    for arm in QUESTIONS[question]:
        row = [arm]
        for cell in CELLS:
            mine = [r for r in runs if (r["cell"], r["arm"]) == (list(cell), arm)]
            both = [
                f"{np.mean([r['validation'][where] for r in mine]):.4f}" if mine else "–"
                for where in ("global", "local")
            ]
            row.append(" / ".join(both))
        rows.append(row)
    yield from markdown(columns, rows)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--seeds", default="100,101")
    parser.add_argument("--datasets", default=",".join(dataset for dataset, _ in CELLS))
    parser.add_argument("--out", type=Path, help="the file of runs")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    if min(seeds) < 100:
        parser.error("seeds below 100 are those of results; choose on others")
    path = given.out or ROOT / "docs" / "results" / f"choose-{given.question}.json"
    cells = [cell for cell in CELLS if cell[0] in given.datasets.split(",")]
    measure(path, given.question, seeds, cells)
    print("\n".join(table(read(path), given.question)))


if __name__ == "__main__":
    main()
