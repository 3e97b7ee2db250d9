"""Suites for NeighGen: finding the nearest node, and the cost of its phase."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import issparse
from torch import Tensor

from fedsage.bench.figure import Figure, figure_of, graphs, seconds
from fedsage.bench.fresh import in_fresh_process
from fedsage.bench.hot_spots import adam_figures, decoder_figures, matching_figures
from fedsage.bench.whole_runs import costs_of_run
from fedsage.data.datasets import DATASETS, find
from fedsage.data.load import load
from fedsage.graph.arrays import squared_norms
from fedsage.models.nearest import nearest
from fedsage.rng import generator
from fedsage.shapes import Array

ROWS, OWNERS = 320, 3  # a batch of 64 nodes with five neighbors each, against an owner's nodes
LOOPED = 4  # rows on which the loop is timed
PUBLIC_BYTES = 244e9  # public codes' generator, Cora, M = 10, 20 rounds
MOST_CPU = {("cora", 3): 6, ("cora", 10): 15, ("msacademic", 3): 40, ("msacademic", 10): 60}


def matching_suite(repeats: int = 5) -> Iterator[Figure]:
    """The nearest node of another owner, against dense ``cdist`` and a loop over rows."""
    for name, graph in graphs():
        x = graph.x[: graph.num_nodes // OWNERS]
        draws = generator(0, "matching")
        rows = np.maximum(draws.standard_normal((ROWS, x.shape[1]), dtype=np.float32), 0)
        squares, queries = squared_norms(x), torch.from_numpy(rows)
        columns = queries.T.contiguous().T  # as fGen returns them
        dense = torch.from_numpy(x.toarray() if issparse(x) else x)
        ours, cdist, loop = [], [], []
        for _ in range(repeats):
            ours.append(seconds(nearest, columns, x, squares, 2**28))
            cdist.append(seconds(by_cdist, queries, dense))
            loop.append(seconds(by_loop, rows[:LOOPED], dense.numpy()) * ROWS / LOOPED)
        for baseline, taken, least in (("cdist", cdist, 3), ("a loop over rows", loop, 20)):
            yield figure_of(
                f"matching, {name}, against {baseline}", [1e3 * one for one in ours], "ms",
                [1e3 * one for one in taken], at_least=least if name == "msacademic" else None,
            )  # fmt: skip
        yield from matching_figures(name, columns, x, repeats)


def by_cdist(rows: Float[Tensor, "rows d_x"], x: Float[Tensor, "V d_x"]) -> Tensor:
    """All distances at once, on dense features."""
    return torch.cdist(rows, x).argmin(dim=1)


def by_loop(rows: Float[Array, "rows d_x"], x: Float[Array, "V d_x"]) -> list[int]:
    """The obvious first version: for every row, the distance to every node."""
    return [int(((x - row) ** 2).sum(axis=1).argmin()) for row in rows]


def neighgen_suite(repeats: int = 3) -> Iterator[Figure]:
    """NeighGen's hot spots, and its phase of FedSage+: CPU seconds, bytes, memory, by M."""
    here = [name for name in DATASETS if name in ("cora", "msacademic") and find(name)]
    names: list[str] = [*here] or ["synthetic"]
    for name in names:
        num_features = load(name).num_features
        yield from decoder_figures(f"neighgen, {name}", num_features, repeats)
        yield from adam_figures(f"neighgen, {name}", num_features, repeats)
    for name, owners in product(names, (3, 10)):
        settings = {
            "run": {"method": "fedsage+neighgen"},
            "data": {"dataset": name, "owners": owners},
            "classifier": {"rounds_c": 1},
        }
        taken = [in_fresh_process(costs_of_run, settings=settings) for _ in range(repeats)]
        cpu = [one["cpu_by_phase"]["mending"] for one in taken]
        carried = [sum(one["bytes"]["mending"].values()) for one in taken]
        rss = [one["peak_mb"] for one in taken]
        where = f"neighgen, {name}, M = {owners}"
        yield figure_of(f"{where}, CPU", cpu, "s", at_most=MOST_CPU.get((name, owners)))
        big = (name, owners) == ("msacademic", 10)
        yield figure_of(f"{where}, peak memory", rss, "MB", at_most=2000 if big else None)
        most = PUBLIC_BYTES / 20 / 1e9 if (name, owners) == ("cora", 10) else None
        yield figure_of(f"{where}, carried", [one / 1e9 for one in carried], "GB", at_most=most)
