"""NeighGen's hot spots compared with the machine's limits: arithmetic and moving bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import issparse
from torch import Tensor

from fedsage.bench.figure import Figure, figure_of
from fedsage.bench.step import cpu_seconds, gemm_speed, times_bound
from fedsage.config import NeighGenConfig
from fedsage.graph.arrays import squared_norms
from fedsage.models.nearest import nearest
from fedsage.models.neighgen import FGen
from fedsage.models.optimizer import make_optimizer
from fedsage.rng import generator
from fedsage.shapes import NodeFeatures

MOST_TIMES_BOUND = 3.0  # times the bound
CALLS = 10  # of which the fastest counts, as for the bound
SETTINGS = NeighGenConfig()
WIDTHS, HIDDEN = SETTINGS.widths, SETTINGS.hidden
DECODED = 80  # rows: about what 64 nodes get
ADAM_BYTES = 4 * 7  # for each weight: four numbers are read, three written
COPIED_BYTES = 4 * 2  # for each number: it is read and written


def beside_bound(
    name: str, taken: Sequence[float], bounds: Sequence[float], bound: str
) -> Iterator[Figure]:
    """CPU milliseconds with the bound as their baseline, and their ratio to it."""
    milliseconds = [[1e3 * one for one in each] for each in (taken, bounds)]
    yield figure_of(f"{name}, against its {bound}", milliseconds[0], "ms", milliseconds[1])
    yield times_bound(f"{name} ÷ {bound}", taken, bounds, MOST_TIMES_BOUND)


def decoder_figures(name: str, num_features: int, repeats: int) -> Iterator[Figure]:
    """The time of fGen for a batch, forward and backward, as in procedure D: not to z."""
    draws = generator(0, "decoder")
    fgen = FGen(num_features, SETTINGS, draws)
    z, noise, upstream = (
        torch.from_numpy(draws.standard_normal((DECODED, size), dtype=np.float32))
        for size in (WIDTHS[-1], WIDTHS[-1], num_features)
    )
    weights = list(fgen.parameters())
    upstream = upstream.T.contiguous().T  # as the loss returns it

    def there_and_back() -> None:
        torch.autograd.grad(fgen(z, noise), weights, upstream)

    flops = decoder_flops((WIDTHS[-1], *HIDDEN, num_features), DECODED)
    taken = [(fastest(there_and_back), flops / gemm_speed()) for _ in range(repeats)]
    yield from beside_bound(f"{name}, decoder", *unzipped(taken), "arithmetic bound")


def decoder_flops(sizes: Sequence[int], rows: int) -> int:
    """Three products for each layer; the first layer needs no gradient in its input."""
    products = [a * b for a, b in pairwise(sizes)]
    return 2 * rows * (3 * sum(products) - products[0])


def matching_figures(
    name: str, rows: Float[Tensor, "rows d_x"], x: NodeFeatures, repeats: int
) -> Iterator[Figure]:
    """The nearest node of every row: one product of the rows with all features."""
    squares = squared_norms(x)
    stored = x.nnz if issparse(x) else x.size
    flops = 2 * stored * len(rows)
    taken = [
        (fastest(nearest, rows, x, squares, 2**28), flops / gemm_speed())
        for _ in range(repeats)
    ]
    yield from beside_bound(f"matching, {name}", *unzipped(taken), "arithmetic bound")


def adam_figures(name: str, num_features: int, repeats: int) -> Iterator[Figure]:
    """Adam on fGen: few operations for each number, so memory traffic limits it."""
    fgen = FGen(num_features, SETTINGS, generator(0, "adam"))
    for weight in fgen.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer = make_optimizer(fgen, "adam", 1e-3, 0.0)
    count = sum(weight.numel() for weight in fgen.parameters())
    taken = [
        (fastest(optimizer.step), ADAM_BYTES * count / copy_speed(2 * count))
        for _ in range(repeats)
    ]
    yield from beside_bound(f"{name}, Adam", *unzipped(taken), "memory bound (bytes ÷ copy)")


def copy_speed(numbers: int) -> float:
    """Bytes per second of a copy of that many numbers: half of them Adam's four tables."""
    source, target = torch.ones(2, numbers)
    return COPIED_BYTES * numbers / fastest(target.copy_, source)


def fastest(work: Callable[..., object], *arguments: object) -> float:
    """CPU seconds of the fastest of several calls."""
    return min(cpu_seconds(work, *arguments) for _ in range(CALLS))


def unzipped(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """What was measured, and the bounds measured with it."""
    first, second = np.array(pairs).T.tolist()
    return first, second
