"""Rare classes can weigh as much as frequent ones, by counts that owners add up."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.protocol.class_weights import ClassCounts, balance, weights_of, wrong
from fedsage.protocol.exchange import Exchange
from fedsage.runs.run import run
from tests.small import owners_of, small_setup

BALANCED: dict[str, object] = {"class_weights": "balanced", "rounds_c": 2}


def test_all_owners_weigh_classes_by_the_counts_of_all(graph: Graph, owners: Partition) -> None:
    setup = small_setup(graph, owners, "none", classifier=BALANCED)
    made = owners_of(setup)
    balance(Exchange(InProcessEngine(made), setup.plan))
    y = np.concatenate([one.graph.y[one.split.train] for one in made])
    counts = np.bincount(y, minlength=3)
    for one in made:
        assert one.class_weights is not None
        assert one.class_weights.numpy() == pytest.approx(len(y) / (3 * counts))
    assert sum(counts * weights_of(ClassCounts(torch.tensor(counts.astype(np.int32)))).numpy()
               ) == pytest.approx(len(y))  # fmt: skip


def test_a_class_without_nodes_weighs_nothing_and_strange_counts_are_refused() -> None:
    counts = ClassCounts(torch.tensor([3, 0, 1], dtype=torch.int32))
    assert weights_of(counts).tolist() == pytest.approx([4 / 9, 0, 4 / 3])
    assert wrong(counts, 4) is None and "4 training nodes" in str(wrong(counts, 3))


@pytest.mark.slow
@pytest.mark.parametrize("privacy", ["open", "sums"])
def test_weights_change_the_model_and_privacy_does_not(
    privacy: str, graph: Graph, owners: Partition
) -> None:
    settings = {"classifier": BALANCED, "model": {"widths": [8, 4]}}
    plain = {"classifier": {"rounds_c": 2}, "model": {"widths": [8, 4]}}
    found = run(owners, "fedsage", settings=settings, privacy=privacy)  # type: ignore[arg-type]
    again = run(owners, "fedsage", settings=settings)
    assert found.record.model_sha256 == again.record.model_sha256
    other = run(owners, "fedsage", settings=plain).record.model_sha256
    assert found.record.model_sha256 != other
    assert found.record.confusion_local == again.record.confusion_local
    assert found.record.calibration_error == again.record.calibration_error is not None


def test_compiled_steps_refuse_weights(graph: Graph, owners: Partition) -> None:
    settings = {"classifier": BALANCED, "run": {"kernel": "fused"}}
    with pytest.raises(ConfigError, match=r"run\.kernel=torch"):
        run(owners, "fedsage", settings=settings)
