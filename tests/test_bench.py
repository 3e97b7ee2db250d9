from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array

from fedsage.bench.figure import Figure
from fedsage.bench.plain import plain_step
from fedsage.bench.step import compared, step_flops, step_seconds
from fedsage.graph.graph import Graph
from fedsage.graph.synthetic import synthetic
from fedsage.models.graphsage import SageShape
from fedsage.models.training import Training
from fedsage.rng import generator


def test_a_figure_says_whether_it_is_as_wanted() -> None:
    assert Figure("a", 2.0, "s", at_most=3).met
    assert not Figure("a", 4.0, "s", at_most=3).met
    assert Figure("a", 1.0, "ms", 5.0, 5.0, at_least=2).met
    assert not Figure("a", 1.0, "ms", 1.5, 1.5, at_least=2).met
    assert Figure("a", 1.0, "ms").met and Figure("a", 1.0, "ms").wanted == ""
    assert Figure("a", 4.0, "s", at_most=3).wanted == "≤ 3 s: NO"


def test_every_kernel_and_the_baseline_are_timed_as_often(graph: Graph) -> None:
    times = step_seconds(synthetic(nodes=400, features=50), repeats=2, steps=3)
    assert set(times) == {"torch", "fused", "plain", "bound"}
    assert all(len(taken) == 2 and min(taken) > 0 for taken in times.values())


def test_a_comparison_is_the_median_of_ratios_with_its_spread() -> None:
    figure = compared("a", [1.0, 2.0, 4.0], [10.0, 10.0, 10.0], least=5)
    assert (figure.ratio, figure.spread, figure.met) == (5.0, (2.5, 10.0), True)


def test_the_bound_counts_every_product_once() -> None:
    links = np.array([[0, 1, 2], [1, 2, 0]])
    graph = Graph.from_arrays(csr_array(np.eye(3, 4)), links, np.array([0, 1, 0]))
    shape, training = SageShape(4, 2, (5, 3)), Training(fanouts=(30, 30))
    flops = step_flops(graph, np.array([0]), shape, training, generator(0, "flops"))
    # Thirty draws reach everybody: three nodes of one word each, as targets and as neighbors.
    products, means = (3 + 3) * 5 * 2, (3 + 1) * 30 * 5 * 2
    layers, weights = 3 * (2 * 5 * 3 + 3 * 2), 2 * 4 * 5 + 2 * 5 * 3 + 3 * 2
    assert flops == 2 * (products + means + layers) + 14 * weights


def test_the_baseline_learns_what_it_is_compared_with() -> None:
    graph = synthetic(nodes=300, classes=3, features=100)
    step = plain_step(graph, (16, 8), 5, 0.01)
    batch = torch.arange(200)
    for _ in range(40):
        step(batch)
    (model,) = [c.cell_contents for c in step.__closure__ if hasattr(c.cell_contents, "head")]  # type: ignore[union-attr]
    x = torch.from_numpy(graph.x.toarray())
    one = batch[:, None].expand(-1, 5)
    guessed = model(x, batch, one, one[:, :, None].expand(-1, -1, 5)).argmax(dim=1)
    assert (guessed == torch.tensor(graph.y[:200])).float().mean() > 0.5
