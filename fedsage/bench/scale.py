"""Large graphs and many owners: the cost of whole runs, each in a separate process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from fedsage.bench.figure import Figure, figure_of
from fedsage.bench.fresh import in_fresh_process
from fedsage.data.synthetic import synthetic
from fedsage.graph.assign import LARGE
from fedsage.graph.partition import partition
from fedsage.kernels.door import warm_up
from fedsage.machine import peak_rss_mb
from fedsage.runs.events import Event
from fedsage.runs.run import run

LINKS_A_NODE = 10
MOST_MEMORY = 8000  # MB
MOST_GROWTH = 12.0  # of time, from one size to ten times that
STEPS = ("make", "partition", "prepare", "mend", "train", "evaluate", "predict")


@dataclass(frozen=True, slots=True)
class Case:
    """One whole run."""

    name: str
    nodes: int
    owners: int
    method: str = "fedsage"
    rounds: int = 3
    most_seconds: float | None = None  # of wall time


GROWTH = (
    Case("100,000 nodes, M = 10, 3 rounds", 100_000, 10),
    Case("1,000,000 nodes, M = 10, 3 rounds", 1_000_000, 10),
)
OTHERS = (
    Case("100,000 nodes, M = 1000, 10 rounds", 100_000, 1000, rounds=10, most_seconds=600),
    Case("100,000 nodes, M = 10, fedsage+ (best)", 100_000, 10, "fedsage+"),
    Case("100,000 nodes, M = 10, fedsage+neighgen", 100_000, 10, "fedsage+neighgen"),
)


def scale_suite(repeats: int = 1) -> Iterator[Figure]:
    """Time and memory of whole runs; how time grows with the graph."""
    totals = []
    for case in GROWTH:
        taken = [run_case_apart(case) for _ in range(repeats)]
        totals.append([sum(one[step] for step in STEPS) for one in taken])
        yield from figures_of(case, taken)
    for small, large in pairwise(totals):
        ratios = [b / a for a, b in zip(small, large, strict=True)]
        yield figure_of("scale, growth of CPU time for ten times the nodes", ratios, "×",
                        at_most=MOST_GROWTH)  # fmt: skip
    for case in OTHERS:
        yield from figures_of(case, [run_case_apart(case) for _ in range(repeats)])


def figures_of(case: Case, taken: Sequence[dict[str, float]]) -> Iterator[Figure]:
    """The costs of a case: memory, wall time, and CPU time by step."""
    where = f"scale, {case.name}"
    peaks, walls = [one["peak_mb"] for one in taken], [one["wall"] for one in taken]
    yield figure_of(f"{where}, peak memory", peaks, "MB", at_most=MOST_MEMORY)
    yield figure_of(f"{where}, wall time", walls, "s", at_most=case.most_seconds)
    for step in STEPS:
        if max(one[step] for one in taken) >= 0.005:
            yield figure_of(f"{where}, {step}, CPU", [one[step] for one in taken], "s")


def run_case_apart(case: Case) -> dict[str, float]:
    """A case in a separate process, which reports progress on stderr."""
    found: dict[str, float] = in_fresh_process(run_case_aloud, case=asdict(case))
    return found


def run_case_aloud(case: dict[str, Any]) -> dict[str, float]:
    """Like :func:`run_case`, for a case given as JSON."""
    one = Case(**case)
    return run_case(
        one, lambda words: print(f"{one.name}: {words}", file=sys.stderr, flush=True)
    )


def run_case(case: Case, say: Callable[[str], None]) -> dict[str, float]:
    """Make the graph, cut it, train, evaluate, predict; CPU seconds of each, wall, memory."""
    warm_up()
    partition(synthetic(nodes=LARGE), 2, "louvain", 0)  # compiles before the clock starts
    found: dict[str, float] = {}
    start, mark = time.perf_counter(), time.process_time()

    def lap(step: str) -> float:
        nonlocal mark
        before, mark = mark, time.process_time()
        found[step] = mark - before
        say(f"{step}, {time.perf_counter() - start:.0f} s so far")
        return found[step]

    def on_round(event: Event) -> None:
        say(f"{event.phase}, round {event.round + 1}, loss {event.loss or 0:.3f}")

    graph = synthetic(nodes=case.nodes, degree=2.0 * LINKS_A_NODE)
    lap("make")
    owners = partition(graph, case.owners, "louvain", 0)
    lap("partition")
    result = run(
        owners, case.method, evaluate_on=graph, callbacks=[on_round],
        settings={"classifier": {"rounds_c": case.rounds}},
    )  # fmt: skip
    by_phase = result.record.cpu_seconds_by_phase
    parts = {"mend": "mending", "train": "training", "evaluate": "evaluation"}
    found |= {step: by_phase[phase] for step, phase in parts.items()}
    found["prepare"] = max(lap("all of run") - sum(found[step] for step in parts), 0.0)
    result.model.predict(graph)
    lap("predict")
    found["wall"] = time.perf_counter() - start
    found["peak_mb"] = peak_rss_mb()
    return found
