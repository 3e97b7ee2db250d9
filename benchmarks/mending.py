"""Every way of mending side by side, with its controls: one JSON file a dataset.

    python benchmarks/mending.py --datasets cora,citeseer --partitions random --seeds 5
    python benchmarks/mending.py --docs      # renews the table in docs/mending.md

A cell that is in the file with the same settings is not run again. All arms have the preset
``best``; paired by seed, they see the same owners, splits and first weights.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsage.config import Config, NeighGenConfig, load_config
from fedsage.files import write_json
from fedsage.machine import commit, machine, versions
from fedsage.presets import Settings
from fedsage.reproduce.cells import fingerprint
from fedsage.runs.execute import run_config

FOLDER = Path(__file__).parent.parent / "docs" / "results"
KEYS = ("method", "dataset", "owners", "partition", "preset", "seed")
VALUES = ("accuracy", "macro_f1", "round", "validation", "cpu_seconds", "model_sha256")

PAPER_NEIGHGEN = {
    "mend": {"mix": "off", "queries": "mended"},
    "neighgen": NeighGenConfig().model_dump(),
}
ARMS: dict[str, tuple[str, Settings]] = {
    "FedSage": ("fedsage", {}),
    "FedSage, 2 local epochs": ("fedsage", {"classifier": {"local_epochs": 2}}),
    "copy": ("fedsage+copy", {}),
    "classes": ("fedsage+classes", {}),
    "neighgen, the paper's": ("fedsage+neighgen", PAPER_NEIGHGEN),
    "neighgen": ("fedsage+neighgen", {}),
    "subspace": ("fedsage+subspace", {}),
    "oracle": ("oracle", {"mend": {"mix": "off"}}),
    "oracle, mix": ("oracle", {}),
}
ALSO = {"fedsage": "FedSage", "fedsage+": "subspace"}  # of `fedsage reproduce table-main`
DATASETS = ("cora", "citeseer", "pubmed", "msacademic")


def measure(path: Path, configs: Iterable[tuple[Config, dict[str, str]]]) -> None:
    """Run what is not in the file yet; each run is kept with what its cell is called."""
    for config, names in configs:
        held: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"runs": []}
        if fingerprint(config) in {run["settings"] for run in held["runs"]}:
            continue
        record = run_config(config).record
        held = json.loads(path.read_text()) if path.exists() else {"runs": []}
        held["runs"].append(
            {key: getattr(record, key) for key in (*KEYS, *VALUES)}
            | {"cpu_by_phase": record.cpu_seconds_by_phase, "view": record.view}
            | names
            | {"settings": fingerprint(config), "commit": commit()}
        )
        write_json(path, held | {"versions": versions(), "machine": machine()})


def cells_of(
    arguments: argparse.Namespace, dataset: str
) -> Iterator[tuple[Config, dict[str, str]]]:
    """Every seed of every partition of every arm, seeds first."""
    for seed in range(arguments.seeds):
        for cell in arguments.partitions:
            how, _, owners = cell.partition(":")
            for arm in arguments.arms:
                method, settings = ARMS[arm]
                data = {"dataset": dataset, "owners": int(owners or 10), "partition": how}
                chosen = {"run": {"method": method, "seed": seed}, "data": data}
                yield load_config(settings, chosen), {"arm": arm}


def by_cell() -> dict[tuple[str, str, int], dict[str, list[dict[str, Any]]]]:
    """All runs on disk, by dataset, partition and M, then by arm, in order of seeds."""
    groups: dict[Any, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for dataset in DATASETS:
        runs = held(f"mending-{dataset}")
        runs += louvain_runs(dataset)
        for run in sorted(runs, key=lambda run: run["seed"]):
            groups[dataset, run["partition"], run["owners"]][run["arm"]].append(run)
    return groups


def louvain_runs(dataset: str) -> list[dict[str, Any]]:
    """The runs with Louvain owners that Table 2 has anyway."""
    found = [
        run | {"owners": run["M"], "partition": "louvain"}
        for run in held("reproduce/best/table-main")
    ]
    return [
        run | {"arm": ALSO[run["method"]]}
        for run in found
        if run["method"] in ALSO and run["dataset"] == dataset
    ]


def held(name: str) -> list[dict[str, Any]]:
    """The runs in a result file, if there is one."""
    path = FOLDER / f"{name}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    return found


def table() -> Iterator[str]:
    """Mean ± standard deviation, and the paired difference to FedSage with its error."""
    for (dataset, partition, owners), arms in by_cell().items():
        yield f"\n### {dataset}, {owners} {partition} owners\n"
        yield "| arm | global | − FedSage | local | − FedSage | CPU seconds per run | seeds |"
        yield "|---|---|---|---|---|---|---|"
        for arm in ARMS:
            runs = arms.get(arm, [])
            if not runs:
                continue
            cells = [
                cell
                for kind in ("global", "local")
                for cell in compared(values(runs, kind), values(arms["FedSage"], kind))
            ]
            cpu = np.mean([run["cpu_seconds"] for run in runs])
            yield f"| {arm} | {' | '.join(cells)} | {cpu:.0f} | {len(runs)} |"


def values(runs: Sequence[dict[str, Any]], kind: str) -> dict[int, float]:
    """Accuracy by seed."""
    return {run["seed"]: run["accuracy"][kind] for run in runs}


def compared(ours: dict[int, float], base: dict[int, float]) -> tuple[str, str]:
    """A mean with its spread, and the paired difference with its standard error."""
    found = np.array(list(ours.values()))
    both = sorted(set(ours) & set(base))
    gaps = np.array([ours[seed] - base[seed] for seed in both])
    spread = (
        f"{found.mean():.4f} ± {found.std(ddof=1):.4f}" if len(found) > 1 else f"{found[0]:.4f}"
    )
    if len(gaps) < 2 or not gaps.any():
        return spread, ""
    error = gaps.std(ddof=1) / np.sqrt(len(gaps))
    return spread, f"{100 * gaps.mean():+.2f} ± {100 * error:.2f}"


def write_docs() -> None:
    """Put the table between the marks of ``docs/mending.md``."""
    path = FOLDER.parent / "mending.md"
    before, _, rest = path.read_text().partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- /table -->")
    lines = "\n".join(table())
    path.write_text(f"{before}<!-- table -->\n{lines}\n\n<!-- /table -->{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--partitions", default="random", help="e.g. random,louvain:3")
    parser.add_argument("--arms", default=";".join(ARMS), help="some of them, by semicolons")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="print what the files hold")
    parser.add_argument("--docs", action="store_true", help="renew docs/mending.md")
    arguments = parser.parse_args()
    arguments.partitions = arguments.partitions.split(",")
    arguments.arms = arguments.arms.split(";")
    if arguments.table:
        print("\n".join(table()).strip())
        return
    if arguments.docs:
        write_docs()
        return
    for dataset in arguments.datasets.split(","):
        measure(FOLDER / f"mending-{dataset}.json", cells_of(arguments, dataset))


if __name__ == "__main__":
    main()
