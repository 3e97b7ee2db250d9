"""Choose the settings of ``traffic`` on validation nodes, seeds 100 and above.

    python benchmarks/choose_traffic.py --arms "full; low-rank rank=8; low-rank rank=16"

It prints paired differences from the first arm in points, and bytes. Nothing of test nodes is
read: results are another script's, on other seeds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import fedsage as fs
from fedsage.config import load_config
from fedsage.runs.execute import run_config

CELLS = (
    "cora:10:louvain cora:10:random citeseer:5:louvain pubmed:5:louvain msacademic:3:louvain"
)


def settings_of(arm: str) -> dict[str, Any]:
    """``low-rank rank=8 classifier.rounds_c=25`` as settings."""
    how, *more = arm.split()
    found: dict[str, Any] = {"traffic": {"how": how}}
    for item in more:
        key, value = item.split("=")
        section, name = key.rsplit(".", 1) if "." in key else ("traffic", key)
        found.setdefault(section, {})[name] = json.loads(value)
    return found


def measured(cell: str, seed: int, arm: str, method: str) -> dict[str, float]:
    """Validation accuracy at owners and on the whole graph, and traffic, of one run."""
    dataset, owners, partition = cell.split(":", 2)
    data = {"dataset": dataset, "owners": int(owners), "partition": partition}
    run = {"seed": seed, "method": method}
    config = load_config({"data": data, "run": run}, settings_of(arm))
    record = run_config(config).record
    total = sum(way["up"] + way["down"] for way in record.bytes.values())
    return {
        "local": record.validation,
        "global": record.validation_global or 0.0,
        "bytes": total,
        "cpu": record.cpu_seconds_by_phase["training"],
    }


def main() -> None:
    """Run all arms on all cells, and print a line for each cell and arm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", required=True, help="separated by ';', the reference first")
    parser.add_argument("--cells", default=CELLS, help="DATASET:OWNERS:PARTITION …")
    parser.add_argument("--seeds", default="100,101,102")
    parser.add_argument("--method", default="fedsage+")
    parser.add_argument("--json", type=Path, help="keep every figure here")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    if min(seeds) < 100:
        raise SystemExit("Seeds below 100 are for results. Choose on others.")
    arms = [arm.strip() for arm in given.arms.split(";")]
    kept: dict[str, Any] = {}
    gains: dict[str, list[list[float]]] = {arm: [] for arm in arms}
    for cell in given.cells.split():
        found = {
            arm: [measured(cell, seed, arm, given.method) for seed in seeds] for arm in arms
        }
        kept[cell] = found
        for arm in arms:
            pairs = list(zip(found[arm], found[arms[0]], strict=True))
            gain = [
                [100 * (new[k] - old[k]) for new, old in pairs] for k in ("global", "local")
            ]
            gains[arm] += list(map(list, zip(*gain, strict=True)))
            fewer = np.mean([old["bytes"] / new["bytes"] for new, old in pairs])
            cpu = np.mean([new["cpu"] / old["cpu"] for new, old in pairs])
            size = np.mean([new["bytes"] for new, _ in pairs]) / 1e6
            print(
                f"{cell:22} {arm:40} {np.mean(gain[0]):+.2f} {np.mean(gain[1]):+.2f} points  "
                f"{size:8.1f} MB  {fewer:6.1f}×  cpu {cpu:.2f}×",
                flush=True,
            )
    for arm, all_gains in gains.items():
        mean = np.mean(all_gains, axis=0)
        error = np.std(all_gains, axis=0, ddof=1) / np.sqrt(len(all_gains))
        print(
            f"{'all':22} {arm:40} {mean[0]:+.2f} ± {error[0]:.2f}  "
            f"{mean[1]:+.2f} ± {error[1]:.2f}"
        )
    if given.json:
        given.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    print(f"fedsage {fs.__version__}, validation nodes only")
    main()
