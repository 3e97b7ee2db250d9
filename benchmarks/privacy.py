"""Private runs: accuracy by ε, dataset and number of owners. Writes docs/results/privacy.json.

Usage: python benchmarks/privacy.py pubmed:10 cora:3 … [--seeds 5] [--epsilons 1,4]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import fedsage as fs

OUT = Path(__file__).parents[1] / "docs/results/privacy.json"


def main() -> None:
    """Run every cell that is not there yet, and keep each as soon as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", default="1,4")
    given = parser.parse_args()
    rows = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
    done = {(r["dataset"], r["owners"], r["epsilon"], r["seed"]) for r in rows}
    for seed in range(given.seeds):
        for cell in given.cells:
            name, count = cell.split(":")
            graph = fs.load(name)
            owners = fs.partition(graph, int(count), how="louvain", seed=seed)
            for epsilon in map(float, given.epsilons.split(",")):
                if (name, int(count), epsilon, seed) in done:
                    continue
                rows.append(measured(graph, owners, name, epsilon, seed))
                print(json.dumps(rows[-1]), flush=True)
                OUT.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def measured(
    graph: fs.Graph, owners: fs.Partition, name: str, epsilon: float, seed: int
) -> dict[str, object]:
    """One private run."""
    result = fs.run(
        owners, "fedsage+", seed=seed, evaluate_on=graph, dataset=name, privacy="private",
        settings={"privacy": {"epsilon": epsilon}}, progress=False,
    )  # fmt: skip
    record = result.record
    return {
        "dataset": name, "owners": record.owners, "epsilon": epsilon, "delta": 1e-5,
        "seed": seed, "global": record.accuracy["global"], "local": record.accuracy["local"],
        "cpu_seconds": round(record.cpu_seconds, 1),
    }  # fmt: skip


if __name__ == "__main__":
    main()
