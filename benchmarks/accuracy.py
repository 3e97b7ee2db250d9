"""Accuracy of preset ``best`` with the messages that it sends: the tables of results.

    python benchmarks/accuracy.py --seeds 0,1,2,3,4     # what is there is not run again
    python benchmarks/accuracy.py --docs                # renews the tables in README and docs

Seeds below 100 were not used to choose anything here; ``choose_preset.py`` chooses.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from result_tables import NAMES, OURS, ROOT, between_marks, markdown
from traffic import CELLS, DATASETS, FILE, paired_by_seed, read, with_error
from traffic import gains as gains_of

from fedsage.config import load_config
from fedsage.files import write_json
from fedsage.machine import commit, machine, versions
from fedsage.paper import paper_values
from fedsage.runs.execute import run_config

KEPT = ROOT / "docs" / "results" / "accuracy.json"
CONSTANT = KEPT.with_name("accuracy-constant-rate.json")  # before the rate fell, 2026-11-18
METHODS = ("fedsage+", "fedsage", "globsage", "locsage")
SHOWN = ("locsage", "fedsage", "fedsage+", "globsage")
Run = dict[str, Any]
Cell = tuple[str, int, str]


def run_of(cell: Cell, method: str, seed: int) -> Run:
    """One run of the preset."""
    dataset, owners, partition = cell
    data = {"dataset": dataset, "owners": owners, "partition": partition}
    record = run_config(load_config({"data": data, "run": {"seed": seed, "method": method}}))
    found = record.record
    return {
        "cell": list(cell),
        "method": method,
        "seed": seed,
        "accuracy": found.accuracy,
        "features": found.feature_form,
        "cpu": found.cpu_seconds,
        "model_sha256": found.model_sha256,
        "commit": commit(),
    }


def measure(
    path: Path, methods: Sequence[str], seeds: Sequence[int], cells: Sequence[Cell]
) -> None:
    """Run what is not in the file yet, one seed and method of all cells after the other."""
    for method in methods:
        for seed in seeds:
            for cell in cells:
                runs = read(path)
                if any(same(run, cell, method) and run["seed"] == seed for run in runs):
                    continue
                runs.append(run_of(cell, method, seed))
                write_json(path, {"runs": runs, "versions": versions(), "machine": machine()})


def same(run: Run, cell: Cell, method: str) -> bool:
    """Whether a run is of that cell and method."""
    return (tuple(run["cell"]), run["method"]) == (cell, method)


def values(runs: Sequence[Run], cell: Cell, method: str, where: str) -> list[float]:
    """Accuracies, seed by seed."""
    found = {run["seed"]: run["accuracy"][where] for run in runs if same(run, cell, method)}
    return [found[seed] for seed in sorted(found)]


def spread(found: Sequence[float]) -> str:
    """Mean ± standard deviation; of one seed its accuracy, of none nothing."""
    if len(found) < 2:
        return "".join(f"{one:.3f}" for one in found)
    return f"{np.mean(found):.3f} ± {np.std(found, ddof=1):.3f}"


def small(runs: Sequence[Run], owners: int = 3) -> Iterator[str]:
    """The README's table: what matters most, for one number of owners."""
    columns = [f"{owners} owners", *(OURS[one] for one in SHOWN), "the paper's FedSage+"]
    rows = []
    for dataset in DATASETS:
        cell = (dataset, owners, "louvain")
        ours = [spread(values(runs, cell, one, "global")) for one in SHOWN]
        rows.append([NAMES[dataset], *ours, printed(dataset, owners)])
    yield from markdown(columns, rows)


def printed(dataset: str, owners: int, method: str = "fedsage+") -> str:
    """The paper's values of a cell; both where it prints two."""
    table = paper_values()["table-main"]
    first = table[dataset][method][table["owners"].index(owners)][0]
    also = [
        one["accuracy"]
        for one in table["also"]
        if (one["dataset"], one["owners"], one["method"]) == (dataset, owners, method)
    ]
    return " / ".join(f"{value:.4f}" for value in (first, *also))


def full(runs: Sequence[Run]) -> Iterator[str]:
    """Every cell and every method that was measured, on the whole graph and at the owners."""
    there = {run["method"] for run in runs}
    asked = [(one, where) for one in SHOWN if one in there for where in ("global", "local")]
    columns = ["dataset", "M", "owners", *(f"{OURS[one]}, {where}" for one, where in asked)]
    rows = [
        [
            NAMES[cell[0]],
            str(cell[1]),
            cell[2],
            *(spread(values(runs, cell, *a)) for a in asked),
        ]
        for cell in CELLS
    ]
    yield from markdown(columns, rows)


PAIRS = (("fedsage+", "fedsage"), ("fedsage", "globsage"), ("fedsage+", "globsage"))


def apart(runs: Sequence[Run], owners: int = 3) -> Iterator[str]:
    """Paired differences on the whole graph, in points ± standard error."""
    columns = ["", *(f"{OURS[one]} − {OURS[other]}" for one, other in PAIRS)]
    rows = []
    for dataset in DATASETS:
        cell = (dataset, owners, "louvain")
        held = {name: [run for run in runs if same(run, cell, name)] for name in SHOWN}
        pairs = [paired_by_seed(held[one], held[other]) for one, other in PAIRS]
        rows.append([NAMES[dataset], *(with_error(gains_of(one, "global")) for one in pairs)])
    yield from markdown(columns, rows)


def gained(
    runs: Sequence[Run], before: Sequence[Run], same_model: Callable[[Run], bool]
) -> Iterator[str]:
    """FedSage+ beside earlier runs, seed by seed, in points; zero if the model is the same."""
    columns = ("dataset", "M", "owners", "form", "global", "local", "seeds")
    rows: list[tuple[str, ...]] = []
    means: dict[str, list[list[float]]] = {"louvain": [], "random": []}
    for cell in CELLS:
        mine = [run for run in runs if same(run, cell, "fedsage+")]
        pairs = paired_by_seed(mine, [r for r in before if tuple(r["cell"]) == cell])
        if not pairs:
            continue
        run = pairs[0][0]
        gains = [gains_of(pairs, where) for where in ("global", "local")]
        means[cell[2]].append([gain.mean() * (not same_model(run)) for gain in gains])
        words = ["0", "0"] if same_model(run) else [gain_text(gain) for gain in gains]
        first = (NAMES[cell[0]], str(cell[1]), cell[2], run["features"])
        rows.append((*first, *words, str(len(pairs))))
    for kind, found in means.items():
        if found:
            both = [f"**{column.mean():+.2f}**" for column in np.array(found).T]
            rows.append((f"mean of {len(found)} cells", "", kind, "", *both, ""))
    yield from markdown(columns, rows)


def gain_text(gain: np.ndarray) -> str:
    """A gain in points ± standard error, if there is more than one seed."""
    return with_error(gain) if len(gain) > 1 else f"{gain.mean():+.2f}"


def write_tables(runs: Sequence[Run], root: Path) -> None:
    """Put the tables where they are shown; the small one once it is complete."""
    constant = read(root / CONSTANT.relative_to(ROOT))
    raw = [run for run in read(root / FILE.relative_to(ROOT)) if run["arm"] == "best"]
    complete = all(
        len(values(runs, (dataset, 3, "louvain"), method, "global")) > 1
        for dataset in DATASETS
        for method in SHOWN
    )
    for path in (root / "README.md", root / "docs" / "results.md") if complete else ():
        path.write_text(between_marks(path.read_text(), "results", small(runs)))
    page = root / "docs" / "results.md"
    if complete:
        page.write_text(between_marks(page.read_text(), "apart", apart(runs)))
    page.write_text(between_marks(page.read_text(), "accuracy", full(runs)))
    page = root / "docs" / "features.md"
    lines = gained(constant, raw, lambda run: run["features"] == "raw")
    page.write_text(between_marks(page.read_text(), "gained", lines))
    plus = [run for run in constant if run["method"] == "fedsage+"]
    page = root / "docs" / "tuning.md"
    lines = gained(runs, plus, lambda run: False)
    page.write_text(between_marks(page.read_text(), "cooled", lines))


def main() -> None:
    """Measure, or make the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--owners", default="3,5,10", help="numbers of owners")
    parser.add_argument("--docs", action="store_true", help="only renew the tables")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the source tree")
    given = parser.parse_args()
    path = given.root / KEPT.relative_to(ROOT)
    if not given.docs:
        seeds = [int(seed) for seed in given.seeds.split(",")]
        owners = [int(count) for count in given.owners.split(",")]
        chosen = [one for one in CELLS if one[0] in given.datasets.split(",")]
        chosen = [one for one in chosen if one[1] in owners]
        measure(path, given.methods.split(","), seeds, chosen)
    write_tables(read(path), given.root)


if __name__ == "__main__":
    main()
