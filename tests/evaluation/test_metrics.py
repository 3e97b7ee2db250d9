from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsage.evaluation.evaluate import (
    accuracy,
    aggregated_risk,
    confusion,
    label_distribution,
    macro_f1,
    mean_and_std,
    recall,
)

Y = np.array([0, 0, 0, 1, 1, 2])
PREDICTED = np.array([0, 0, 1, 1, 2, 2])


def test_metrics_are_their_definitions() -> None:
    counts = confusion(Y, PREDICTED, 3)
    assert counts.tolist() == [[2, 1, 0], [0, 1, 1], [0, 0, 1]]
    assert accuracy(counts) == pytest.approx(4 / 6)
    assert recall(counts) == pytest.approx([2 / 3, 1 / 2, 1.0])
    f1 = []
    for c in range(3):
        true = sum((Y == c) & (PREDICTED == c))
        precise, found = true / sum(PREDICTED == c), true / sum(Y == c)
        f1.append(2 * precise * found / (precise + found))
    assert macro_f1(counts) == pytest.approx(np.mean(f1))
    assert label_distribution(Y, 4) == pytest.approx([1 / 2, 1 / 3, 1 / 6, 0])


def test_a_class_nobody_has_does_not_lower_macro_f1() -> None:
    assert macro_f1(confusion(Y, Y, 5)) == 1.0


def test_the_aggregated_risk_is_the_mean_over_owners_of_their_mean_loss() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    y, owner = np.array([0, 1, 2, 1]), np.array([0, 0, 0, 2])
    loss = [-float(logits[v].log_softmax(0)[y[v]]) for v in range(4)]
    expected = (sum(loss[:3]) / 3 + loss[3]) / 2
    assert aggregated_risk(logits, y, owner) == pytest.approx(expected, rel=1e-5)


def test_the_spread_is_that_of_a_sample() -> None:
    assert mean_and_std([1.0, 3.0]) == pytest.approx((2.0, np.sqrt(2)))
    assert mean_and_std([1.0]) == (1.0, 0.0)


@pytest.mark.slow
def test_peak_memory_is_of_this_process_alone() -> None:
    """A child starts from its own memory, however much its parent held."""
    import subprocess
    import sys

    held = np.ones(200_000_000, dtype=np.int8)
    code = "from fedsage.machine import peak_rss_mb; print(peak_rss_mb())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 5 < float(done.stdout) < 190 and held.all()
