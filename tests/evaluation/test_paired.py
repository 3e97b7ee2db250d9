from __future__ import annotations

import pytest

from fedsage.evaluation.paired import baseline_of, paired_difference


def test_the_interval_is_student_s() -> None:
    found = paired_difference([0.5, 0.75, 0.875], [0.25, 0.625, 0.5])
    assert found.mean == pytest.approx(0.25) and found.pairs == 3
    assert found.std_err == pytest.approx(0.125 / 3**0.5)
    assert found.high == pytest.approx(0.25 + 4.302652729911275 * 0.125 / 3**0.5)
    assert found.low == pytest.approx(2 * found.mean - (found.high or 0))
    assert not found.clear


def test_a_constant_difference_is_clear_and_no_difference_is_not() -> None:
    assert paired_difference([0.75, 0.5], [0.5, 0.25]).clear
    assert not paired_difference([0.5, 0.5], [0.5, 0.5]).clear


def test_one_pair_has_no_interval() -> None:
    found = paired_difference([0.5], [0.25])
    assert (found.mean, found.low, found.high) == (0.25, None, None) and not found.clear


def test_pairs_need_the_same_seeds() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_difference([0.5, 0.25], [0.5])


def test_the_first_method_that_sends_anything_is_the_baseline() -> None:
    assert baseline_of({"locsage": 0, "fedsage": 5, "fedsage+": 6}) == "fedsage"
    assert baseline_of({"locsage": 0, "globsage": 0}) == "locsage"
