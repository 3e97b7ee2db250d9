from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fedsage.bench import traffic
from fedsage.bench.before_training import cpu_seconds
from fedsage.bench.figure import Figure, figure_of
from fedsage.bench.fresh import in_fresh_process
from fedsage.bench.hot_spots import (
    adam_figures,
    beside_bound,
    decoder_figures,
    decoder_flops,
)
from fedsage.bench.plain import plain_step
from fedsage.bench.scale import STEPS, Case, figures_of, run_case
from fedsage.bench.step import adam_flops, beside_baseline, step_flops, step_seconds
from fedsage.bench.traffic import bytes_suite, dense_exchange, graph_bytes
from fedsage.bench.whole_runs import costs_of_run, seconds_per_round, seconds_per_share
from fedsage.cli.bench import measured
from fedsage.data.synthetic import synthetic
from fedsage.graph.graph import Graph
from fedsage.machine import peak_rss_mb
from fedsage.presets import overlaid
from fedsage.rng import generator
from tests.cli.conftest import fedsage  # noqa: F401
from tests.models.conftest import shape_of

if TYPE_CHECKING:
    from tests.cli.conftest import Call


def test_a_figure_says_whether_it_is_as_wanted() -> None:
    assert Figure("a", 2.0, "s", at_most=3).met
    assert not Figure("a", 4.0, "s", at_most=3).met
    assert Figure("a", 1.0, "ms", 5.0, 5.0, at_least=2).met
    assert not Figure("a", 1.0, "ms", 1.5, 1.5, at_least=2).met
    assert Figure("a", 1.0, "ms").met and Figure("a", 1.0, "ms").wanted == ""
    assert Figure("a", 4.0, "s", at_most=3).wanted == "≤ 3 s: NO"


def test_a_figure_is_the_median_with_its_spread() -> None:
    found = figure_of("a", [2.0, 1.0, 4.0], "s", [4.0, 4.0, 4.0], at_least=1.5)
    assert (found.value, found.among, found.repeats) == (2.0, (1.0, 4.0), 3)
    assert (found.baseline, found.ratio, found.spread) == (4.0, 2.0, (1.0, 4.0))
    assert found.met and measured(found) == "2 s (1–4)"
    assert measured(figure_of("a", [12345.6], "kB")) == "12,346 kB"
    alone = figure_of("a", [0.0], "MB")
    assert (alone.ratio, alone.spread, measured(alone)) == (None, None, "0 MB")


@pytest.mark.slow
def test_a_large_run_is_taken_step_by_step() -> None:
    said: list[str] = []
    found = run_case(Case("small", 300, 3, "fedsage+", rounds=1), said.append)
    assert set(STEPS) <= set(found) and min(found.values()) >= 0
    assert found["peak_mb"] > 50 and found["wall"] > 0
    assert any("round 1" in words for words in said)
    names = [one.name for one in figures_of(Case("small", 300, 3), [found, found])]
    assert names[:2] == ["scale, small, peak memory", "scale, small, wall time"]


@pytest.mark.slow
def test_work_in_a_fresh_process_answers_as_a_call_does() -> None:
    assert in_fresh_process(decoder_flops, sizes=[2, 3, 4], rows=5) == decoder_flops(
        [2, 3, 4], 5
    )
    assert in_fresh_process(peak_rss_mb) < peak_rss_mb()


@pytest.mark.slow
def test_a_run_s_costs_are_told_by_phase() -> None:
    settings = {
        "run": {"method": "fedsage"},
        "data": {"dataset": "synthetic", "owners": 3},
        "synthetic": {"nodes": 100, "features": 20},
        "classifier": {"rounds_c": 2},
    }
    found = costs_of_run(settings)
    assert found == json.loads(json.dumps(found))
    assert found["rounds"]["training"] == 2 and found["bytes"]["training"]["up"] > 0
    assert found["cpu"] > 0 and found["peak_mb"] > 50
    (taken,) = seconds_per_round(settings, workers=[1, 2], repeats=1)
    assert len(taken) == 2 and min(taken) > 0
    assert min(min(seconds_per_share([1, 2], repeats=1))) > 0


def test_a_dense_exchange_is_what_algorithm_1_would_send(graph: Graph) -> None:
    gen = {"widths": [3, 2], "hidden": [4], "at_most": 5, "batch_size": 10}
    weights = 4 * ((2 + 1) + (2 + 1) * 4 + (4 + 1) * 5 * graph.num_features)
    z = 4 * 10 * 2
    sent = dense_exchange(graph, 3, gen)
    assert sent["up"] == 3 * (z + weights + 2 * weights)
    assert sent["down"] == 3 * (2 * (z + weights) + weights)


def test_a_graph_is_as_large_as_its_arrays(graph: Graph) -> None:
    links = 4 * (2 * graph.num_links + graph.num_nodes)
    x = graph.x
    assert graph_bytes(graph) == x.data.nbytes + x.indices.nbytes + x.indptr.nbytes + links
    dense = Graph.from_arrays(x.toarray(), graph.links, graph.y)
    assert graph_bytes(dense) == 4 * graph.num_nodes * graph.num_features + links


SMALLER: dict[str, Any] = {
    "synthetic": {"nodes": 300, "features": 300},
    "classifier": {"rounds_c": 6},
    "neighgen": {"rounds_gen": 4, "batch_size": 32},
}


@pytest.mark.slow
def test_bytes_of_every_way_are_told_beside_the_graph_s(
    fedsage: Call,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traffic, "MEASURED_OWNERS", (3,))
    monkeypatch.setattr(traffic, "MEASURED_METHODS", ("fedsage", "fedsage+neighgen"))
    monkeypatch.setattr(traffic, "find", lambda name: None)
    monkeypatch.setattr(traffic, "load", lambda name: synthetic(**SMALLER["synthetic"]))

    def on_a_smaller_graph(work: Callable[..., Any], settings: Any) -> Any:
        return json.loads(json.dumps(work(settings=overlaid(SMALLER, settings))))

    monkeypatch.setattr(traffic, "in_fresh_process", on_a_smaller_graph)
    done = fedsage("bench", "--suite", "bytes", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["machine"]["cpus"] and all(one["suite"] == "bytes" for one in found["figures"])
    names = [one["name"] for one in found["figures"]]
    assert "synthetic, M = 3, fedsage, training up, a round; the graph" in names
    dense = [one for one in found["figures"] if "dense exchange" in one["name"]]
    assert len(dense) == 2 and all(one["ratio"] > 0 for one in dense)
    whole, cpu, neighgen = found["figures"][-3:]
    assert whole["name"] == "synthetic, M = 3, fedsage+, a whole run; full messages"
    assert whole["ratio"] > 1 and whole["at_least"] is None
    assert cpu["at_most"] == 1.15 and cpu["value"] > 0
    assert "fedsage+neighgen, all of mending" in neighgen["name"] and neighgen["at_most"] == 100


def test_whole_runs_are_figures_with_the_limits_of_their_dataset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made_up(name: str, owners: int, method: str, how: str, more: object) -> dict[str, Any]:
        sent = {"up": 3e6, "down": 2e6} if how == "low-rank" else {"up": 150e6, "down": 200e6}
        full = {"up": 150e6, "down": 200e6}
        cpu = 2.2 if how == "low-rank" else 2.0
        return {"bytes": {"mending": sent}, "bytes_full": {"mending": full}, "cpu": cpu}

    monkeypatch.setattr(traffic, "figures_by_way", lambda repeats: iter(()))
    monkeypatch.setattr(traffic, "find", lambda name: name if name != "pubmed" else None)
    monkeypatch.setattr(traffic, "costs", made_up)
    *pairs, neighgen = bytes_suite(repeats=2)
    sizes, cpus = pairs[::2], pairs[1::2]
    assert [one.at_least for one in sizes] == [60, 70, 70]  # and none of what is not here
    assert all((one.value, one.baseline, one.ratio) == (5, 350, 70) for one in sizes)
    assert all(one.value == pytest.approx(1.1) and one.met for one in cpus)
    assert (neighgen.value, neighgen.at_most, neighgen.met) == (5, 100, True)


def test_every_kernel_and_the_baseline_are_timed_as_often(graph: Graph) -> None:
    times = step_seconds(synthetic(nodes=400, features=50), 2, "paper")
    assert set(times) == {"torch", "fused", "plain", "bound", "no adam"}
    assert all(len(taken) == 2 and min(taken) > 0 for taken in times.values())


def test_a_comparison_is_the_median_of_ratios_with_its_spread() -> None:
    figure = beside_baseline("a", [1.0, 2.0, 4.0], [10.0, 10.0, 10.0], least=5)
    assert (figure.ratio, figure.spread, figure.met) == (5.0, (2.5, 10.0), True)


def test_the_bound_counts_every_product_once() -> None:
    links = np.array([[0, 1, 2], [1, 2, 0]])
    graph = Graph.from_arrays(csr_array(np.eye(3, 4)), links, np.array([0, 1, 0]))
    shape = shape_of(graph, widths=(5, 3))
    flops = step_flops(graph, np.array([0]), shape, (30, 30), generator(0, "flops"))
    # Thirty draws reach everybody: three nodes of one word each, as targets and as neighbors.
    products, means = (3 + 3) * 5 * 2, (3 + 1) * 30 * 5 * 2
    assert flops == 2 * (products + means + 3 * (2 * 5 * 3 + 3 * 2))
    assert adam_flops(shape) == 14 * (2 * 4 * 5 + 2 * 5 * 3 + 3 * 2)


def test_a_bound_counts_three_products_a_layer_but_one_gradient() -> None:
    rows, z, hidden, words = 10, 4, 5, 6
    forward = z * hidden + hidden * words
    weights, inner = forward, hidden * words  # nobody asks for the gradient in z
    assert decoder_flops((z, hidden, words), rows) == 2 * rows * (forward + weights + inner)


def test_a_hot_spot_stands_beside_its_bound() -> None:
    made = [*decoder_figures("a", 50, repeats=2), *adam_figures("a", 50, repeats=2)]
    assert all(one.repeats == 2 and one.value > 0 for one in made)
    assert [one.at_most for one in made] == [None, 3.0, None, 3.0]
    beside, ratio = beside_bound("a", [3e-3, 4e-3, 2e-3], [1e-3, 1e-3, 1e-3], "bound")
    assert (beside.value, beside.baseline) == (3.0, 1.0)
    assert ratio.value == pytest.approx(3) and ratio.among == pytest.approx((2, 4))


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


def test_cpu_time_of_another_process_is_work_and_not_waiting() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    waiting = "import time; time.sleep(0.3)"
    assert cpu_seconds("-c", busy) > 0.25 > cpu_seconds("-c", waiting)
