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

GLOB: Settings = {"run": {"method": "globsage"}}
FEW: Settings = {"data": {"partition": "metis", "train": 0.2, "val": 0.4}}
QUESTIONS: dict[str, dict[str, Settings]] = {
    "features": {
        form: {"data": {"features": form}} for form in get_args(Features) if form != "auto"
    },
    "backbone": {
        "graphsage": {"model": {"backbone": "graphsage"}},
        "mix, share .3": {"model": {"backbone": "mix", "share": 0.3}},
        "mix, share .5": {"model": {"backbone": "mix", "share": 0.5}},
    },
    "ensemble": {
        "one": {},
        **{
            f"{count}": {"model": {"backbone": "ensemble", "ensemble": count}}
            for count in (2, 3)
        },
    },
    "cooling": {
        f"cooling {share:g}": {"classifier": {"cooling": share}} for share in (0.0, 0.5, 1.0)
    },
    "globsage": {
        f"η = {eta:g}, cooling {share:g}": overlaid(
            GLOB, {"classifier": {"eta_whole": eta, "cooling": share}}
        )
        for eta, share in ((3e-3, 0.5), (3e-3, 1.0), (1e-3, 0.5), (1e-3, 1.0), (2e-3, 1.0))
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
    cells = sorted({(run["cell"][0], run["cell"][1]) for run in runs}, key=place)
    columns = [question, *(f"{NAMES[dataset]}, M = {owners}" for dataset, owners in cells)]
    rows = []
    for arm in QUESTIONS[question]:
        row = [arm]
        for cell in cells:
            mine = [r for r in runs if (r["cell"], r["arm"]) == (list(cell), arm)]
            both = [
                f"{np.mean([r['validation'][where] for r in mine]):.4f}" if mine else "–"
                for where in ("global", "local")
            ]
            row.append(" / ".join(both))
        rows.append(row)
    yield from markdown(columns, rows)


def place(cell: tuple[str, int]) -> tuple[int, int]:
    """Where a cell stands in the table."""
    return list(NAMES).index(cell[0]), cell[1]


def cell_of(name: str) -> tuple[str, int]:
    """A dataset and a number of owners, written ``cora:10``."""
    dataset, _, owners = name.partition(":")
    return dataset, int(owners)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--seeds", default="100,101")
    parser.add_argument(
        "--cells", default=",".join(f"{name}:{owners}" for name, owners in CELLS)
    )
    parser.add_argument("--out", type=Path, help="the file of runs")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    if min(seeds) < 100:
        parser.error("seeds below 100 are those of results; choose on others")
    path = given.out or ROOT / "docs" / "results" / f"choose-{given.question}.json"
    cells = [cell_of(name) for name in given.cells.split(",")]
    measure(path, given.question, seeds, cells)
    print("\n".join(table(read(path), given.question)))


if __name__ == "__main__":
    main()
