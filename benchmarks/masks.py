"""What a privacy level costs: a federation of real processes at one level and another, in turn.

    python benchmarks/masks.py --datasets cora msacademic --owners 10 --rounds 20 --repeats 2
    python benchmarks/masks.py --datasets pubmed --levels sums private

For each dataset: seconds of a round, bytes up and down, and their ratios, the second level to
the first. Both run in turn on the same machine, so that what else it does falls on both. Both
mend by copies: what ``best`` mends by depends on the level.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=["cora"])
    parser.add_argument("--levels", nargs=2, default=["open", "sums"])
    parser.add_argument("--owners", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    first, second = asked.levels
    for dataset in asked.datasets:
        found: dict[str, list[dict[str, float]]] = {level: [] for level in asked.levels}
        for _ in range(asked.repeats):
            for level in asked.levels:
                found[level].append(costs(dataset, asked.owners, asked.rounds, level))
        print(f"{dataset}, {asked.owners} owners")
        for what in found[first][0]:
            a, b = (median(one[what] for one in found[level]) for level in asked.levels)
            ratio = b / a if a else float("nan")
            print(f"  {what}: {first} {a:.4g}, {second} {b:.4g}, × {ratio:.2f}")
        print(f"  the same model: {len(MODELS[dataset]) == 1}", flush=True)


MODELS: dict[str, set[str]] = {}  # by dataset, the checksums of all


def costs(dataset: str, owners: int, rounds: int, level: str) -> dict[str, float]:
    """One federation: what a round takes, and what all of it sends."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        program = str(Path(sys.executable).with_name("fedsage"))
        command = [
            program, "federation", "try", "--dataset", dataset, "--owners", str(owners),
            "--method", "fedsage+copy", "--set", f"classifier.rounds_c={rounds}",
            "--privacy", level, "--out", str(out),
            "--json",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        record = json.loads((out / "result.json").read_text())
        lines = [json.loads(one) for one in (out / "history.jsonl").read_text().splitlines()]
    MODELS.setdefault(dataset, set()).add(record["model_sha256"])
    ends = [line["seconds"] for line in lines if line["phase"] == "training"]
    sent = record["bytes"].values()
    return {
        "seconds of a round": median(b - a for a, b in pairwise(ends)),
        "seconds of training": record["seconds"]["training"],
        "MB up": sum(one["up"] for one in sent) / 1e6,
        "MB up and down": sum(one["up"] + one["down"] for one in sent) / 1e6,
    }


if __name__ == "__main__":
    main()
