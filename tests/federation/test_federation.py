"""Real processes with mutual TLS on loopback: one truth, and kills that it survives."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fedsage.config import Config
from fedsage.errors import ProtocolError
from fedsage.evaluation.results import HistoryLine, RunRecord
from fedsage.federation.kits import Kit, open_kit
from fedsage.federation.operate import await_all, process_of, start
from fedsage.federation.rehearse import rehearsal
from fedsage.federation.rundir import run_into
from fedsage.runs import ignore_line, run_config
from tests.federation.conftest import config_for

pytestmark = pytest.mark.federation
pytest.importorskip("nvflare")
OWNERS = ("owner-0", "owner-1", "owner-2")


def quiet(words: str) -> None:
    """Nobody listens."""


def config_on(hospitals: Path, method: str, rounds: int = 4, deadline: float = 60) -> Config:
    return config_for(
        method,
        data={"dataset": str(hospitals)},
        classifier={"rounds_c": rounds},
        federation={"deadline": deadline},
    )


@pytest.fixture(scope="module")
def coordinator(hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """A server and three owners that run while these tests do."""
    folder = tmp_path_factory.mktemp("federation") / "keep"
    with rehearsal(config_on(hospitals, "fedsage"), folder, quiet) as kit:
        yield kit


def party(coordinator: Kit, name: str) -> Kit:
    return open_kit(coordinator.path.parent / name)


def federated(
    kit: Kit,
    config: Config,
    folder: Path,
    resume: bool = False,
    on_line: Callable[[HistoryLine], None] = ignore_line,
) -> RunRecord:
    return run_into(kit, config, folder, "a test", resume, on_line, quiet)


@pytest.mark.parametrize("method", ["fedsage", "fedsage+neighgen", "fedsage+"])
def test_in_process_and_federation_give_the_same_model(
    method: str, coordinator: Kit, hospitals: Path, tmp_path: Path
) -> None:
    config = config_on(hospitals, method)
    there = federated(coordinator, config, tmp_path / "run")
    here = run_config(config, ignore_line).record
    assert there.model_sha256 == here.model_sha256
    assert there.accuracy == here.accuracy and there.accuracy["global"] is None
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"result.json", "history.jsonl", "model.json", "model.safetensors"} <= files
    for name in OWNERS:
        runs = party(coordinator, name).ours / "runs"
        newest = max(runs.iterdir(), key=lambda path: path.stat().st_mtime)
        held = {path.name for path in newest.iterdir()}
        assert {"predictions.csv", "model.safetensors", "sent.jsonl", "what-leaves.txt"} <= held
        sent = [json.loads(line) for line in (newest / "sent.jsonl").read_text().splitlines()]
        assert {one["type"] for one in sent} >= {"Joined", "ClassifierUpdate", "Hits"}


def job_process(kit: Kit) -> psutil.Process:
    """The process that a party started for the job."""
    found = process_of(kit)
    assert found is not None
    (child, *_) = [
        one for one in found.children(recursive=True) if "runner_process" in str(one.cmdline())
    ] or found.children(recursive=True)
    return child


def kill(process: psutil.Process) -> None:
    for one in [*process.children(recursive=True), process]:
        one.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("victim", ["server", "owner-1", "owner-1's job"])
def test_a_killed_party_is_started_again_and_the_run_goes_on(
    victim: str, coordinator: Kit, hospitals: Path, tmp_path: Path
) -> None:
    config = config_on(hospitals, "fedsage+neighgen", rounds=12, deadline=10)
    wanted = run_config(config, ignore_line).record.model_sha256
    kit = party(coordinator, victim.removesuffix("'s job"))
    killed = []

    def on_line(line: HistoryLine) -> None:
        if (line.phase, line.round) == ("classifier", 2) and not killed:
            found = process_of(kit)
            assert found is not None
            kill(job_process(kit) if victim.endswith("job") else found)
            killed.append(victim)

    with pytest.raises(ProtocolError, match="--resume"):
        federated(coordinator, config, tmp_path / "run", on_line=on_line)
    assert killed
    if not victim.endswith("job"):
        start(kit, None, quiet)
        await_all([kit])
        time.sleep(3)  # sites notice that their server is back
    lines: list[HistoryLine] = []
    again = federated(coordinator, config, tmp_path / "run", resume=True, on_line=lines.append)
    assert again.model_sha256 == wanted
    assert again.resumed == 1
    assert len(lines) == 12 + 3
