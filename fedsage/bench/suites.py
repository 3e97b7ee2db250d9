"""The suites of ``fedsage bench``: what is measured, and against what."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from fedsage.bench.figure import Figure, graphs, seconds
from fedsage.bench.gen_suites import matching_suite, neighgen_suite
from fedsage.bench.plain import plain_step
from fedsage.bench.scale import scale_suite
from fedsage.bench.traffic import bytes_suite
from fedsage.bench.whole import partition_suite, run_suite, startup_suite, synthetic_suite
from fedsage.graph.graph import Graph
from fedsage.models.graphsage import GraphSage, SageShape
from fedsage.models.optimizer import make_optimizer
from fedsage.models.train import EPOCHS
from fedsage.models.training import Training
from fedsage.rng import generator

WIDTHS, FANOUT, BATCH, ETA = (64, 32), 5, 64, 3e-3


def step_suite(repeats: int = 7) -> Iterator[Figure]:
    """One training step, compiled and by torch, against plain PyTorch with dense gathers."""
    wanted = {"cora": 2, "msacademic": 4}
    for name, graph in graphs():
        times = step_seconds(graph, repeats)
        plain = times.pop("plain")
        for kernel, ours in times.items():
            ratios = [slow / fast for slow, fast in zip(plain, ours, strict=True)]
            yield Figure(
                name=f"step, {name}, {kernel}",
                value=1e3 * float(np.median(ours)),
                unit="ms",
                baseline=1e3 * float(np.median(plain)),
                ratio=float(np.median(ratios)),
                spread=(min(ratios), max(ratios)),
                at_least=wanted.get(name),
            )


def step_seconds(graph: Graph, repeats: int, steps: int = 10) -> dict[str, list[float]]:
    """Seconds a step, by each kernel and by plain PyTorch, measured in turn."""
    draws = generator(0, "bench")
    shape = SageShape(graph.num_features, graph.num_classes, WIDTHS)
    training = Training(eta=ETA, batch_size=BATCH, fanouts=(FANOUT, FANOUT))
    models = {kernel: GraphSage(shape, draws) for kernel in EPOCHS}
    optimizers = {k: make_optimizer(model, "adam", ETA, 0.0) for k, model in models.items()}
    plain = plain_step(graph, WIDTHS, FANOUT, ETA)
    linked = np.flatnonzero((graph.degrees > 0) & (graph.y >= 0))
    times: dict[str, list[float]] = {name: [] for name in (*EPOCHS, "plain")}
    for _ in range(repeats + 1):
        nodes = draws.choice(linked, BATCH * steps, replace=False)
        for k, epoch in EPOCHS.items():
            arguments = models[k], optimizers[k], graph, nodes, training, draws
            times[k].append(seconds(epoch, *arguments) / steps)
        batches = torch.from_numpy(nodes).view(steps, BATCH)
        times["plain"].append(seconds(steps_on, plain, batches) / steps)
    return {name: taken[1:] for name, taken in times.items()}  # the first warms up


def steps_on(step: Callable[[torch.Tensor], None], batches: torch.Tensor) -> None:
    """One step a row."""
    for batch in batches:
        step(batch)


SUITES: dict[str, Callable[..., Iterator[Figure]]] = {  # each takes the number of repeats
    "startup": startup_suite,
    "partition": partition_suite,
    "step": step_suite,
    "synthetic": synthetic_suite,
    "run": run_suite,
    "matching": matching_suite,
    "neighgen": neighgen_suite,
    "bytes": bytes_suite,
    "scale": scale_suite,
}
