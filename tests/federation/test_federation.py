"""Real processes with mutual TLS on loopback: one truth, and kills that it survives."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from fedsage.cli.main import exit_code
from fedsage.config import Config, PrivacyConfig
from fedsage.errors import ProtocolError
from fedsage.federation.before_training.earlier_run import with_checksum
from fedsage.federation.consent.own_files import allow
from fedsage.federation.coordinator.rehearse import rehearsal
from fedsage.federation.coordinator.run_folder import federated_run
from fedsage.federation.kits.kit import Kit, open_kit
from fedsage.federation.owner.site import BEFORE
from fedsage.federation.owner.verify import verified
from fedsage.federation.processes.process_ids import lost_its_gate, process_of
from fedsage.federation.processes.start import start, stop
from fedsage.runs.events import HistoryLine
from fedsage.runs.execute import run_config
from fedsage.runs.record import RunRecord
from fedsage.runs.result import load_result
from fedsage.runs.run import run_into
from tests.federation.conftest import NAMES, config_for

pytestmark = pytest.mark.federation
pytest.importorskip("nvflare")
OWNERS = NAMES  # as their folders are called


def quiet(words: str) -> None:
    """Nobody listens."""


def config_on(hospitals: Path, method: str, rounds: int = 4, deadline: float = 60) -> Config:
    return config_for(
        method,
        data={"dataset": str(hospitals)},
        classifier={"rounds_c": rounds},
        federation={"deadline": deadline, "wait": 120},
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
    on_line: Callable[[HistoryLine], None] = lambda line: None,
) -> RunRecord:
    return federated_run(kit, config, folder, "a test", resume, on_line, quiet)


@pytest.fixture(scope="module")
def may(coordinator: Kit, hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedSage between processes (``run``) and in one (``here``)."""
    folder, config = tmp_path_factory.mktemp("may"), config_on(hospitals, "fedsage")
    federated(coordinator, config, folder / "run")
    run_into(config, folder / "here")
    return folder


def test_in_process_and_federation_give_the_same_model_and_answers(
    may: Path, coordinator: Kit, hospitals: Path
) -> None:
    """FedSage here; FedSage+ in the tests below, also with kills between."""
    there, here = (load_result(may / name).record for name in ("run", "here"))
    assert there.model_sha256 == here.model_sha256
    assert there.accuracy == here.accuracy and there.accuracy["global"] is None
    files = {path.name for path in (may / "run").iterdir()}
    assert {"result.json", "history.jsonl", "model.json", "model.safetensors"} <= files
    for name in OWNERS:
        folder = newest_run(coordinator, name)
        held = {path.name for path in folder.iterdir()}
        assert {"predictions.csv", "model.safetensors", "sent.jsonl", "what-leaves.txt"} <= held
        sent = [json.loads(line) for line in (folder / "sent.jsonl").read_text().splitlines()]
        assert {one["type"] for one in sent} >= {"Joined", "Change", "Hits"}
        before, log = verified(party(coordinator, name))
        assert before.run == BEFORE and before.wrong is None and before.lines > 0
        assert log.wrong is None and log.lines == len(sent) and log.note is None
        assert log.bytes == sum(one.get("bytes", 0) for one in sent) > 0
    check_answers(coordinator, hospitals, may / "here")


def test_hidden_sums_between_processes_give_the_same_model_and_answers(
    coordinator: Kit, hospitals: Path, tmp_path: Path
) -> None:
    config = config_on(hospitals, "fedsage+subspace")
    sums = config.model_copy(update={"privacy": PrivacyConfig(level="sums")})
    there = federated(coordinator, sums, tmp_path / "run")
    here = run_into(config, tmp_path / "here")
    assert there.model_sha256 == here.record.model_sha256
    assert there.privacy["level"] == "sums"
    assert all(line.local is None for line in there.per_owner)
    assert there.temperature == here.record.temperature and there.slope == here.record.slope
    assert there.macro_f1 == pytest.approx(here.record.macro_f1)
    assert there.calibration_error == pytest.approx(here.record.calibration_error)
    assert there.per_class is not None and there.confusion_local is not None
    assert not any(cell in range(1, 8) for row in there.confusion_local for cell in row)
    check_answers(coordinator, hospitals, tmp_path / "here")


def newest_run(coordinator: Kit, name: str) -> Path:
    ended = (party(coordinator, name).ours / "runs").glob("*/queries.json")
    return max(ended, key=lambda file: file.stat().st_mtime).parent


def check_answers(coordinator: Kit, hospitals: Path, here: Path) -> None:
    """``fedsage predict`` at every owner gives its predictions.csv, row by row."""
    names = sorted(folder.name for folder in hospitals.iterdir())
    for owner, name in zip(OWNERS, names, strict=True):
        folder = newest_run(coordinator, owner)
        wanted = (folder / "predictions.csv").read_text()
        for data in ([], ["--data", str(hospitals / name)]):
            out = here / f"{name}.csv"
            words = ["predict", "--model", str(folder), *data, "--out", str(out)]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", ["fedsage", *words])
                assert exit_code() == 0
            assert out.read_text() == wanted
        assert (here / "owners" / name / "predictions.csv").read_text() == wanted


# FedSage and subspace above, copies and links in test_serve.py and test_known_links.py
@pytest.mark.parametrize(
    "method", [f"fedsage+{way}" for way in ("neighgen", "classes", "shared")]
)
def test_every_owner_can_repeat_the_answers_of_the_run(
    method: str, coordinator: Kit, hospitals: Path, tmp_path: Path
) -> None:
    config = config_on(hospitals, method)
    federated(coordinator, config, tmp_path / "run")
    run_into(config, tmp_path / "here")
    check_answers(coordinator, hospitals, tmp_path / "here")


def test_next_month_begins_with_what_every_party_kept(
    may: Path, coordinator: Kit, hospitals: Path, tmp_path: Path
) -> None:
    config = config_on(hospitals, "fedsage")

    def after(folder: Path) -> Config:
        run = config.run.model_copy(update={"start_from": str(folder)})
        return config.model_copy(update={"run": run})

    there = federated(coordinator, with_checksum(after(may / "run")), tmp_path / "june")
    here = run_config(after(may / "here")).record
    assert there.model_sha256 == here.model_sha256
    assert there.accuracy_before == here.accuracy_before is not None


def job_process(kit: Kit) -> psutil.Process:
    """The process that a party started for the job."""
    found = process_of(kit)
    assert found is not None
    (child, *_) = [
        one
        for one in found.children(recursive=True)
        if any(name in str(one.cmdline()) for name in ("runner_process", "worker_process"))
    ]
    return child


def kill(process: psutil.Process) -> None:
    family = [*process.children(recursive=True), process]
    for one in family:
        one.send_signal(signal.SIGKILL)
    psutil.wait_procs(family, timeout=10)


def disturb(coordinator: Kit, victims: dict[int, str]) -> None:
    """Kill parties, or their jobs alone, when the server has kept a round; start them again.

    The server's own files are watched: the coordinator looks once a second, and a run of small
    graphs may be over by then.
    """
    server = party(coordinator, "server")
    for t, victim in victims.items():
        while not any(int(path.stem[-5:]) >= t for path in server.path.rglob(KEPT_ROUNDS)):
            time.sleep(0.005)
        kit, job = party(coordinator, victim.removesuffix("'s job")), victim.endswith("job")
        found = process_of(kit)
        assert found is not None
        kill(job_process(kit) if job else found)
        if not job:
            start(kit, None, quiet)


KEPT_ROUNDS = "server-training-*.state"
VICTIMS = {2: "north's job", 20: "north", 50: "server"}  # by the round they are killed in
ROUNDS = 80


def test_killed_parties_that_are_started_again_rejoin_and_the_model_is_the_same(
    coordinator: Kit, hospitals: Path, tmp_path: Path
) -> None:
    config = config_on(hospitals, "fedsage+neighgen", rounds=ROUNDS, deadline=30)
    wanted = run_config(config).record.model_sha256
    for path in party(coordinator, "server").path.rglob(KEPT_ROUNDS):
        path.unlink()  # of the test above
    lines: list[HistoryLine] = []
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(disturb, coordinator, VICTIMS)
        found = federated(coordinator, config, tmp_path / "run", on_line=lines.append)
        killing.result()
    assert found.model_sha256 == wanted
    assert found.resumed >= len(VICTIMS)
    assert [line.round for line in lines if line.phase == "training"] == list(range(ROUNDS))
    assert not any(line.without for line in lines)  # the run waited, as all owners are needed
    for name in OWNERS:  # the chain went on after every kill
        assert all(log.wrong is None for log in verified(party(coordinator, name)))


def test_an_owner_without_its_gate_sends_nothing_says_so_and_is_waited_for(
    coordinator: Kit, hospitals: Path, tmp_path: Path
) -> None:
    config, kit = config_on(hospitals, "fedsage"), party(coordinator, "north")
    before = {log.run: log.lines for log in verified(kit)}
    gate = process_of(kit)
    assert gate is not None and "fedsage.federation.processes.gate" in gate.cmdline()
    gate.kill()
    gate.wait(10)
    assert lost_its_gate(kit)
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        about = coordinator, config, tmp_path / "run", "a test", False
        going = pool.submit(federated_run, *about, lambda line: None, said.append)
        while not any("north: " in one and "gate that writes sent" in one for one in said):
            assert not going.done()
            time.sleep(0.1)
        assert {log.run: log.lines for log in verified(kit)} == before
        assert stop(kit)
        start(kit, None, quiet)
        there = going.result()
    assert there.model_sha256 == run_config(config).record.model_sha256
    assert all(log.wrong is None for log in verified(kit))


def test_a_way_of_one_s_own_runs_where_every_party_allowed_it(
    coordinator: Kit, hospitals: Path, tmp_path: Path
) -> None:
    file = Path(__file__).parents[2] / "examples" / "my_mending.py"
    config = config_on(hospitals, f"fedsage+{file}")
    parties = [party(coordinator, name) for name in ("server", *OWNERS)]
    for kit in parties[:-1]:
        allow(file, kit.ours)
    with pytest.raises(ProtocolError, match=r"west.*my_mending\.py .* is not allowed here"):
        federated(coordinator, config, tmp_path / "refused")
    allow(file, parties[-1].ours)
    there = federated(coordinator, config, tmp_path / "run")
    assert there.model_sha256 == run_config(config).record.model_sha256
    assert there.method == "fedsage+class-means" and there.bytes["mending"]["up"] > 0
    sent = [path.read_text() for path in parties[1].ours.glob("runs/my-mending-*/sent.jsonl")]
    assert any("ClassSums" in text for text in sent)
