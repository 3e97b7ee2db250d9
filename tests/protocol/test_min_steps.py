"""Owners with few training nodes take as many steps as asked for, with smaller batches."""

from __future__ import annotations

import pytest

from fedsage.config import ClassifierConfig
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.protocol.messages import Ask
from tests.small import owners_of, small_setup


@pytest.mark.parametrize(
    ("nodes", "least", "batch"),
    [(54, 3, 18), (54, 1, 64), (200, 3, 64), (129, 3, 43), (20, 3, 16), (3, 3, 16), (0, 3, 16)],
)
def test_batches_become_smaller_only_where_there_are_few_nodes(
    nodes: int, least: int, batch: int
) -> None:
    assert ClassifierConfig(min_steps=least).batch_for(nodes) == batch


def test_a_small_batch_of_the_settings_stays_as_it_is() -> None:
    assert ClassifierConfig(batch_size=4, min_steps=3).batch_for(5) == 4


@pytest.mark.parametrize("kernel", ["torch", "fused"])
def test_the_optimizer_takes_the_steps_that_an_owner_says(
    graph: Graph, owners: Partition, kernel: str
) -> None:
    asked = {"batch_size": 64, "min_steps": 2}
    data = {"train": 0.9, "val": 0.05}
    setup = small_setup(graph, owners, classifier=asked, run={"kernel": kernel}, data=data)
    owner = max(owners_of(setup), key=lambda one: len(one.split.train))
    owner.local_update_c(Ask(0))
    count = {int(state["step"]) for state in owner.optimizer.state.values()}
    assert count == {owner.steps(0)} == {2}
