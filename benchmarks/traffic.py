"""Accuracy against bytes: FedSage+ by changes and by full messages, on the same seeds.

    python benchmarks/traffic.py --seeds 0,1,2,3,4      # what is there is not run again
    python benchmarks/traffic.py --docs                 # renews the table in the docs

Seeds below 100 were not used to choose anything here; ``choose_traffic.py`` chooses.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsage.config import load_config
from fedsage.files import write_json
from fedsage.machine import commit, machine, versions
from fedsage.presets import Settings
from fedsage.runs.execute import run_config

DOCS = Path(__file__).parent.parent / "docs"
FILE = DOCS / "results" / "traffic.json"
PAGE = DOCS / "communication.md"
ARMS: dict[str, Settings] = {
    "full": {"traffic": {"how": "full"}},
    "best": {},
    "extreme": {"traffic": {"rank": 4}},
}
DATASETS = ("cora", "citeseer", "pubmed", "msacademic")
CELLS = [(name, m, "louvain") for name in DATASETS for m in (3, 5, 10)]
CELLS += [(name, 10, "random") for name in DATASETS]
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


def run_of(cell: tuple[str, int, str], arm: str, seed: int) -> dict[str, Any]:
    """One run: what it got right, what it carried, what it took."""
    dataset, owners, partition = cell
    data = {"dataset": dataset, "owners": owners, "partition": partition}
    config = load_config(ARMS[arm], {"data": data, "run": {"seed": seed}})
    record = run_config(config).record
    return {
        "cell": list(cell),
        "arm": arm,
        "seed": seed,
        "accuracy": record.accuracy,
        "bytes": record.bytes,
        "cpu_by_phase": record.cpu_seconds_by_phase,
        "cpu": record.cpu_seconds,
        "traffic": config.traffic.model_dump(),
        "commit": commit(),
    }


def measure(
    path: Path, arms: Sequence[str], seeds: Sequence[int], datasets: Sequence[str]
) -> None:
    """Run what is not in the file yet."""
    for seed in seeds:
        for cell in CELLS:
            for arm in arms if cell[0] in datasets else ():
                runs = read(path)
                if any(
                    (tuple(r["cell"]), r["arm"], r["seed"]) == (cell, arm, seed) for r in runs
                ):
                    continue
                runs.append(run_of(cell, arm, seed))
                write_json(path, {"runs": runs, "versions": versions(), "machine": machine()})


def read(path: Path) -> list[dict[str, Any]]:
    """The runs in a file, if there is one."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    return found


def paired(
    runs: Sequence[dict[str, Any]], cell: tuple[str, int, str], arm: str
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Runs of an arm beside those by full messages, seed by seed."""
    mine = [run for run in runs if tuple(run["cell"]) == cell]
    by_arm = [[run for run in mine if run["arm"] == one] for one in (arm, "full")]
    return paired_by_seed(*by_arm)


def paired_by_seed(
    runs: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Runs beside others of the same seed."""
    held = {run["seed"]: run for run in others}
    return [(run, held[run["seed"]]) for run in runs if run["seed"] in held]


def total(run: dict[str, Any]) -> int:
    """All bytes of a run."""
    return sum(way["up"] + way["down"] for way in run["bytes"].values())


def gains(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]], where: str) -> np.ndarray:
    """Paired differences, in points."""
    return np.array([100 * (a["accuracy"][where] - b["accuracy"][where]) for a, b in pairs])


def with_error(values: np.ndarray) -> str:
    """Mean ± standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():+.2f} ± {error:.2f}"


def table(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each cell and arm, then the means over cells."""
    head = (
        "owners",
        "messages",
        "MB",
        "× fewer",
        "global, %",
        "− full",
        "local, %",
        "− full",
        "seeds",
    )
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for arm in [arm for arm in ARMS if arm != "full"]:
        means: list[list[float]] = []
        for cell in CELLS:
            if not (pairs := paired(runs, cell, arm)):
                continue
            size = np.mean([total(a) for a, _ in pairs]) / 1e6
            fewer = np.mean([total(b) / total(a) for a, b in pairs])
            row = [f"{cell[0]}, {cell[1]} {cell[2]}", arm, f"{size:.1f}", f"{fewer:.0f}"]
            for where in ("global", "local"):
                mean = 100 * np.mean([a["accuracy"][where] for a, _ in pairs])
                row += [f"{mean:.1f}", with_error(gains(pairs, where))]
            means.append([gains(pairs, where).mean() for where in ("global", "local")])
            yield "| " + " | ".join([*row, str(len(pairs))]) + " |"
        if means:
            both = [with_error(np.array(column)) for column in zip(*means, strict=True)]
            cells = f"mean of {len(means)} cells"
            yield f"| **{cells}** | {arm} | | | | **{both[0]}** | | **{both[1]}** | |"


def renew_page() -> None:
    """Put the table into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([before + BEGIN, "", *table(read(FILE)), "", END + after]))


def main() -> None:
    """Measure, or renew the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument(
        "--add", type=Path, nargs="*", default=[], help="files to take runs from"
    )
    parser.add_argument("--docs", action="store_true", help="renew the table in the docs")
    given = parser.parse_args()
    if given.docs:
        runs = [run for path in (FILE, *given.add) for run in read(path)]
        write_json(FILE, {"runs": runs, "versions": versions(), "machine": machine()})
        renew_page()
        return
    seeds = [int(seed) for seed in given.seeds.split(",")]
    measure(given.file, given.arms.split(","), seeds, given.datasets.split(","))


if __name__ == "__main__":
    main()
