"""What a change of structure must not change: the bits of every method's model.

    python benchmarks/unchanged.py --record     # before: writes docs/results/unchanged.json
    python benchmarks/unchanged.py              # after: compares, exit code 1 if a cell differs

Runs every built-in method and ``examples/my_method.py`` with both presets on a small
synthetic graph and, where ``FEDSAGE_DATA`` is set, on Cora with three owners; one FedSage and
one FedSage+ run between real processes as well. A cell holds the model's checksum, the bytes
that crossed and the accuracies; no bytes between processes, where keys are fresh and so the
compressed messages longer or shorter by a few. Only the command line is used, so that the
script outlives what it watches.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "results" / "unchanged.json"
METHODS = (
    "globsage", "locsage", "locsage+", "fedsage", "fedsage+", "fedsage+neighgen",
    "fedsage+copy", "fedsage+classes", "fedsage+shared", "fedsage+subspace", "oracle",
    "examples/my_method.py",
)  # fmt: skip
SMALL = (
    "synthetic.nodes=400", "synthetic.features=80", "classifier.rounds_c=6",
    "neighgen.rounds_gen=4", "neighgen.widths=[24, 16]", "neighgen.hidden=[24]",
)  # fmt: skip
PHASES = {"neighgen": "mending", "classifier": "training", "evaluate": "evaluation"}


@dataclass(frozen=True)
class Cell:
    """One run of the table."""

    dataset: str
    preset: str
    method: str
    engine: str = "inprocess"

    @property
    def name(self) -> str:
        """Its key in the table."""
        return f"{self.dataset}, {self.preset}, {self.method}, {self.engine}"


def cells(quick: bool) -> Iterator[Cell]:
    """All runs of the table, or the quick ones alone."""
    datasets = ["synthetic"]
    if os.environ.get("FEDSAGE_DATA") and not quick:
        datasets.append("cora")
    for dataset in datasets:
        for preset in ("paper", "best"):
            for method in METHODS:
                yield Cell(dataset, preset, method)
    if not quick:
        yield Cell("synthetic", "paper", "fedsage", "nvflare")
        yield Cell("synthetic", "best", "fedsage+", "nvflare")


def run(cell: Cell) -> dict[str, object]:
    """What a run of that cell gives, of what must not change."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "fedsage", "run", "--json", "--owners", "3",
            "--method", cell.method, "--dataset", cell.dataset, "--preset", cell.preset,
            "--engine", cell.engine, "--out", f"{folder}/out",
        ]  # fmt: skip
        for setting in SMALL if cell.dataset == "synthetic" else ():
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{cell.name}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    sent = {PHASES.get(key, key): value for key, value in found["bytes"].items()}
    return {
        "model_sha256": found["model_sha256"],
        **({"bytes": sent} if cell.engine == "inprocess" else {}),
        "accuracy": found["accuracy"],
    }


def main() -> None:
    """Record the table, or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write the table")
    parser.add_argument("--quick", action="store_true", help="the synthetic graph in process")
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--at-a-time", type=int, default=2, help="runs at a time")
    given = parser.parse_args()
    chosen = [cell for cell in cells(given.quick) if given.only in cell.name]
    with ThreadPoolExecutor(given.at_a_time) as pool:
        results = pool.map(run, chosen)
        found = {cell.name: one for cell, one in zip(chosen, results, strict=True)}
    before = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    if given.record:
        TABLE.write_text(json.dumps(before | found, indent=1) + "\n")
        return
    differing = [name for name, one in found.items() if one != before.get(name)]
    for name in differing:
        print(f"{name}:\n  was {before.get(name, 'not recorded')}\n  is  {found[name]}")
    print(f"{len(found) - len(differing)} of {len(found)} cells are as they were")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
