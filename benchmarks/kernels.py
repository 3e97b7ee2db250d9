"""Whether the compiled step costs accuracy: the same runs by it and by torch, paired by seed.

    python benchmarks/kernels.py --datasets cora,citeseer --seeds 5

Writes docs/results/kernels.json, from which ``performance.py`` makes its table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedsage.config import Config, load_config
from fedsage.files import write_json
from fedsage.machine import commit, machine, versions
from fedsage.reproduce.tables import paired_difference
from fedsage.runs.comparison import compare
from fedsage.runs.execute import run_config
from fedsage.runs.record import RunRecord

FOLDER = Path(__file__).parent.parent / "docs" / "results"
METHODS = ("fedsage", "fedsage+")


def by_either(dataset: str, seeds: range) -> Iterator[dict[str, Any]]:
    """A row for each method: accuracies and CPU seconds by each kernel, and the difference."""
    fused, torch = (
        compare(config_for(dataset, kernel), METHODS, seeds, run_one)
        for kernel in ("fused", "torch")
    )
    for ours, other in zip(fused, torch, strict=True):
        yield {
            "dataset": dataset,
            "method": ours.method,
            "fused": ours.global_,
            "torch": other.global_,
            "cpu_seconds": {"fused": ours.cpu_seconds, "torch": other.cpu_seconds},
            "paired": paired_difference(
                dict(zip(seeds, ours.global_["each"], strict=True)),
                dict(zip(seeds, other.global_["each"], strict=True)),
            ),
        }


def config_for(dataset: str, kernel: str) -> Config:
    """Preset best, three Louvain owners."""
    return load_config({"data": {"dataset": dataset, "owners": 3}, "run": {"kernel": kernel}})


def run_one(config: Config) -> RunRecord:
    """One run, without a word."""
    return run_config(config).record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="cora,citeseer")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    names, seeds = arguments.datasets.split(","), range(arguments.seeds)
    rows = [row for name in names for row in by_either(name, seeds)]
    about = {"commit": commit(), "versions": versions(), "machine": machine()}
    write_json(FOLDER / "kernels.json", {"rows": rows} | about)


if __name__ == "__main__":
    main()
