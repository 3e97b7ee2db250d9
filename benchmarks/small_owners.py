"""Many small owners, whose nodes fit into one batch: short messages beside full ones.

    python benchmarks/small_owners.py --owners 50 --seeds 100 101 --epochs 1 4
    python benchmarks/small_owners.py --owners 50 100 --seeds 0 1 --report \
        --out docs/results/small-owners.json

Without ``--report`` it reads validation nodes alone, to choose by; with it, test nodes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fedsage.config import load_config
from fedsage.machine import machine
from fedsage.runs.execute import run_config


def main() -> None:
    """Run, print a line for each, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--owners", nargs="+", type=int, default=[50])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100])
    parser.add_argument("--epochs", nargs="+", type=int, default=[4])
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    for owners in asked.owners:
        for seed in asked.seeds:
            for epochs in asked.epochs:
                for how in ("full", "low-rank"):
                    found = run(asked.dataset, owners, seed, epochs, how, asked.report)
                    rows.append(found)
                    print(found, flush=True)
    if asked.out:
        asked.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


def run(
    dataset: str, owners: int, seed: int, epochs: int, how: str, report: bool
) -> dict[str, Any]:
    """One run of FedSage+ with random owners."""
    chosen = {
        "run": {"method": "fedsage+", "seed": seed},
        "data": {"dataset": dataset, "owners": owners, "partition": "random"},
        "traffic": {"how": how},
        "classifier": {"small_epochs": epochs},
    }
    record = run_config(load_config(chosen)).record
    sent = sum(one["up"] + one["down"] for one in record.bytes.values())
    accuracy = record.accuracy if report else {"validation": record.validation}
    return {
        "owners": owners, "seed": seed, "small_epochs": epochs, "how": how, "bytes": sent,
        **accuracy,
    }  # fmt: skip


if __name__ == "__main__":
    main()
