"""What a server sees of a run can be kept, byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fedsage as fs
from fedsage.errors import ConfigError, DataError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.protocol.exchange import add_up
from fedsage.runs.messages_seen import Recording, read_recording
from tests.small import HOWS, SMALL, small_setup, traffic_of


def recorded(folder: Path, graph: Graph, owners: Partition, how: str) -> Recording:
    settings = SMALL | {"traffic": traffic_of(how)}
    given = {"settings": settings, "evaluate_on": graph, "out": folder}
    result = fs.run(owners, "fedsage+subspace", record=True, **given)
    setup = small_setup(graph, owners, "subspace", traffic=traffic_of(how))
    found = read_recording(folder, setup.plan.asks)
    sent = result.record.bytes
    for way in ("up", "down"):
        kept = sum(line.bytes for line in found.lines if line.way == way)
        assert kept == sum(phase[way] for phase in sent.values()) > 0
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_recording_holds_every_message(
    tmp_path: Path, graph: Graph, owners: Partition, how: str
) -> None:
    found = recorded(tmp_path / "run", graph, owners, how)
    training = "local_update_c" if how == "full" else "local_change_c"
    assert {line.owner for line in found.lines if line.way == "up"} == {0, 1, 2}
    assert len(list(found.find(training, "up", 0))) == 3  # rounds
    assert [line.exchange for line in found.lines] == sorted(
        line.exchange for line in found.lines
    )


@pytest.mark.slow
def test_a_recorded_sum_is_the_sum_of_recorded_replies(
    tmp_path: Path, graph: Graph, owners: Partition
) -> None:
    found = recorded(tmp_path / "run", graph, owners, "low-rank")
    each = [[one for _, one in found.find("local_change_c", "up", i)] for i in range(3)]
    totals = [total for _, total in found.find("local_change_c", "sum")]
    for replies, total in zip(zip(*each, strict=True), totals, strict=True):
        expected = add_up(list(replies))
        assert total.weight == expected.weight and total.count == 3
        for part, numbers in expected.parts.items():
            assert torch.equal(numbers, total.parts[part])


def test_what_cannot_be_recorded_is_refused(
    tmp_path: Path, graph: Graph, owners: Partition
) -> None:
    with pytest.raises(ConfigError, match="need a folder"):
        fs.run(owners, "fedsage", settings=SMALL, record=True)
    with pytest.raises(ConfigError, match="owners send nothing"):
        fs.run(owners, "locsage", settings=SMALL, out=tmp_path / "alone", record=True)
    with pytest.raises(ConfigError, match="cannot be recorded"):
        fs.run(owners, "fedsage", settings=SMALL, out=tmp_path / "r", record=True, resume=True)
    with pytest.raises(DataError, match="--record"):
        read_recording(tmp_path, {})
