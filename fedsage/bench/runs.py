"""Suites about whole things: starting up, cutting a graph, a run from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import product

from fedsage.bench.figure import Figure, figure_of, graphs, in_process, seconds
from fedsage.data.datasets import DATASETS, find
from fedsage.graph.partition import partition

OPENFGL_SECONDS = 284  # CPU seconds of its FedSage+ on Cora, M = 3
TRAINING = {  # CPU seconds of training that a run may take, one thread
    ("fedsage", "cora", 3): 2,
    ("fedsage", "msacademic", 3): 25,
    ("fedsage+neighgen", "cora", 3): 8,
    ("fedsage+neighgen", "cora", 10): 20,
    ("fedsage+neighgen", "msacademic", 3): 60,
}


def partition_suite(repeats: int = 3) -> Iterator[Figure]:
    """Louvain and METIS owners: seconds, and the largest owner against the mean."""
    for (name, graph), how, owners in product(graphs(), ("louvain", "metis"), (3, 5, 10)):
        taken = [seconds(partition, graph, owners, how, k) for k in range(repeats)]
        balances = []
        for k in range(repeats):
            sizes = [one.num_nodes for one in partition(graph, owners, how, k).subgraphs]
            balances.append(max(sizes) * len(sizes) / sum(sizes))
        where = f"{name}, {how}, M = {owners}"
        yield figure_of(f"largest ÷ mean owner, {where}", balances, "", at_most=1.15)
        yield figure_of(f"partition, {where}", taken, "s", at_most=3)


def run_suite(repeats: int = 3) -> Iterator[Figure]:
    """Whole runs in processes of their own: CPU seconds, peak memory, owners in parallel."""
    here = [name for name in DATASETS if find(name)] or ["synthetic"]
    cells = [*product(("fedsage", "fedsage+"), here, (3,))]
    cells += [cell for cell in TRAINING if cell[1] in here and cell not in cells]
    for method, name, owners in cells:
        code = (
            "from fedsage.config import load_config; from fedsage.runs import run_config; "
            f"config = load_config({{'run': {{'method': '{method}'}}, "
            f"'data': {{'dataset': '{name}', 'owners': {owners}}}}}); "
            "record = run_config(config, lambda line: None).record; "
            "cpu = record.cpu_seconds_by_phase; "
            "print([record.cpu_seconds, cpu['neighgen'] + cpu['classifier'], "
            "record.peak_rss_mb])"
        )
        taken = [json.loads(in_process(code)) for _ in range(repeats)]
        cpu, training, rss = ([one[k] for one in taken] for k in range(3))
        where = f"{method}, {name}, M = {owners}"
        most = OPENFGL_SECONDS / 20 if where == "fedsage+, cora, M = 3" else None
        limit = 1200 if name == "msacademic" and method != "fedsage+neighgen" else None
        yield figure_of(f"{where}, CPU", cpu, "s", at_most=most)
        wanted = TRAINING.get((method, name, owners))
        yield figure_of(f"{where}, training, CPU", training, "s", at_most=wanted)
        yield figure_of(f"{where}, peak memory", rss, "MB", at_most=limit)
    yield two_threads(repeats)
    yield two_at_a_time("pubmed" if "pubmed" in here else "synthetic", repeats)


def two_threads(repeats: int) -> Figure:
    """Products in two threads that share nothing, against one: what the machine gives."""
    code = (
        "import time, torch; from concurrent.futures import ThreadPoolExecutor as Pool; "
        "torch.set_num_threads(1); table = torch.ones(256, 256); "
        "work = lambda _: [torch.mm(table, table) for _ in range(2000)] and None; "
        "pool = Pool(2, initializer=torch.set_num_threads, initargs=(1,)); "
        "clock = time.perf_counter; "
        "taken = lambda n: (clock(), list(pool.map(work, range(n))), clock()); "
        "halves = lambda n: (lambda t: (t[2] - t[0]) / n)(taken(n)); "
        f"print([[halves(1), halves(2)] for _ in range({repeats})])"
    )
    taken = json.loads(in_process(code))
    return figure_of(
        "two threads that share nothing against one, a share of work",
        [two for _, two in taken],
        "s",
        [one for one, _ in taken],
    )


def two_at_a_time(name: str, repeats: int, owners: int = 4, rounds: int = 20) -> Figure:
    """A round of FedSage with two owners at a time, against one at a time."""
    code = (
        "from fedsage.config import load_config; from fedsage.runs import run_config; "
        f"settings = {{'data': {{'dataset': '{name}', 'owners': {owners}}}, "
        f"'classifier': {{'rounds_c': {rounds}}}}}; "
        "run = lambda n: {'run': {'method': 'fedsage', 'workers': n}}; "
        "config = lambda n: load_config(settings, run(n)); "
        "lines = lambda n: run_config(config(n), lambda line: None).history; "
        "print([[(h[-1].seconds - h[0].seconds) / (len(h) - 1) for h in (lines(1), lines(2))] "
        f"for _ in range({repeats})])"
    )
    taken = json.loads(in_process(code))
    return figure_of(
        f"fedsage, {name}, M = {owners}, a round, two owners at a time against one",
        [two for _, two in taken],
        "s",
        [one for one, _ in taken],
        at_least=1.6,
    )


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
        yield figure_of(name, times, "s", bare, at_most=1)


def start_python(*arguments: str) -> None:
    """Run a fresh Python to its end."""
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def synthetic_suite(repeats: int = 3) -> Iterator[Figure]:
    """A million nodes and ten million links, in a process of its own."""
    code = (
        "import time; start = time.perf_counter(); "
        "from fedsage.data.synthetic import synthetic; "
        "from fedsage.evaluation.results import peak_rss_mb; "
        "g = synthetic(nodes=1_000_000, degree=20); "
        "print([time.perf_counter() - start, peak_rss_mb()])"
    )
    taken = [json.loads(in_process(code)) for _ in range(repeats)]
    where = "synthetic, 1M nodes, 10M links"
    yield figure_of(where, [one[0] for one in taken], "s", at_most=60)
    yield figure_of(f"{where}, peak memory", [one[1] for one in taken], "MB", at_most=4000)
