"""Sure answers count as labels: whose they are, how many, and that no hidden label does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsage.config import load_config
from fedsage.graph.arrays import frozen
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.models.parameters import parameters_of
from fedsage.models.self_training import (
    ASKED,
    NO_GUESSES,
    candidates,
    guesses,
    has_begun,
    labels_are_few,
)
from fedsage.protocol.changes.owner import local_change_c
from fedsage.protocol.messages import Ask
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.personal import personal_update
from fedsage.rng import generator
from fedsage.runs.result import RunResult
from tests.small import owners_of, small_setup

LATE = Ask(2)  # of three rounds: guesses have begun
FEW = {"train": 0.25, "val": 0.2}


def owner_with(graph: Graph, owners: Partition, **classifier: object) -> DataOwner:
    how: dict[str, object] = {"rounds_c": 3, "batch_size": 16, "self_training": 0.4}
    setup = small_setup(graph, owners, data=FEW, classifier=how | classifier)
    return owners_of(setup)[0]


@pytest.mark.parametrize("sureness", [0.1, 0.5, 0.9])
def test_guesses_are_the_sure_answers(sureness: float) -> None:
    draws = torch.Generator().manual_seed(3)
    answers = (4 * torch.randn(30, 3, generator=draws)).log_softmax(dim=1)
    nodes = np.arange(100, 160, 2)
    expected = {}
    for v, answer in zip(nodes.tolist(), answers.exp().tolist(), strict=True):
        if max(answer) >= sureness:
            expected[v] = answer.index(max(answer))
    found = guesses(nodes, answers, 30, sureness, generator(0, "g"))
    assert dict(zip(found.nodes.tolist(), found.classes.tolist(), strict=True)) == expected


def test_there_are_no_more_than_asked_for() -> None:
    answers = torch.tensor([[9.0, 0.0]] * 40).log_softmax(dim=1)
    nodes = np.arange(5, 45)
    found = [guesses(nodes, answers, 5, 0.5, generator(seed, "g")) for seed in range(20)]
    assert {len(one.nodes) for one in found} == {5}
    assert len({tuple(one.nodes.tolist()) for one in found}) > 1
    assert all(set(one.nodes.tolist()) <= set(nodes.tolist()) for one in found)


def test_nodes_for_training_are_not_asked_about() -> None:
    train = np.arange(0, 30, 5)
    found = candidates(30, train, generator(0, "g"))
    assert found.tolist() == [v for v in range(30) if v % 5]


def test_of_a_large_graph_only_some_nodes_are_asked_about() -> None:
    train = np.array([3, 77])
    found = [candidates(1000, train, generator(seed, "g")) for seed in range(3)]
    assert all(len(set(one.tolist()) - {3, 77}) == ASKED * 2 for one in found)
    assert len({tuple(one.tolist()) for one in found}) == 3


@pytest.mark.parametrize(
    ("labels", "nodes", "few"), [(0, 30, False), (1, 30, True), (9, 30, True), (10, 30, False)]
)
def test_labels_are_few_below_a_third_of_the_nodes(labels: int, nodes: int, few: bool) -> None:
    assert labels_are_few(labels, nodes) is few


def test_where_labels_are_enough_nothing_changes(graph: Graph, owners: Partition) -> None:
    """To the bit: what is measured with many labels is as it was."""

    def trained(self_training: float) -> dict[str, torch.Tensor]:
        how = {"rounds_c": 3, "self_training": self_training}
        owner = owners_of(small_setup(graph, owners, classifier=how))[0]
        assert not labels_are_few(len(owner.split.train), owner.graph.num_nodes)
        owner.local_update_c(LATE)
        return parameters_of(owner.model)

    with_answers, without = trained(0.1), trained(0.0)
    assert all(torch.equal(with_answers[name], without[name]) for name in without)


@pytest.mark.parametrize(
    ("t", "rounds", "begun"), [(0, 10, False), (3, 10, False), (4, 10, True)]
)
def test_they_begin_after_two_fifths_of_the_rounds(t: int, rounds: int, begun: bool) -> None:
    assert has_begun(t, rounds) is begun


def test_labels_that_are_not_for_training_change_nothing(
    graph: Graph, owners: Partition
) -> None:
    """From other nodes it learns what the classifier answers, never what they are."""

    def trained(relabelled: bool) -> dict[str, torch.Tensor]:
        owner = owner_with(graph, owners)
        if relabelled:
            y = owner.graph.y.copy()
            others = np.setdiff1d(np.arange(len(y)), owner.split.train)
            y[others] = (y[others] + 1) % graph.num_classes
            owner.graph = replace(owner.graph, y=frozen(y))
        owner.local_update_c(LATE)
        assert len(owner.guessed.nodes)
        return parameters_of(owner.model)

    true, other = trained(False), trained(True)
    assert all(torch.equal(true[name], other[name]) for name in true)


def test_they_change_what_is_learned_once_they_have_begun(
    graph: Graph, owners: Partition
) -> None:
    def trained(self_training: float, t: int) -> dict[str, torch.Tensor]:
        owner = owner_with(graph, owners, self_training=self_training)
        owner.local_update_c(Ask(t))
        return parameters_of(owner.model)

    for t, alike in ((0, True), (2, False)):
        pairs = zip(trained(0.4, t).values(), trained(0.0, t).values(), strict=True)
        assert all(torch.equal(*pair) for pair in pairs) is alike


@pytest.mark.parametrize("kernel", ["torch", "fused"])
def test_the_optimizer_takes_the_steps_that_an_owner_reports(
    graph: Graph, owners: Partition, kernel: str
) -> None:
    how = {"rounds_c": 3, "batch_size": 4, "self_training": 0.4}
    setup = small_setup(graph, owners, data=FEW, classifier=how, run={"kernel": kernel})
    owner = owners_of(setup)[0]
    owner.local_update_c(LATE)
    count = {int(state["step"]) for state in owner.optimizer.state.values()}
    assert count == {owner.steps(LATE.t)}
    assert owner.steps(LATE.t) > owner.batches(len(owner.split.train))


def test_a_graph_without_guesses_stays_as_it_is(graph: Graph) -> None:
    assert NO_GUESSES.on(graph) is graph


@pytest.mark.slow
@pytest.mark.parametrize("way", ["none", "copy"])
def test_hidden_sums_give_the_same_model(train: Callable[..., RunResult], way: str) -> None:
    how = {"self_training": 0.4, "rounds_c": 4}
    shown, hidden = (
        train(f"fedsage+{way}" if way != "none" else "fedsage", classifier=how, data=FEW,
              traffic={"how": "low-rank"}, privacy={"level": level})
        for level in ("open", "sums")
    )  # fmt: skip
    assert shown.record.model_sha256 == hidden.record.model_sha256


def test_an_owner_is_told_that_nodes_without_a_label_are_trained_on() -> None:
    """In every form of message, also those of methods with a model for each owner."""
    for procedure in (DataOwner.local_update_c, local_change_c, personal_update):
        for sureness in (0.0, 0.8):
            told = procedure.words(load_config({"classifier": {"self_training": sureness}}))
            assert ("without a training label" in told) == (sureness > 0), procedure.name
