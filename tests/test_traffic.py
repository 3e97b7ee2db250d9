"""What full messages would have been, as a run by changes says it."""

from __future__ import annotations

import pytest

from fedsage.config import load_config
from fedsage.runs.execute import run_config
from fedsage.runs.record import RunRecord
from tests.small import SMALL


def record_of(method: str, how: str, **classifier: object) -> RunRecord:
    settings = {
        "run": {"method": method},
        "traffic": {"how": how, "rank": 2},
        "classifier": {"rounds_c": 4, "selection": "last", **classifier},
        "neighgen": {"rounds_gen": 2, "batch_size": 16},
    }
    return run_config(load_config(SMALL, settings)).record


def assert_foretold(short: RunRecord, full: RunRecord) -> None:
    assert full.bytes_full == full.bytes
    assert sum(short.bytes["training"].values()) < sum(full.bytes["training"].values()) / 2
    for phase, sent in full.bytes.items():
        for way, count in sent.items():
            found = short.bytes_full[phase][way]
            assert found == pytest.approx(count, rel=0.01, abs=64), (
                phase,
                way,
            )  # names of views


@pytest.mark.slow
@pytest.mark.parametrize("how", ["whole", "low-rank"])
@pytest.mark.parametrize("moments", ["averaged", "own", "reset"])
def test_a_run_by_changes_says_what_full_messages_would_have_been(
    how: str, moments: str
) -> None:
    assert_foretold(
        record_of("fedsage", how, moments=moments),
        record_of("fedsage", "full", moments=moments),
    )


@pytest.mark.slow
@pytest.mark.parametrize("way", ["subspace", "neighgen", "shared", "classes", "copy"])
def test_so_it_does_of_every_way_of_mending(way: str) -> None:
    method = f"fedsage+{way}"
    assert_foretold(record_of(method, "low-rank"), record_of(method, "full"))


@pytest.mark.slow
def test_each_line_of_history_says_it_so_far() -> None:
    short, full = (
        run_config(load_config(SMALL, {"run": {"method": "fedsage"}, "traffic": {"how": how}}))
        for how in ("low-rank", "full")
    )
    for ours, other in zip(short.history, full.history, strict=True):
        assert ours.bytes_full == pytest.approx(other.bytes, rel=0.01)
        assert other.bytes_full == other.bytes
