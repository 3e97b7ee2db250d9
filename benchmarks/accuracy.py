"""Accuracy of every method on every cell, over seeds: one JSON file a dataset and preset.

    python benchmarks/accuracy.py --datasets cora,citeseer --preset best --seeds 5

A cell that is in the file with the same settings is not run again, so a run that was stopped
goes on.
``--table`` prints what the files hold as Markdown, ``--readme`` renews the README's table.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from fedsage.config import Config, load_config
from fedsage.evaluation.metrics import mean_and_std
from fedsage.evaluation.results import commit, machine, versions, write_json
from fedsage.reproduce.cells import fingerprint
from fedsage.reproduce.paper import paper_accuracy
from fedsage.runs import ignore_line, run_config

FOLDER = Path(__file__).parent.parent / "docs" / "results"
KEYS = ("method", "dataset", "owners", "partition", "preset", "seed")
VALUES = ("accuracy", "macro_f1", "round", "validation", "cpu_seconds", "model_sha256")


def measure(path: Path, configs: Iterable[tuple[Config, dict[str, str]]]) -> None:
    """Run what is not in the file yet; each run is kept with what its cell is called."""
    for config, names in configs:
        held: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"runs": []}
        if fingerprint(config) in {run["settings"] for run in held["runs"]}:
            continue
        record = run_config(config, ignore_line).record
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
    """Every seed of every M of every method, seeds first."""
    for seed, owners, method in product(
        range(arguments.seeds), arguments.owners, arguments.methods
    ):
        config = load_config(
            {"run": {"method": method, "seed": seed}},
            {"data": {"dataset": dataset, "owners": owners}},
            preset=arguments.preset,
        )
        yield config, {}


Cell = tuple[str, str, int, str]


def by_cell() -> dict[Cell, list[dict[str, Any]]]:
    """All runs on disk, by preset, dataset, M and method."""
    groups: dict[Cell, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(FOLDER.glob("accuracy-*.json")):
        for run in json.loads(path.read_text())["runs"]:
            groups[run["preset"], run["dataset"], run["owners"], run["method"]].append(run)
    return groups


def table() -> Iterator[str]:
    """Mean ± standard deviation of every cell, with the paper's value where it has one."""
    yield "| preset | dataset | M | method | global | local | paper | seeds | CPU s a run |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for (preset, dataset, owners, method), runs in sorted(by_cell().items()):
        found = [
            mean_and_std([run["accuracy"][k] for run in runs]) for k in ("global", "local")
        ]
        paper = paper_accuracy(method, dataset, owners, "louvain")
        cpu = sum(run["cpu_seconds"] for run in runs) / len(runs)
        shown = " | ".join(f"{mean:.4f} ± {std:.4f}" for mean, std in found)
        yield (
            f"| {preset} | {dataset} | {owners} | {method} | {shown} | "
            f"{'' if paper is None else f'{paper:.4f}'} | {len(runs)} | {cpu:.0f} |"
        )


def summary() -> Iterator[str]:
    """The README's table: the preset ``best`` beside the paper, global accuracy."""
    cells = by_cell()
    ours = "LocSage | FedSage | FedSage+ | GlobSage"
    theirs = "the paper: FedSage | FedSage+ | GlobSage"
    yield f"| dataset | M | {ours} | {theirs} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for dataset in ("cora", "citeseer", "pubmed", "msacademic"):
        for owners in (3, 5, 10):
            row = [dataset, str(owners)]
            for method in ("locsage", "fedsage", "fedsage+", "globsage"):
                runs = cells.get(("best", dataset, owners, method), [])
                mean, std = mean_and_std([run["accuracy"]["global"] for run in runs] or [0.0])
                row.append(f"{mean:.4f} ± {std:.4f}" if runs else "")
            for method in ("fedsage", "fedsage+", "globsage"):
                row.append(f"{paper_accuracy(method, dataset, owners, 'louvain'):.4f}")
            yield f"| {' | '.join(row)} |"


def write_readme() -> None:
    """Put the summary between the README's marks."""
    path = FOLDER.parent.parent / "README.md"
    before, _, rest = path.read_text().partition("<!-- results -->\n")
    _, _, after = rest.partition("<!-- /results -->")
    lines = "\n".join(summary())
    path.write_text(f"{before}<!-- results -->\n{lines}\n<!-- /results -->{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="cora,citeseer,pubmed,msacademic")
    parser.add_argument("--methods", default="fedsage,fedsage+,globsage,locsage")
    parser.add_argument("--owners", default="3,5,10")
    parser.add_argument("--preset", default="best")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="print what the files hold")
    parser.add_argument("--readme", action="store_true", help="renew the README's table")
    arguments = parser.parse_args()
    arguments.methods = arguments.methods.split(",")
    arguments.owners = [int(owners) for owners in arguments.owners.split(",")]
    if arguments.table:
        print("\n".join(table()))
        return
    if arguments.readme:
        write_readme()
        return
    for dataset in arguments.datasets.split(","):
        path = FOLDER / f"accuracy-{arguments.preset}-{dataset}.json"
        measure(path, cells_of(arguments, dataset))


if __name__ == "__main__":
    main()
