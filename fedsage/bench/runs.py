"""The suite ``run``: whole runs, and owners in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from fedsage.bench.figure import Figure, figure_of
from fedsage.bench.fresh import in_fresh_process
from fedsage.bench.whole_runs import costs_of_run, seconds_per_round, seconds_per_share
from fedsage.data.datasets import DATASETS, find

OPENFGL_SECONDS = 284  # CPU seconds of its FedSage+ on Cora, M = 3
MOST_TRAINING_SECONDS = {  # CPU seconds of training that a run may take, one thread
    ("fedsage", "cora", 3): 2,
    ("fedsage", "msacademic", 3): 25,
    ("fedsage+neighgen", "cora", 3): 8,
    ("fedsage+neighgen", "cora", 10): 20,
    ("fedsage+neighgen", "msacademic", 3): 60,
}


def run_suite(repeats: int = 3) -> Iterator[Figure]:
    """Whole runs in separate processes: CPU seconds, peak memory, owners in parallel."""
    here = [name for name in DATASETS if find(name)] or ["synthetic"]
    cells = [*product(("fedsage", "fedsage+"), here, (3,))]
    cells += [cell for cell in MOST_TRAINING_SECONDS if cell[1] in here and cell not in cells]
    for method, name, owners in cells:
        settings = {
            "run": {"method": method},
            "data": {"dataset": name, "owners": owners},
        }
        taken = [in_fresh_process(costs_of_run, settings=settings) for _ in range(repeats)]
        cpu, rss = ([one[key] for one in taken] for key in ("cpu", "peak_mb"))
        training = [
            sum(one["cpu_by_phase"][phase] for phase in ("mending", "training"))
            for one in taken
        ]
        where = f"{method}, {name}, M = {owners}"
        most = OPENFGL_SECONDS / 20 if where == "fedsage+, cora, M = 3" else None
        limit = 1200 if name == "msacademic" and method != "fedsage+neighgen" else None
        yield figure_of(f"{where}, CPU", cpu, "s", at_most=most)
        wanted = MOST_TRAINING_SECONDS.get((method, name, owners))
        yield figure_of(f"{where}, training, CPU", training, "s", at_most=wanted)
        yield figure_of(f"{where}, peak memory", rss, "MB", at_most=limit)
    yield two_threads(repeats)
    yield two_at_a_time("pubmed" if "pubmed" in here else "synthetic", repeats)


def two_threads(repeats: int) -> Figure:
    """Products in two independent threads, compared with one: what the machine allows."""
    taken = in_fresh_process(seconds_per_share, threads=[1, 2], repeats=repeats)
    return figure_of(
        "two threads that share nothing against one, a share of work",
        [two for _, two in taken],
        "s",
        [one for one, _ in taken],
    )


def two_at_a_time(name: str, repeats: int, owners: int = 4, rounds: int = 20) -> Figure:
    """A round of FedSage with two owners at a time, compared with one at a time."""
    settings = {
        "run": {"method": "fedsage"},
        "data": {"dataset": name, "owners": owners},
        "classifier": {"rounds_c": rounds},
    }
    taken = in_fresh_process(
        seconds_per_round, settings=settings, workers=[1, 2], repeats=repeats
    )
    return figure_of(
        f"fedsage, {name}, M = {owners}, a round, two owners at a time against one",
        [two for _, two in taken],
        "s",
        [one for one, _ in taken],
        at_least=1.6,
    )
