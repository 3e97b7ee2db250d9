"""Which form of features suits which dataset, by accuracy on **validation** nodes alone.

    python benchmarks/choose_features.py --seeds 100,101    # what is there is not run again

FedSage+ of preset ``best`` in every form. Prints and keeps no accuracy on test nodes.
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
from fedsage.runs.execute import run_config

KEPT = ROOT / "docs" / "results" / "choose-features.json"
FORMS = [form for form in get_args(Features) if form != "auto"]
CELLS = [("cora", 10), ("citeseer", 10), ("pubmed", 10), ("msacademic", 3)]


def run_of(dataset: str, owners: int, form: str, seed: int) -> dict[str, Any]:
    """One run: what it gets right of the validation nodes."""
    data = {"dataset": dataset, "owners": owners, "features": form}
    found = run_config(load_config({"data": data, "run": {"seed": seed}})).record
    return {
        "cell": [dataset, owners],
        "form": form,
        "seed": seed,
        "validation": {"global": found.validation_global, "local": found.validation},
        "cpu": found.cpu_seconds,
        "commit": commit(),
    }


def measure(path: Path, seeds: Sequence[int]) -> None:
    """Run what is not in the file yet."""
    for seed in seeds:
        for dataset, owners in reversed(CELLS):
            for form in FORMS:
                runs = read(path)
                wanted = [dataset, owners], form, seed
                if any((r["cell"], r["form"], r["seed"]) == wanted for r in runs):
                    continue
                runs.append(run_of(dataset, owners, form, seed))
                write_json(path, {"runs": runs, "versions": versions(), "machine": machine()})


def table(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each form: the mean over seeds on the whole graph and at the owners."""
    columns = ["form", *(f"{NAMES[dataset]}, M = {owners}" for dataset, owners in CELLS)]
    rows = []
    for form in FORMS:
        row = [f"`{form}`"]
        for cell in CELLS:
            mine = [r for r in runs if (r["cell"], r["form"]) == (list(cell), form)]
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
    parser.add_argument("--seeds", default="100,101")
    parser.add_argument("--out", type=Path, default=KEPT, help="the file of runs")
    given = parser.parse_args()
    measure(given.out, [int(seed) for seed in given.seeds.split(",")])
    print("\n".join(table(read(given.out))))


if __name__ == "__main__":
    main()
