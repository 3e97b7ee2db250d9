"""What runs leave in a kit, and what stays when it is removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fedsage.errors import ConfigError
from fedsage.federation.kits.kit import Kit
from fedsage.federation.kits.old_runs import keep_within, kept_runs, prune
from fedsage.federation.owner.verify import verified
from fedsage.federation.status.status import Status, store
from fedsage.protocol.sent_log import Ledger

JOB = "0b5b4f35-63a1-4b54-9d40-8ab4aef8f2a3"


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """Four runs of a megabyte each: the newest goes on, the one before stopped."""
    made = Kit(tmp_path, "owner", "east")
    for age, name in enumerate(["r4", "r3", "r2", "r1"]):
        folder = made.ours / "runs" / name
        Ledger().append(folder, {"type": "Joined", "bytes": 7})
        (folder / "checkpoint").mkdir()
        (folder / "checkpoint" / "state").write_bytes(bytes(10**6))
        if name not in ("r4", "r3"):
            (folder / "model.json").write_text("{}")
            (folder / "predictions.csv").write_text("id\n")
        for path in (*folder.rglob("*"), folder):
            os.utime(path, (1e9 - age, 1e9 - age))
    Ledger().append(made.ours / "runs" / "before", {"type": "Consent", "bytes": 7})
    store(made.ours, Status(run="r4"))
    (tmp_path / JOB).mkdir()
    (tmp_path / JOB / "log").write_text("x")
    for status in ("FINISHED:COMPLETED", "SUBMITTED"):
        stored = made.ours / "jobs" / JOB.replace("0b", f"{len(status):02}")
        stored.mkdir(parents=True)
        (stored / "meta").write_text(json.dumps({"status": status}))
        (stored / "workspace").write_bytes(bytes(10**5))
        os.utime(stored, (1e9 - 3, 1e9 - 3))
    os.utime(tmp_path / JOB, (1e9 - 3, 1e9 - 3))
    return made


def results(kit: Kit) -> dict[str, str]:
    return {one.run: one.result for one in kept_runs(kit)}


def test_runs_are_listed_with_result_and_size(kit: Kit) -> None:
    assert list(results(kit).items()) == [
        ("r4", "running"), ("r3", "stopped"), ("r2", "ended"), ("r1", "ended"),
    ]  # fmt: skip
    assert all(1_000_000 < one.bytes < 1_010_000 for one in kept_runs(kit))
    with pytest.raises(ConfigError, match="holds no runs"):
        kept_runs(Kit(kit.path, "coordinator", "coordinator"))


def test_pruning_keeps_the_newest_the_running_and_every_log(kit: Kit) -> None:
    names, freed = prune(kit, 2)
    assert names == ["r2", "r1"] and freed > 2_100_000
    assert not (kit.path / JOB).exists()
    (left,) = (kit.ours / "jobs").iterdir()
    assert "SUBMITTED" in (left / "meta").read_text(), "a run that waits its turn stays"
    assert results(kit) == {"r4": "running", "r3": "stopped", "r2": "removed", "r1": "removed"}
    logs = {log.run: log for log in verified(kit)}
    assert set(logs) == {"before", "r1", "r2", "r3", "r4"}
    assert all(log.wrong is None and log.bytes == 7 for log in logs.values())
    assert prune(kit, 0)[0] == ["r3"], "the run in progress stays"
    assert prune(kit, 0) == ([], 0)


def test_disk_use_is_bounded_by_removing_the_oldest_that_ended(kit: Kit) -> None:
    assert keep_within(kit, 5) == ([], 0)
    assert keep_within(kit, 4)[0] == ["r1"]
    assert keep_within(kit, 0, but="r2") == ([], 0), "what can be resumed is not removed"
    assert keep_within(kit, 0)[0] == ["r2"]
    assert results(kit)["r3"] == "stopped"
