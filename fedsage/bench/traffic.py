"""The suite ``bytes``: what crosses an owner's boundary, compared with full messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from typing import Any

import numpy as np
from scipy.sparse import issparse

from fedsage.bench.figure import Figure, figure_of
from fedsage.bench.fresh import in_fresh_process
from fedsage.bench.whole_runs import costs_of_run
from fedsage.data.datasets import find
from fedsage.data.load import load
from fedsage.graph.graph import Graph
from fedsage.readable import all_phases, both_ways

MEASURED_METHODS = (
    "fedsage",
    "fedsage+subspace",
    "fedsage+classes",
    "fedsage+copy",
    "fedsage+neighgen",
    "fedsage+shared",
)
MEASURED_OWNERS = (3, 10)
PHASES = ("mending", "training")
KILO, MEGA = 1e3, 1e6
LEAST_RATIOS: dict[tuple[str, int], float | None] = {
    ("cora", 3): 60,
    ("cora", 10): 70,
    ("pubmed", 5): 50,
    ("msacademic", 3): 70,
}
MOST_CPU = 1.15  # of a low-rank run, relative to one with full messages
MOST_NEIGHGEN = 100  # MB of its phase: Cora, M = 10


def bytes_suite(repeats: int = 1) -> Iterator[Figure]:
    """Bytes by phase for every way of mending; whole low-rank runs; NeighGen's phase."""
    yield from figures_by_way(repeats)
    here = {cell: least for cell, least in LEAST_RATIOS.items() if find(cell[0])}
    for (name, owners), least in (here or {("synthetic", 3): None}).items():
        yield from figures_of_whole_run(name, owners, least, repeats)
    yield figure_of_neighgen("cora" if find("cora") else "synthetic", 10, repeats)


def figures_of_whole_run(
    name: str, owners: int, least: float | None, repeats: int
) -> Iterator[Figure]:
    """Bytes and CPU seconds of low-rank FedSage+, compared with full messages."""
    runs = [[costs(name, owners, "fedsage+", how, {}) for how in ("low-rank", "full")]
            for _ in range(repeats)]  # fmt: skip
    short, full = ([both_ways(all_phases(one["bytes"])) / MEGA for one in taken]
                   for taken in zip(*runs, strict=True))  # fmt: skip
    cpu = [ours["cpu"] / other["cpu"] for ours, other in runs]
    where = f"{name}, M = {owners}, fedsage+, a whole run"
    yield figure_of(f"{where}; full messages", short, "MB", full, at_least=least)
    yield figure_of(f"{where}, CPU ÷ with full messages", cpu, "×", at_most=MOST_CPU)


def figure_of_neighgen(name: str, owners: int, repeats: int) -> Figure:
    """NeighGen's phase in low rank, compared with full messages."""
    one_round = {"classifier": {"rounds_c": 1}}
    found = [
        costs(name, owners, "fedsage+neighgen", "low-rank", one_round) for _ in range(repeats)
    ]
    sent, full = ([both_ways(one[key]["mending"]) / MEGA for one in found]
                  for key in ("bytes", "bytes_full"))  # fmt: skip
    title = f"{name}, M = {owners}, fedsage+neighgen, all of mending; full messages"
    return figure_of(title, sent, "MB", full, at_most=MOST_NEIGHGEN)


def costs(
    name: str, owners: int, method: str, how: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The costs of one run in a separate process; ``more`` are other settings."""
    settings = {
        "run": {"method": method},
        "data": {"dataset": name, "owners": owners},
        "traffic": {"how": how},
    }
    found: dict[str, Any] = in_fresh_process(costs_of_run, settings={**settings, **more})
    return found


def figures_by_way(repeats: int) -> Iterator[Figure]:
    """Bytes up and down by phase and round, for every way of mending; they hardly vary.

    A round of the classifier is a third of three rounds plus the last broadcast.
    """
    name = "cora" if find("cora") else "synthetic"
    graph = load(name)
    raw = graph_bytes(graph)
    for owners, method in product(MEASURED_OWNERS, MEASURED_METHODS):
        settings = {
            "run": {"method": method},
            "data": {"dataset": name, "owners": owners},
            "classifier": {"rounds_c": 3},
        }
        found = [in_fresh_process(costs_of_run, settings=settings) for _ in range(repeats)]
        for phase, way in product(PHASES, ("up", "down")):
            rounds = found[0]["rounds"][phase] or 1
            sent = [one["bytes"][phase][way] / rounds / KILO for one in found]
            if not max(sent):
                continue
            dense = phase == "mending" and method == "fedsage+neighgen"
            than = dense_exchange(graph, owners, found[0]["neighgen"])[way] if dense else raw
            many = f"{rounds} rounds, each" if phase == "mending" and rounds > 1 else "a round"
            when = "once" if not found[0]["rounds"][phase] else many
            title = f"{name}, M = {owners}, {method}, {phase} {way}, {when}"
            what = "dense exchange" if dense else "the graph"
            yield figure_of(f"{title}; {what}", sent, "kB", [than / KILO] * repeats)


def graph_bytes(graph: Graph) -> int:
    """The graph as compact arrays: features as they are stored, links once, labels."""
    x = graph.x
    features = x.data.nbytes + x.indices.nbytes + x.indptr.nbytes if issparse(x) else x.nbytes
    return int(features + np.int32().nbytes * (2 * graph.num_links + graph.num_nodes))


def dense_exchange(graph: Graph, owners: int, gen: Mapping[str, Any]) -> dict[str, float]:
    """One round of NeighGen's exchange as in Algorithm 1 and Eq. (3), in float32.

    fGen outputs all neighbors of a node at once. Up: every owner sends Z and its generator,
    and for every other owner a gradient as large as that generator. Down: every owner gets
    all others' Z and generators, and the sum of its gradients.
    """
    d_z = gen["widths"][-1]
    sizes = [d_z, *gen["hidden"], gen["at_most"] * graph.num_features]
    weights = 4.0 * (d_z + 1 + sum((a + 1) * b for a, b in pairwise(sizes)))
    offer = weights + 4.0 * gen["batch_size"] * d_z
    up = offer + (owners - 1) * weights
    down = (owners - 1) * offer + weights
    return {"up": owners * up, "down": owners * down}
