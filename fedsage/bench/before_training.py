"""Suites for what comes before training: starting up, making a graph, cutting it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from fedsage.bench.figure import Figure, figure_of, graphs, seconds
from fedsage.bench.fresh import in_fresh_process
from fedsage.data.datasets import find
from fedsage.data.synthetic import synthetic
from fedsage.graph.partition import partition
from fedsage.machine import peak_rss_mb


def startup_suite(repeats: int = 5) -> Iterator[Figure]:
    """How long it takes to start."""
    ways = {
        "import fedsage": ["-c", "import fedsage"],
        "fedsage --help": ["-m", "fedsage", "--help"],
    }
    for name, arguments in ways.items():
        times, bare = [], []
        for _ in range(repeats):
            times.append(seconds(start_python, *arguments))
            bare.append(seconds(start_python, "-c", ""))
        yield figure_of(name, times, "s", bare, at_most=1)
    yield whole_run(repeats)


def whole_run(repeats: int) -> Figure:
    """The CPU time of a ``fedsage run`` from start to end, beside that of ``import torch``."""
    here = find("cora") is not None
    graph = "cora" if here else "synthetic"
    command = ["-m", "fedsage", "run", "--dataset", graph, "--out"]
    with TemporaryDirectory() as folder:
        start_python(*command, str(Path(folder) / "first"))  # compiles, if nothing has yet
        times, torch = [], []
        for k in range(repeats):
            times.append(cpu_seconds(*command, str(Path(folder) / str(k))))
            torch.append(cpu_seconds("-c", "import torch"))
    name = f"fedsage run, {graph}, CPU, against import torch"
    return figure_of(name, times, "s", torch, at_most=4 if here else None)


def cpu_seconds(*arguments: str) -> float:
    """The CPU time of a fresh Python, in the program and in the system."""
    before = children_seconds()
    start_python(*arguments)
    return children_seconds() - before


def children_seconds() -> float:
    """The CPU time of all processes that this one has started, and that have ended."""
    now = os.times()
    return now.children_user + now.children_system


def start_python(*arguments: str) -> None:
    """Run a fresh Python to its end."""
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def partition_suite(repeats: int = 3) -> Iterator[Figure]:
    """Louvain and METIS owners: seconds, and the largest owner compared with the mean."""
    for (name, graph), how, owners in product(graphs(), ("louvain", "metis"), (3, 5, 10)):
        taken = [seconds(partition, graph, owners, how, k) for k in range(repeats)]
        balances = []
        for k in range(repeats):
            sizes = [one.num_nodes for one in partition(graph, owners, how, k).subgraphs]
            balances.append(max(sizes) * len(sizes) / sum(sizes))
        where = f"{name}, {how}, M = {owners}"
        yield figure_of(f"largest ÷ mean owner, {where}", balances, "", at_most=1.15)
        yield figure_of(f"partition, {where}", taken, "s", at_most=3)


def synthetic_suite(repeats: int = 3) -> Iterator[Figure]:
    """A million nodes and ten million links, in a separate process."""
    taken = [in_fresh_process(a_million_nodes) for _ in range(repeats)]
    where = "synthetic, 1M nodes, 10M links"
    yield figure_of(where, [one[0] for one in taken], "s", at_most=60)
    yield figure_of(f"{where}, peak memory", [one[1] for one in taken], "MB", at_most=4000)


def a_million_nodes() -> tuple[float, float]:
    """Seconds to make them, and the peak memory."""
    taken = seconds(synthetic, nodes=1_000_000, degree=20.0)
    return taken, peak_rss_mb()
