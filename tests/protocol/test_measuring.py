"""What is counted after training, at owners and as sums: calibration, classes, reliability."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.models.calibration import GRID, Calibration, likeliest
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.measuring import (
    BINS,
    AnswerCounts,
    Measured,
    Query,
    count_answers,
    likelihoods,
    loss_with,
    mean_deviation,
    measure,
    scores,
    wrong_counts,
    wrong_likelihoods,
)
from fedsage.protocol.messages import Ask
from fedsage.protocol.owner import DataOwner
from fedsage.rng import generator
from fedsage.runs.accuracy import at_owners
from tests.small import owners_of, small_setup

SURE = 9.0  # a factor that makes an untrained classifier far too sure of itself


def set_up(graph: Graph, owners: Partition, sure: float = SURE) -> tuple[list[DataOwner], Any]:
    """Owners with mended graphs, whose classifier is much too sure."""
    setup = small_setup(graph, owners, "none")
    made = owners_of(setup)
    for owner in made:
        with torch.no_grad():
            for weight in owner.model.head.parameters():
                weight *= sure
    return made, setup


def test_no_temperature_is_clearly_likelier(graph: Graph, owners: Partition) -> None:
    made, setup = set_up(graph, owners)
    found = measure(Exchange(InProcessEngine(made), setup.plan), "plain")
    rows = [(one.answers(one.graph, one.split.val), one.graph.y[one.split.val]) for one in made]
    every = torch.cat([row for row, _ in rows]).double()
    y = torch.from_numpy(np.concatenate([labels for _, labels in rows]))

    def loss(one: Calibration) -> float:
        return float(loss_with(one, every, y)) + one.slope**2 / 2

    finer = [Calibration(2 ** (k / 32), s / 8) for k in range(-32, 97) for s in range(-16, 9)]
    assert found.calibration.temperature > 1
    assert loss(found.calibration) < min(map(loss, finer)) + 0.01 < min(map(loss, GRID)) + 0.01


def test_calibrations_that_are_all_alike_change_nothing() -> None:
    assert likeliest([0.0] * len(GRID)) == Calibration()
    assert likeliest([float(k) for k in range(len(GRID))]).temperature == GRID[0].temperature


@pytest.mark.slow
@pytest.mark.parametrize("true", [Calibration(1.3, -0.7), Calibration(0.8, 0.4), Calibration()])
def test_a_calibration_that_labels_were_drawn_by_is_found(true: Calibration) -> None:
    stream = generator(0, "calibration")
    scores = torch.from_numpy(3 * stream.standard_normal((60_000, 4)))
    ends = true.shares(scores).cumsum(dim=1)
    y = (torch.from_numpy(stream.random((60_000, 1))) > ends).sum(dim=1)
    found = likeliest([float(loss_with(one, scores, y)) for one in GRID])
    assert found.temperature == pytest.approx(true.temperature, rel=0.05)
    assert found.slope == pytest.approx(true.slope, abs=0.15)


def test_a_calibration_changes_no_answer() -> None:
    scores = torch.from_numpy(generator(1, "calibration").standard_normal((500, 5)))
    for one in (GRID[0], GRID[-1], Calibration(2.0, -2.0)):
        assert torch.equal(one.shares(scores).argmax(dim=1), scores.argmax(dim=1))


def test_answers_are_counted_by_class_and_by_probability(
    graph: Graph, owners: Partition
) -> None:
    made, setup = set_up(graph, owners)
    found = measure(Exchange(InProcessEngine(made), setup.plan), "plain")
    total, hits = 0, 0
    sure: list[float] = []
    right: list[bool] = []
    for one in made:
        rows = found.calibration.shares(one.answers(one.graph, one.split.test))
        best = rows.argmax(dim=1).numpy()
        total, hits = total + len(best), hits + int((best == one.graph.y[one.split.test]).sum())
        sure += rows.max(dim=1).values.tolist()
        right += (best == one.graph.y[one.split.test]).tolist()
    assert found.confusion.sum() == total and np.trace(found.confusion) == hits
    bins = np.minimum((np.array(sure) * BINS).astype(int), BINS - 1)
    gaps = [abs(np.array(sure)[bins == b].sum() - np.array(right)[bins == b].sum())
            for b in range(BINS)]  # fmt: skip
    assert found.calibration_error == pytest.approx(sum(gaps) / total, abs=1e-4)


def test_both_views_are_the_mean_of_their_scores(graph: Graph, owners: Partition) -> None:
    setup = small_setup(graph, owners, "none")
    owner = owners_of(setup)[0]
    owner.mended = graph.induced(owners.nodes[0])
    nodes = owner.split.test
    assert torch.equal(scores(owner, "both", nodes), scores(owner, "plain", nodes))
    owner.mended = None
    assert torch.equal(scores(owner, "mended", nodes), scores(owner, "plain", nodes))


def test_each_question_is_answered_once(graph: Graph, owners: Partition) -> None:
    owner = set_up(graph, owners)[0][0]
    asked = Query("plain")
    assert likelihoods.run(owner, asked).total == len(owner.split.val)
    again = likelihoods.run(owner, asked)
    assert again.total == 0 and set(again.loss.values()) == {0}
    assert int(count_answers.run(owner, asked).confusion.sum()) == len(owner.split.test)
    assert int(count_answers.run(owner, asked).confusion.sum()) == 0


def test_strange_counts_are_refused(graph: Graph, owners: Partition) -> None:
    owner = set_up(graph, owners)[0][0]
    known, counts = (one.run(owner, Query("both")) for one in (likelihoods, count_answers))
    total = len(owner.split.test)
    assert wrong_counts(counts, total) is None and wrong_likelihoods(known, 99) is None
    assert "answers, but it has" in str(wrong_counts(counts, total - 1))
    assert "it has 0" in str(wrong_likelihoods(known, 0))
    more = AnswerCounts(counts.confusion, counts.count, counts.count, {})
    assert "other bins" in str(wrong_counts(more, total))
    fewer = AnswerCounts(counts.confusion * 0, counts.count, counts.right, counts.confidence)
    assert "do not add up" in str(wrong_counts(fewer, total))


def test_an_owner_with_few_nodes_counts_nothing(graph: Graph, owners: Partition) -> None:
    (owner, *_), _ = set_up(graph, owners)
    count = len(owner.split.test)
    for fewest, total in ((count + 1, 0), (count, count)):
        owner.fewest, owner.tested = fewest, False
        owner.measured.clear()
        assert owner.test_classifier(Ask(0)).total == total
        assert int(count_answers(owner, Query("plain")).confusion.sum()) == total


def test_counts_of_a_few_nodes_are_hidden_and_silent_classes_named() -> None:
    bins = [{"count": 40.0, "probability": 0.9, "right": 0.8}]
    bins += [{"count": 3.0, "probability": 0.5, "right": 0.0}] + [dict(bins[0], count=0.0)] * 8
    counts = np.array([[30, 5, 0, 0], [9, 20, 0, 0], [8, 1, 0, 0], [0, 0, 0, 0]])
    held = at_owners([Measured(Calibration(2.0), counts, bins)], 8, ("a", "b", "c", "d"))
    assert held.confusion == [[30, None, 0, 0], [9, 20, 0, 0], [8, None, 0, 0], [0, 0, 0, 0]]
    assert held.recall == [30 / 35, 20 / 29, 0.0, None]
    assert held.precision == [30 / 47, 20 / 26, None, None]
    assert held.balanced_accuracy == pytest.approx((30 / 35 + 20 / 29) / 3)
    assert held.calibration_error == pytest.approx((40 * 0.1 + 3 * 0.5) / 43)
    assert held.reliability is not None and held.reliability[1]["count"] is None
    rare, absent = held.warnings
    assert "Class 'c' is never predicted, although 9 test nodes" in rare
    assert "Class 'd' is never predicted, and no test node has it" in absent
    assert at_owners([], 8, ("a",)).confusion is None


@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (7, 0.5), (40, 0.93), (5, 1.0), (0, 0.0)])
def test_the_mean_deviation_is_that_of_a_binomial_number(n: int, p: float) -> None:
    chances = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    expected = sum(c * abs(k - n * p) for k, c in enumerate(chances))
    assert mean_deviation(n, p) == pytest.approx(expected, abs=1e-12)
