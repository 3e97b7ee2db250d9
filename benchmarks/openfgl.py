"""OpenFGL's own FedSage+ beside ours, on the same owners and the same splits.

    python benchmarks/openfgl.py --checkout OpenFGL --python OpenFGL/.venv/bin/python

``--checkout`` is a folder that contains the package ``openfgl``, and ``--python`` an
interpreter that has what it needs: torch, torch_geometric, scikit-network, pymetis, munkres.
None of its code is here; ``openfgl_inside.py`` calls it, in that interpreter. It runs with its
own usual settings, on one thread. CPU seconds are of training, for ours of the whole run
without the start of the program; memory is the highest of each process.

Local accuracy: theirs is of each owner's model, weighted by nodes, in the round that is best on
validation nodes; ours is of the shared model, the mean over owners.

Tried with version 1.1.0 of openfgl-lib: its usual hundred rounds took 206 CPU seconds.
Our runs are left in the folder ``runs``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from fedsage.config import Config, load_config
from fedsage.data.load import load
from fedsage.graph.graph import Graph
from fedsage.graph.partition import partition
from fedsage.graph.split import Split
from fedsage.runs.setup import prepare
from fedsage.shapes import NodeIds

INSIDE = Path(__file__).with_name("openfgl_inside.py")
OURS = ("fedsage+", "fedsage+neighgen")


def config_of(dataset: str, owners: int, seed: int) -> Config:
    """The settings of our runs that decide who owns what."""
    data = {"dataset": dataset, "owners": owners}
    return load_config({"data": data, "run": {"seed": seed}})


def write_graph(file: Path, graph: Graph, nodes: NodeIds, split: Split | None = None) -> None:
    """A graph with every link in both directions, and masks of a split."""
    links = graph.links
    held: dict[str, Any] = {
        "x": graph.x.toarray() if issparse(graph.x) else graph.x,
        "y": graph.y.astype(np.int64),
        "links": np.concatenate([links, links[::-1]], axis=1).astype(np.int64),
        "nodes": nodes,
        "classes": len(graph.class_names),
    }
    for part in () if split is None else ("train", "val", "test"):
        mask = np.zeros(graph.num_nodes, dtype=bool)
        mask[getattr(split, part)] = True
        held[part] = mask
    np.savez(file, **held)


def write_owners(config: Config, folder: Path) -> None:
    """Owners and splits as our runs with these settings have them."""
    data = config.data
    graph = load(data.dataset, **config.synthetic.model_dump())
    owners = partition(graph, data.owners, data.partition, config.run.seed)
    setup = prepare(config, owners, graph)
    write_graph(folder / "whole.npz", graph, np.arange(graph.num_nodes))
    for i, split in enumerate(setup.splits):
        write_graph(folder / f"owner-{i:03}.npz", owners.subgraphs[i], owners.nodes[i], split)


def theirs(
    folder: Path, checkout: Path, python: str, seed: int, rounds: int
) -> dict[str, float]:
    """What its FedSage+ took and found there."""
    one_thread = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    asked = [python, str(INSIDE), str(folder), str(checkout.resolve()), str(seed), str(rounds)]
    done = subprocess.run(
        asked, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **one_thread}
    )
    return read_answer(done.stdout)


def read_answer(printed: str) -> dict[str, float]:
    """The last line of what ``openfgl_inside.py`` prints; OpenFGL prints much before it."""
    found: dict[str, float] = json.loads(printed.strip().splitlines()[-1])
    return found


def ours(dataset: str, owners: int, seed: int, method: str) -> dict[str, float]:
    """The same of one of our runs, in a process of its own."""
    where = ["--dataset", dataset, "--owners", str(owners), "--seed", str(seed)]
    asked = [
        sys.executable,
        "-m",
        "fedsage",
        "run",
        *where,
        "--method",
        method,
        "--json",
    ]
    found = json.loads(subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout)
    memory = found["peak_rss_mb"] / 1024
    return {
        "cpu": found["cpu_seconds"],
        "gigabytes": memory,
        "local": found["accuracy"]["local"],
    }


def main() -> None:
    """Run all, one after the other, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=Path, required=True, help="folder of OpenFGL")
    parser.add_argument("--python", required=True, help="interpreter with its packages")
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--owners", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=100, help="of OpenFGL; its usual is 100")
    given = parser.parse_args()
    what = {"dataset": given.dataset, "owners": given.owners, "seed": given.seed}
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = {one: ours(**what, method=one) for one in OURS}
    with tempfile.TemporaryDirectory() as kept:
        write_owners(config_of(**what), Path(kept))
        how = given.checkout, given.python, given.seed, given.rounds
        rows["OpenFGL"] = theirs(Path(kept), *how)
    print("| FedSage+ | CPU s | GB | local accuracy |\n|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['cpu']:.1f} | {row['gigabytes']:.2f} | {row['local']:.4f} |")


if __name__ == "__main__":
    main()
