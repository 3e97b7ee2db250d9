"""CPU seconds of a whole ``fedsage run --dataset cora``, before and after a change, in turn.

    git archive COMMIT --prefix=before/ | tar x -C FOLDER
    python benchmarks/startup.py FOLDER/before . --pairs 7

Both trees are run by this Python, which must have their dependencies and ``FEDSAGE_DATA``. Each
has a folder of byte code of its own. The first pair fills caches and is left out. Refuses to
compare runs that end in different models.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fedsage.bench.before_training import children_seconds

START = "from fedsage.cli.main import main; main()"


def run(tree: Path, folder: Path) -> tuple[float, str]:
    """CPU seconds of one run, and the checksum of its model."""
    more = {
        "PYTHONPATH": str(tree.resolve()),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", START, "run", "--dataset", "cora", "--json"]
    before = children_seconds()
    done = subprocess.run(
        [*command, "--out", str(folder / "run"), "--force"],
        env=os.environ | more, cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return children_seconds() - before, json.loads(done.stdout)["model_sha256"]


def main() -> None:
    """Run pairs, and print each and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", type=Path, nargs=2, metavar="TREE", help="before, after")
    parser.add_argument("--pairs", type=int, default=7)
    given = parser.parse_args()
    rows: list[list[float]] = []
    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        sides = list(zip(given.trees, (Path(first), Path(second)), strict=True))
        for _ in range(given.pairs + 1):
            seconds, models = zip(*(run(*side) for side in sides), strict=True)
            if len(set(models)) > 1:
                raise SystemExit(f"The models differ: {', '.join(models)}")
            rows.append([*seconds, os.getloadavg()[0]])
    print("| before | after | after ÷ before | load |\n|---|---|---|---|")
    for before, after, load in rows[1:]:
        print(f"| {before:.2f} | {after:.2f} | {after / before:.2f} | {load:.1f} |")
    middle = [statistics.median(column) for column in zip(*rows[1:], strict=True)]
    share = statistics.median(after / before for before, after, _ in rows[1:])
    print(f"| **{middle[0]:.2f}** | **{middle[1]:.2f}** | **{share:.2f}** | {middle[2]:.1f} |")


if __name__ == "__main__":
    main()
