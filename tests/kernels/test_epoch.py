"""The compiled kernel agrees with torch: same draws, same formulas, for all it claims to do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.sparse import csr_array

from fedsage.config import ClassifierConfig, Kernel, OptimizerName
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.kernels import sage
from fedsage.kernels.lowlevel import FAR, add_rows, spread_row
from fedsage.kernels.workspace import MOST_SIZES, SPARE
from fedsage.models.backbone import Backbone, new_model
from fedsage.models.graphsage import GraphSage
from fedsage.models.layers import dropout_key, kept, kept_scale, threshold
from fedsage.models.optimizer import make_optimizer, moments_of
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.models.train import train_epoch
from fedsage.rng import generator
from tests.models.conftest import shape_of


def random_graph(nodes: int, features: int, classes: int, links: int, dense: bool) -> Graph:
    """Any graph: an isolated node and a node without a feature are in it."""
    draws = generator(nodes, "graph", features, links)
    x = draws.normal(size=(nodes, features)) * (draws.random((nodes, features)) < 0.3)
    x[0] = 0
    pairs = draws.integers(nodes - 1, size=(2, links))  # the last node has no link
    return Graph.from_arrays(x if dense else csr_array(x), pairs, np.arange(nodes) % classes)


KERNELS: tuple[Kernel, Kernel] = ("torch", "fused")
HOW = ClassifierConfig(eta=0.01, weight_decay=1e-3, batch_size=16)
WIDE = {"widths": (24, 12), "dropout": 0.3}
Trained = tuple[list[float], Parameters, Parameters, float]


def after(
    kernel: Kernel, graph: Graph, count: int, classifier: ClassifierConfig, **model: object
) -> Trained:
    """Losses, weights, moments and the next draw after some epochs by one kernel."""
    trained = new_model(shape_of(graph, **model), generator(0, "phi"), kernel=kernel)
    assert isinstance(trained, GraphSage)
    for layer in trained.sage_layers:
        torch.nn.init.constant_(layer.bias, 0.05)
    how = classifier.optimizer, classifier.eta, classifier.weight_decay
    optimizer = make_optimizer(trained, *how)
    stream, nodes = generator(0, "epochs"), np.arange(graph.num_nodes)
    losses = [
        train_epoch(trained, optimizer, graph, nodes, classifier, stream) for _ in range(count)
    ]
    moments = moments_of(optimizer, trained)
    return losses, parameters_of(trained), moments, float(stream.random())


@pytest.mark.slow
@settings(max_examples=60)
@given(
    nodes=st.integers(4, 40),
    features=st.integers(1, 12),
    classes=st.integers(2, 4),
    links=st.integers(0, 80),
    dense=st.booleans(),
    widths=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    head=st.sampled_from(["relu", "l2", "direct"]),
    optimizer=st.sampled_from(["adam", "adamw", "sgd"]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    dropout=st.sampled_from([0.0, 0.3, 0.9]),
    fanouts=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
def test_one_step_by_either_kernel_is_the_same_to_rounding(
    nodes: int, features: int, classes: int, links: int, dense: bool, widths: tuple[int, int],
    head: str, optimizer: str, weight_decay: float, dropout: float, fanouts: tuple[int, int],
) -> None:  # fmt: skip
    # A row of one value has no direction but its sign, and a node without neighbors whose h^1
    # is one value has but two directions: that gradient is zero, and what torch has in its
    # place is rounding, the more so the shorter the row.
    assume(head != "l2" or min(widths) > 1)
    graph = random_graph(nodes, features, classes, links, dense)
    how = ClassifierConfig(
        eta=0.01, optimizer=optimizer, weight_decay=weight_decay, batch_size=nodes,
        fanouts=fanouts,
    )  # type: ignore[arg-type]  # fmt: skip
    model = {"widths": widths, "head": head, "dropout": dropout}
    by_torch, by_kernel = (after(kernel, graph, 1, how, **model) for kernel in KERNELS)
    assert by_kernel[0] == pytest.approx(by_torch[0], rel=1e-5)
    assert by_kernel[3] == by_torch[3], "both draw the same numbers"
    # After one step the first moment is a tenth of the gradient, and SGD moves along it.
    seen, expected = (
        (one[1] if optimizer == "sgd" else one[2]) for one in (by_kernel, by_torch)
    )
    assert set(seen) == set(expected)
    # Sums may cancel, so that a little is allowed beside the share; squares double it.
    room = {"": (1e-5, 1e-8), ".exp_avg": (1e-5, 1e-8), ".exp_avg_sq": (1e-4, 1e-9)}
    for kind, (share, floor) in room.items():
        names = [name for name in expected if name.endswith(kind) and expected[name].numel()]
        for name in names if kind or optimizer == "sgd" else []:
            most = max(float(expected[other].abs().max()) for other in names)
            torch.testing.assert_close(
                seen[name], expected[name], rtol=share, atol=share * most + floor
            )


def test_a_row_of_one_value_has_no_gradient_once_it_is_normalized() -> None:
    graph = random_graph(30, 8, 3, 60, dense=False)
    how = ClassifierConfig(batch_size=30)
    _, _, moments, _ = after("fused", graph, 1, how, widths=(6, 1), head="l2")
    for name, moment in moments.items():
        if name.endswith("exp_avg"):
            assert bool(moment.any()) == name.startswith("head"), name


@pytest.mark.parametrize("head", ["relu", "l2", "direct"])
@pytest.mark.parametrize("dense", [False, True])
def test_epochs_by_either_kernel_stay_together(head: str, dense: bool) -> None:
    graph = random_graph(60, 20, 3, 150, dense)
    how = HOW.model_copy(update={"fanouts": (5, 4)})
    model = {"widths": (8, 5), "head": head, "dropout": 0.3}
    by_torch, by_kernel = (after(kernel, graph, 5, how, **model) for kernel in KERNELS)
    assert by_kernel[0] == pytest.approx(by_torch[0], rel=1e-3)
    assert by_kernel[0][-1] < by_kernel[0][0]
    assert by_kernel[3] == by_torch[3]
    assert set(by_kernel[2]) == set(by_torch[2])
    for name, weight in by_torch[1].items():
        torch.testing.assert_close(by_kernel[1][name], weight, rtol=1e-2, atol=1e-3)


def test_the_kernel_applies_by_itself_and_says_where_it_does_not(graph: Graph) -> None:
    def model(device: str = "cpu", **settings: object) -> Backbone:
        return new_model(shape_of(graph, **settings), generator(0, "phi"), device)

    two = model()
    assert two.chosen_kernel == "fused"
    two.kernel = "torch"
    assert two.chosen_kernel == "torch"
    for other, says in [
        (model(widths=(4, 4, 4)), "3 layers"),
        (model(norm="layer"), "norm 'layer'"),
        (model("meta"), "device 'meta'"),
        (model(backbone="gcn"), "backbone 'gcn'"),
    ]:
        assert other.chosen_kernel == "torch"
        other.kernel = "fused"
        with pytest.raises(ConfigError, match=says):
            _ = other.chosen_kernel


def test_dropout_keeps_its_share_and_the_mean() -> None:
    key = dropout_key(generator(0, "key"))
    for share in (0.0, 0.25, 0.5, 0.9):
        mask = kept(200_000, share, key)
        assert mask.mean() == pytest.approx(1 - threshold(share) / 256, abs=0.005)
        assert mask.mean() * kept_scale(share) == pytest.approx(1, abs=0.05)
    assert (kept(64, 0.5, key) != kept(64, 0.5, key + 1)).any()


@pytest.mark.parametrize(
    ("how", "dropout"),
    [({"batch_size": 16}, 0.001), ({"batch_size": 10**9, "fanouts": (50, 50)}, 0.0)],
)
def test_odd_settings_are_no_exception(
    graph: Graph, how: dict[str, object], dropout: float
) -> None:
    chosen = ClassifierConfig(**how)
    by_torch, by_kernel = (after(one, graph, 1, chosen, dropout=dropout) for one in KERNELS)
    assert by_kernel[0] == pytest.approx(by_torch[0], rel=1e-4)
    assert by_kernel[3] == by_torch[3]


@njit
def gathered(out, picked, scale, table):  # type: ignore[no-untyped-def]
    for i in range(picked.shape[0]):
        size = picked.shape[1]
        add_rows(out, i, picked.ravel(), scale, 0, 1, i * size, (i + 1) * size, table)


@njit
def scattered(out, picked, scale, rows):  # type: ignore[no-untyped-def]
    for i in range(picked.shape[0]):
        size = picked.shape[1]
        spread_row(rows, i, picked.ravel(), scale, 0, 1, i * size, (i + 1) * size, out)


@njit
def transposed(out, a, table):  # type: ignore[no-untyped-def]
    for k in range(out.shape[0]):
        add_rows(out, k, None, a, k, a.shape[1], 0, a.shape[0], table)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 3, 7, 8, 9, 31, 32, 40, 63, 64, 65, 107, 200])
def test_sums_of_rows_are_products_at_any_width(width: int) -> None:
    draws = generator(width, "rows")
    table = draws.normal(size=(11, width)).astype(np.float32)
    picked = draws.integers(11, size=(6, 9)).astype(np.int32)
    scale = draws.normal(size=54).astype(np.float32)
    dense = np.zeros((6, 11))
    np.add.at(dense, (np.repeat(np.arange(6), 9), picked.ravel()), scale)
    start = draws.normal(size=(6, width)).astype(np.float32)
    out = start.copy()
    gathered(out, picked, scale, table)
    np.testing.assert_allclose(out, start + dense @ table, rtol=1e-5, atol=1e-5)
    back = table.copy()
    scattered(back, picked, scale, start)
    np.testing.assert_allclose(back, table + dense.T @ start, rtol=1e-5, atol=1e-5)
    product = np.zeros((11, width), np.float32)
    transposed(product, dense.astype(np.float32), start)
    np.testing.assert_allclose(product, dense.T @ start, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [3, 40, 64])
def test_sums_of_rows_from_afar_are_those_of_rows_nearby(width: int) -> None:
    draws = generator(width, "far")
    far = draws.normal(size=(FAR // width + 1, width)).astype(np.float32)
    picked = draws.integers(len(far), size=(50, 20)).astype(np.int32)
    scale = draws.normal(size=1000).astype(np.float32)
    nearby, rows = np.unique(picked, return_inverse=True)
    sums = np.zeros((2, 50, width), np.float32)
    gathered(sums[0], picked, scale, far)
    gathered(sums[1], rows.reshape(picked.shape).astype(np.int32), scale, far[nearby])
    np.testing.assert_array_equal(*sums)


def test_two_runs_are_equal_to_the_bit_also_beside_each_other(graph: Graph) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: after("fused", graph, 3, HOW, **WIDE), range(4)))
    for losses, weights, moments, _ in runs[1:]:
        assert losses == runs[0][0]
        for seen, expected in ((weights, runs[0][1]), (moments, runs[0][2])):
            assert all(torch.equal(seen[name], expected[name]) for name in expected)


def test_room_that_others_have_used_changes_no_bit(graph: Graph) -> None:
    SPARE.clear()
    fresh = after("fused", graph, 1, HOW, **WIDE)
    smaller = graph.induced(np.arange(graph.num_nodes * 3 // 4))
    after("fused", smaller, 2, HOW, **WIDE)
    assert len(SPARE) == 1, "graphs of about the same size share it"
    for either in (WIDE | {"head": "l2"}, WIDE):
        used = after("fused", graph, 1, HOW, **either)
    assert used[0] == fresh[0]
    assert all(torch.equal(used[1][name], fresh[1][name]) for name in fresh[1])


def test_only_a_few_rooms_are_kept(graph: Graph) -> None:
    for width in range(2, 12):
        after("fused", graph, 1, ClassifierConfig(), widths=(width, 3))
    assert 1 <= len(SPARE) <= MOST_SIZES


def test_no_setting_compiles_the_kernel_again(graph: Graph) -> None:
    dense = random_graph(20, 6, 3, 30, dense=True)
    for one, head, optimizer in (
        (graph, "relu", "adam"), (dense, "l2", "sgd"), (dense, "direct", "adamw"),
    ):  # fmt: skip
        how = ClassifierConfig(optimizer=optimizer, weight_decay=1, fanouts=(2, 3))  # type: ignore[arg-type]
        after("fused", one, 2, how, head=head)
    assert len(sage.epoch.signatures) == 1


@pytest.mark.parametrize(
    ("made", "said"), [("sgd", "adam"), ("adam", "sgd"), ("adam", "adamw")]
)
def test_an_optimizer_other_than_the_setting_is_refused(
    made: OptimizerName, said: OptimizerName
) -> None:
    """Compiled code would take the step of one with the memory of the other."""
    graph = random_graph(20, 6, 2, 40, dense=False)
    model = new_model(shape_of(graph), generator(0, "phi"), kernel="fused")
    before = parameters_of(model)
    optimizer = make_optimizer(model, made, 0.01, 0.0)
    how = ClassifierConfig(optimizer=said)
    with pytest.raises(ConfigError, match=f"is '{said}', but the optimizer given is {made}"):
        train_epoch(model, optimizer, graph, np.arange(20), how, generator(0, "epochs"))
    assert all(torch.equal(before[name], one) for name, one in parameters_of(model).items())
