"""The suite ``step``: a training step compared with torch and with the arithmetic alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from scipy.sparse import issparse

from fedsage.bench.figure import Figure, figure_of, graphs
from fedsage.bench.plain import plain_step
from fedsage.config import Kernel, load_config
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import sample_hops
from fedsage.models.backbone import Shape, new_model
from fedsage.models.optimizer import make_optimizer
from fedsage.models.train import train_epoch
from fedsage.presets import PRESETS
from fedsage.rng import generator
from fedsage.shapes import NodeIds

KERNELS: tuple[Kernel, ...] = ("torch", "fused")
AGAINST_TORCH = {"cora": 8, "citeseer": 8, "pubmed": 8, "msacademic": 5}
AGAINST_PLAIN = {"cora": 20, "msacademic": 20, "pubmed": 5}
ABOVE_BOUND = {"cora": 6, "msacademic": 9}
ADAM_FLOPS = 14  # for each weight: two moments, a root, a quotient, the step
OWNERS, TRAINING_SHARE = 3, 0.6  # an epoch is as long as one owner's
PLAIN_STEPS = 5  # they are slow
GEMM = 512  # rows and columns of the product that measures the machine's speed


def step_suite(repeats: int = 7) -> Iterator[Figure]:
    """One training step with each kernel, for the settings of both presets."""
    for name, graph in graphs():
        for preset in PRESETS:
            times = step_seconds(graph, repeats, preset)
            where = f"step, {name}, {preset}"
            yield beside_baseline(
                f"{where}, compiled against torch", times["fused"], times["torch"],
                AGAINST_TORCH.get(name),
            )  # fmt: skip
            yield beside_baseline(
                f"{where}, compiled against plain torch", times["fused"], times["plain"],
                AGAINST_PLAIN.get(name),
            )  # fmt: skip
            yield beside_baseline(
                f"{where}, torch against plain torch", times["torch"], times["plain"]
            )
            yield times_bound(
                f"{where}, compiled ÷ arithmetic bound", times["fused"], times["bound"],
                ABOVE_BOUND.get(name),
            )  # fmt: skip
            yield times_bound(
                f"{where}, compiled ÷ bound without Adam", times["fused"], times["no adam"]
            )


def times_bound(
    name: str, ours: Sequence[float], bound: Sequence[float], most: float | None = None
) -> Figure:
    """How many times as long as the arithmetic alone would take."""
    times = [a / b for a, b in zip(ours, bound, strict=True)]
    return figure_of(name, times, "×", at_most=most)


def beside_baseline(
    name: str, ours: Sequence[float], baseline: Sequence[float], least: float | None = None
) -> Figure:
    """Milliseconds of ours and of a baseline that was timed with it each time."""
    mine, others = ([1e3 * one for one in taken] for taken in (ours, baseline))
    return figure_of(name, mine, "ms", others, at_least=least)


def step_seconds(graph: Graph, repeats: int, preset: str) -> dict[str, list[float]]:
    """CPU seconds for each step: by each kernel, by plain torch, and the arithmetic alone.

    All are measured in turn, on the same nodes: an epoch of one of three owners.
    """
    config = load_config(preset=preset)
    training = config.classifier
    shape = Shape(graph.num_features, graph.num_classes, config.model)
    draws = generator(0, "bench")
    models = {kernel: new_model(shape, draws, kernel=kernel) for kernel in KERNELS}
    optimizers = {
        kernel: make_optimizer(model, "adam", training.eta, training.weight_decay)
        for kernel, model in models.items()
    }
    plain = plain_step(graph, config.model.widths, training.fanouts[0], training.eta)
    linked = np.flatnonzero((graph.degrees > 0) & (graph.y >= 0))
    share = int(TRAINING_SHARE * len(linked) / OWNERS)
    steps = max(share // training.batch_size, 1)
    times: dict[str, list[float]] = {
        name: [] for name in (*KERNELS, "plain", "bound", "no adam")
    }
    for _ in range(repeats + 1):
        nodes = draws.choice(linked, training.batch_size * steps, replace=False)
        batches = nodes.reshape(steps, -1)
        for k in KERNELS:
            arguments = models[k], optimizers[k], graph, nodes, training, draws
            times[k].append(cpu_seconds(train_epoch, *arguments) / steps)
        few = batches[:PLAIN_STEPS]
        times["plain"].append(cpu_seconds(steps_on, plain, torch.from_numpy(few)) / len(few))
        speed = gemm_speed()
        flops = [
            step_flops(graph, batch, shape, training.fanouts, draws) for batch in batches[:3]
        ]
        times["no adam"].append(float(np.mean(flops)) / speed)
        times["bound"].append((float(np.mean(flops)) + adam_flops(shape)) / speed)
    return {name: taken[1:] for name, taken in times.items()}  # the first warms up


def step_flops(
    graph: Graph,
    batch: NodeIds,
    shape: Shape,
    fanouts: Sequence[int],
    draws: np.random.Generator,
) -> float:
    """Additions and multiplications that one step on ``batch`` cannot do without.

    Features are weighted once for each distinct node, over their nonzero columns, forward and
    backward; dense layers and means are counted in full, sampling not at all.
    """
    first, second = sample_hops(graph, batch, fanouts, draws)
    near = first.inputs[np.unique(first.mean.indices)]
    d1, d2 = shape.model.widths
    per_node = np.diff(graph.x.indptr) if issparse(graph.x) else graph.num_features
    filled = np.broadcast_to(per_node, graph.num_nodes)
    products = (filled[second.inputs].sum() + filled[near].sum()) * d1 * 2
    means = (first.mean.nnz + second.mean.nnz) * d1 * 2
    layer_2 = 3 * len(batch) * 2 * d1 * d2
    head = 3 * len(batch) * d2 * shape.num_classes
    return float(2 * (products + means + layer_2 + head))


def adam_flops(shape: Shape) -> float:
    """The operations of Adam for one step on all weights."""
    d1, d2 = shape.model.widths
    return float(
        ADAM_FLOPS * (2 * shape.num_features * d1 + 2 * d1 * d2 + d2 * shape.num_classes)
    )


def gemm_speed() -> float:
    """Additions and multiplications per second in a product of square matrices."""
    square = torch.ones(GEMM, GEMM)
    return 2 * GEMM**3 / min(cpu_seconds(torch.mm, square, square) for _ in range(3))


def cpu_seconds(work: Callable[..., object], *arguments: object) -> float:
    """The processor time of ``work``, whatever else the machine is doing."""
    start = time.process_time()
    work(*arguments)
    return time.process_time() - start


def steps_on(step: Callable[[torch.Tensor], None], batches: torch.Tensor) -> None:
    """One step for each row."""
    for batch in batches:
        step(batch)
