"""The suites of ``fedsage bench``: what is measured, and against what."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from fedsage.bench.figure import Figure, graphs, in_process, seconds
from fedsage.bench.gen_suites import matching_suite, neighgen_suite
from fedsage.bench.step import step_suite
from fedsage.graph.datasets import DATASETS, find
from fedsage.graph.partition import partition

OPENFGL_SECONDS = 284  # CPU seconds of its FedSage+ on Cora, M = 3


def partition_suite() -> Iterator[Figure]:
    """Louvain and METIS owners: seconds, and the largest owner against the mean."""
    for name, graph in graphs():
        for how in ("louvain", "metis"):
            for owners in (3, 5, 10):
                start = time.perf_counter()
                part = partition(graph, owners, how, 0)
                taken = time.perf_counter() - start
                sizes = [one.num_nodes for one in part.subgraphs]
                balance = max(sizes) * len(sizes) / sum(sizes)
                where = f"{name}, {how}, M = {owners}"
                yield Figure(f"largest ÷ mean owner, {where}", balance, "", at_most=1.15)
                yield Figure(f"partition, {where}", taken, "s", at_most=3)


def run_suite() -> Iterator[Figure]:
    """Whole runs, each in a process of its own: CPU seconds and peak memory."""
    here = [name for name in DATASETS if find(name)] or ["synthetic"]
    for name, method in product(here, ("fedsage", "fedsage+")):
        code = (
            "from fedsage.config import load_config; from fedsage.runs import run_config; "
            f"config = load_config({{'run': {{'method': '{method}'}}, "
            f"'data': {{'dataset': '{name}'}}}}); "
            "record = run_config(config, lambda line: None).record; "
            "print([record.cpu_seconds, record.peak_rss_mb])"
        )
        cpu, rss = json.loads(in_process(code))
        most = OPENFGL_SECONDS / 20 if (name, method) == ("cora", "fedsage+") else None
        limit = 1200 if name == "msacademic" else None
        yield Figure(f"{method}, {name}, M = 3, CPU", cpu, "s", at_most=most)
        yield Figure(f"{method}, {name}, M = 3, peak memory", rss, "MB", at_most=limit)


def startup_suite(repeats: int = 5) -> Iterator[Figure]:
    """How long it takes until something happens."""
    ways = {
        "import fedsage": ["-c", "import fedsage"],
        "fedsage --help": ["-m", "fedsage.cli.main", "--help"],
    }
    for name, arguments in ways.items():
        times, bare = [], []
        for _ in range(repeats):
            times.append(seconds(start_python, *arguments))
            bare.append(seconds(start_python, "-c", ""))
        yield Figure(
            name=name,
            value=float(np.median(times)),
            unit="s",
            baseline=float(np.median(bare)),
            ratio=float(np.median(bare) / np.median(times)),
            at_most=1,
        )


def start_python(*arguments: str) -> None:
    """Run a fresh Python to its end."""
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def synthetic_suite() -> Iterator[Figure]:
    """A million nodes and ten million links, in a process of its own."""
    code = (
        "import time; start = time.perf_counter(); "
        "from fedsage.graph.synthetic import synthetic; "
        "from fedsage.evaluation.results import peak_rss_mb; "
        "g = synthetic(nodes=1_000_000, degree=20); "
        "print([time.perf_counter() - start, peak_rss_mb()])"
    )
    taken, rss = json.loads(in_process(code))
    yield Figure("synthetic, 1M nodes, 10M links", taken, "s", at_most=60)
    yield Figure("synthetic, 1M nodes, 10M links, peak memory", rss, "MB", at_most=4000)


SUITES: dict[str, Callable[[], Iterator[Figure]]] = {
    "startup": startup_suite,
    "partition": partition_suite,
    "step": step_suite,
    "synthetic": synthetic_suite,
    "run": run_suite,
    "matching": matching_suite,
    "neighgen": neighgen_suite,
}
