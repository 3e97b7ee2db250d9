"""Which way of mending costs least where sums are hidden? Chosen on validation nodes.

    python benchmarks/hidden_mending.py --out docs/results/hidden-mending.json

Ways whose sums have no leak of their own (`copy`, `classes`) beside `subspace`, whose sum has.
Validation nodes of seeds 100 and above; no test node is read. Masks change no bit of a model,
so runs are in the open.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

from fedsage.config import load_config
from fedsage.machine import machine
from fedsage.runs.execute import run_config

WAYS = ("subspace", "copy", "classes")


def main() -> None:
    """Run, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer"])
    parser.add_argument("--owners", nargs="+", type=int, default=[3, 10])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    for dataset in asked.datasets:
        for owners in asked.owners:
            found = {
                way: [validation(dataset, owners, way, 100 + k) for k in range(asked.seeds)]
                for way in WAYS
            }
            for way in WAYS[1:]:
                each = [100 * (a - b) for a, b in zip(found[way], found[WAYS[0]], strict=True)]
                error = stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0
                rows.append({
                    "dataset": dataset, "owners": owners, "way": way, "each": each,
                    "mean": mean(each), "error": error,
                })  # fmt: skip
                print(f"{dataset} {owners} {way} - subspace: {mean(each):+.2f} ± {error:.2f}")
    if asked.out:
        asked.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


def validation(dataset: str, owners: int, way: str, seed: int) -> float:
    """Accuracy on validation nodes, in the view that the run chose."""
    chosen = {
        "run": {"method": f"fedsage+{way}", "seed": seed},
        "data": {"dataset": dataset, "owners": owners},
    }
    found = run_config(load_config(chosen)).record.validation
    assert found is not None
    return found


if __name__ == "__main__":
    main()
