from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending import subspace
from fedsage.mending.subspace import (
    NO_UNITS,
    Directions,
    SketchUnits,
    Subspace,
    basis_of,
    common_directions,
    common_subspace,
    first_basis,
    in_whole,
    sketch_features,
    sketch_in_whole,
    sketch_sizes,
    sketched,
)
from fedsage.models.subspace import SketchedState, random_basis, reconstructions, sketch
from fedsage.rng import generator
from tests.small import HOWS, exchange_on, owners_of, small_setup


def test_the_common_subspace_is_that_of_all_rows_together(
    graph: Graph, owners: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = small_setup(graph, owners, "subspace", traffic={"how": "full"})
    made = owners_of(setup)
    start = random_basis(40, 5, generator(0, "basis"))
    monkeypatch.setattr(subspace, "first_basis", lambda plan: start)
    monkeypatch.setattr(subspace, "STEPS", 200)
    for owner in made:  # as if it had nodes enough for 200 answers
        sketched(owner).told = SketchedState(-(10**6), {})
    exchange = exchange_on(setup, InProcessEngine(made))
    q = common_subspace(exchange).basis.numpy()
    _, _, right = np.linalg.svd(graph.x.toarray(), full_matrices=False)
    expected = right[:5].T @ right[:5]
    np.testing.assert_allclose(q @ q.T, expected, atol=1e-3)
    np.testing.assert_allclose(q.T @ q, np.eye(5), atol=1e-5)


def test_a_sketch_is_a_sum_over_nodes(graph: Graph) -> None:
    basis = random_basis(40, 4, generator(0, "basis"))
    expected = np.zeros((40, 4))
    for row in graph.x.toarray():
        expected += np.outer(row, row @ basis.numpy())
    for x in (graph.x, graph.x.toarray()):
        np.testing.assert_allclose(sketch(x, basis).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_every_node_gets_itself_and_its_projection(graph: Graph, kind: str) -> None:
    if kind == "dense":
        graph = Graph.from_arrays(graph.x.toarray(), graph.links, graph.y, graph.class_names)
    dense = graph.x if kind == "dense" else graph.x.toarray()
    q = random_basis(40, 6, generator(0, "basis"))
    made = reconstructions(graph, q)
    rows = made.x if kind == "dense" else made.x.toarray()
    assert made.parents.tolist() == [*range(60), *range(60)]
    np.testing.assert_array_equal(rows[:60], dense)
    projected = dense @ q.numpy() @ q.numpy().T
    if kind == "sparse":  # as many words as real rows have
        words = round(graph.x.nnz / 60)
        least = -np.sort(-projected, axis=1)[:, words - 1 : words]
        projected = np.where(projected >= least, projected, 0)
    typical = np.sqrt((dense**2).sum(axis=1).mean())
    expected = projected * typical / np.linalg.norm(projected, axis=1, keepdims=True)
    np.testing.assert_allclose(rows[60:], expected, rtol=1e-3, atol=1e-5)


def test_in_whole_numbers_the_subspace_holds_almost_as_much(
    graph: Graph, owners: Partition
) -> None:
    """The share of all features in it, against the exact one and a random one."""

    def share(basis: torch.Tensor) -> float:
        return float(((graph.x @ basis.numpy()) ** 2).sum() / (graph.x**2).sum())

    exact = exchange_on(small_setup(graph, owners, "subspace", traffic={"how": "full"}))
    whole = exchange_on(small_setup(graph, owners, "subspace", traffic={"how": "low-rank"}))
    best = share(common_subspace(exact).basis)
    found = share(basis_of(whole.plan, common_directions(whole)))
    first = share(first_basis(whole.plan))
    assert first + 0.8 * (best - first) < found < best + 1e-6
    carried = [sum(one.engine.traffic["mending"].sent.values()) for one in (exact, whole)]
    assert carried[1] < carried[0]
    assert whole.engine.traffic["mending"].full["up"] > 3800


def test_a_sketch_is_sent_once_its_size_was_told(graph: Graph, owners: Partition) -> None:
    setup = small_setup(graph, owners, "subspace", traffic={"how": "low-rank"})
    owner = owners_of(setup)[0]
    with pytest.raises(ProtocolError, match="not asked for the sizes"):
        sketch_in_whole(owner, SketchUnits(3, torch.zeros(2, dtype=torch.int16)))


@pytest.mark.parametrize("how", HOWS)
def test_an_owner_with_few_nodes_adds_nothing(
    graph: Graph, owners: Partition, how: str
) -> None:
    setup = small_setup(graph, owners, "subspace", traffic={"how": how})
    owner = owners_of(setup)[0]  # of twenty nodes

    def answer(basis: torch.Tensor) -> bool:
        if how == "full":
            return bool(sketch_features(owner, Subspace(basis)).product.any())
        sketch_sizes(owner, in_whole(basis))
        units = SketchUnits(3, torch.full((5,), -4, dtype=torch.int16))
        return bool(sketch_in_whole(owner, units).product.any())

    fives = [torch.eye(40)[:, k : k + 5] for k in (0, 5, 10)]
    answers = [answer(five) for five in fives]
    assert answers == [True, True, False]  # all answers count together
    again = [answer(five) for five in fives]
    assert again == answers  # what was answered before tells nothing new
    find = common_subspace if how == "full" else common_directions
    with pytest.raises(ProtocolError, match="No owner added anything"):
        find(exchange_on(setup, InProcessEngine([owner])))


@pytest.mark.parametrize("ranks", [[10, 1], [1] * 11, [3, 3, 3, 3], [40]])
def test_so_does_an_owner_that_is_to_draw_the_basis(
    graph: Graph, owners: Partition, ranks: list[int]
) -> None:
    """The server says a rank alone, or directions of its own: all columns count."""
    setup = small_setup(graph, owners, "subspace", traffic={"how": "low-rank"})
    owner = owners_of(setup)[0]
    told = 0
    for k, rank in enumerate(ranks):
        drawn = Directions(rank, torch.empty(0, rank, dtype=torch.int8), NO_UNITS)
        own = in_whole(random_basis(40, rank, generator(k, "directions")))
        sketch_sizes(owner, own if k else drawn)
        units = SketchUnits(1, torch.full((rank,), -20, dtype=torch.int16))
        told += rank * bool(sketch_in_whole(owner, units).product.any())
    assert told <= 10 < sum(ranks)


def test_the_rank_fits_the_smallest_owner(graph: Graph, owners: Partition) -> None:
    for asked, found in ((64, 2), (1, 1)):  # four answers, ten columns together at most
        setup = small_setup(graph, owners, "subspace", mend={"rank": asked})
        assert first_basis(setup.plan).shape == (40, found)
