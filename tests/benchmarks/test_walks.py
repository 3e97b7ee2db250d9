"""A run and a message enter no more files than they do today."""

from __future__ import annotations

import pytest

from benchmarks.walks import message_walk, run_walk

MOST = 68  # files that a run enters; 40 are wanted. Merge what is one idea before adding to it


def test_eight_files_carry_a_message_and_its_reply() -> None:
    carrying, _ = message_walk()
    assert len(carrying) <= 8, carrying


@pytest.mark.slow
def test_a_run_enters_no_more_files_than_before() -> None:
    found = run_walk()
    assert len(found) <= MOST, found
