"""The process that writes the log: who may ask it, and what happens when it is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from fedsage.data.owned import read_owned
from fedsage.errors import StorageError
from fedsage.federation.owner.site import Site
from fedsage.federation.processes.gate import SOCKET, address, ask_gate
from fedsage.federation.processes.process_ids import lost_its_gate
from fedsage.protocol.agreement import Agreement
from fedsage.protocol.sent_log import read_chain
from fedsage.protocol.wire import encode
from tests.federation.conftest import TINY, config_for

pytestmark = pytest.mark.federation
LINE = {"procedure": "count", "type": "Hits", "bytes": 7}
ASLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def opened(folder: Path) -> subprocess.Popen[bytes]:
    """A gate, with a process that sleeps in place of NVFlare's client."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "fedsage.federation.processes.gate", str(folder), *ASLEEP]
    process = subprocess.Popen(command)
    begin = time.monotonic()
    while not (folder / "client").exists() and time.monotonic() - begin < 20:
        time.sleep(0.02)
    return process


def closed(gate: subprocess.Popen[bytes]) -> None:
    family = psutil.Process(gate.pid).children() if gate.poll() is None else []
    for one in family:
        one.kill()
    gate.kill()
    gate.wait(10)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A folder whose name is too long for a socket's address."""
    return tmp_path / ("a-long-name-" * 10) / "fedsage"


@pytest.fixture
def gate(house: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = opened(house)
    yield process
    closed(process)


def test_the_gate_answers_with_the_checksum_of_a_line_that_is_on_the_disk(
    gate: subprocess.Popen[bytes], house: Path
) -> None:
    folder = house / "runs" / "r"
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda k: ask_gate(folder, LINE | {"k": k}), range(20)))
    chain = read_chain(folder)
    assert chain.wrong is None and chain.head.lines == 20 == len(set(told))
    assert chain.head.sha256 in told and chain.num_bytes == 140
    assert (folder / "sent.jsonl").stat().st_mode & 0o777 == 0o600
    assert (house / SOCKET).stat().st_mode & 0o777 == 0o600


def test_a_job_cannot_choose_the_file_or_what_the_gate_adds(
    gate: subprocess.Popen[bytes], house: Path
) -> None:
    for run in ("..", "A b", "x" * 101):
        with pytest.raises(StorageError, match="invalid name"):
            ask_gate(house / "runs" / run, LINE)
    forged = LINE | {"before": "0" * 64, "time": "2000-01-01T00:00:00Z"}
    for line in (LINE, forged, LINE):
        ask_gate(house / "runs" / "r", line)
    assert read_chain(house / "runs" / "r").wrong is None
    assert "2000-01-01" not in (house / "runs" / "r" / "sent.jsonl").read_text()


def raw_ask(house: Path, wanted: bytes) -> bytes:
    with address(house) as path, socket.socket(socket.AF_UNIX) as talk:
        talk.settimeout(5)
        talk.connect(path)
        talk.sendall(wanted)
        return talk.makefile("rb").readline()


@pytest.mark.parametrize("wanted", [b"rubbish\n", b"[]\n", b'{"run": 3, "line": {}}\n'])
def test_what_is_no_line_is_refused_and_the_gate_goes_on(
    wanted: bytes, gate: subprocess.Popen[bytes], house: Path
) -> None:
    assert b"not a line" in raw_ask(house, wanted)
    ask_gate(house / "runs" / "r", LINE)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_gets_no_line(gate: subprocess.Popen[bytes], house: Path) -> None:
    """Also where folder and socket were opened to all."""
    house.chmod(0o777)
    code = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "talk = socket.socket(socket.AF_UNIX); os.fchdir(int(sys.argv[1]))\n"
        "talk.connect('gate.sock')\n"
        'talk.sendall(b\'{"run": "r", "line": {}}\\n\')\n'
        "print('told:', talk.recv(1000))\n"
    )
    handle = os.open(house, os.O_RDONLY)

    def attack() -> str:
        command = [sys.executable, "-c", code, str(handle)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, pass_fds=[handle]
        )
        return (done.stdout + done.stderr).splitlines()[-1]

    assert "PermissionError" in attack()
    (house / SOCKET).chmod(0o777)
    assert attack().startswith(("told: b''", "ConnectionResetError", "BrokenPipeError"))
    os.close(handle)
    assert not (house / "runs").exists()


def test_without_its_gate_nothing_leaves_an_owner_and_after_a_restart_the_chain_goes_on(
    gate: subprocess.Popen[bytes], house: Path, hospitals: Path
) -> None:
    def site() -> Site:
        owned = read_owned(hospitals / "east")
        return Site("east", owned, house / "runs", "1.0", print, policy=TINY, record=ask_gate)

    settings = config_for("fedsage").model_dump_json()
    agreement = encode(Agreement("r", 0, "1.0", settings, "{}"))
    site().answer("agree", agreement)
    gate.send_signal(signal.SIGKILL)
    gate.wait(10)
    again = site()
    with pytest.raises(StorageError, match=r"gate that writes sent\.jsonl does not answer"):
        again.answer("agree", agreement)
    assert again.door.passed == "" and read_chain(house / "runs" / "r").head.lines == 1
    psutil.Process(int((house / "client").read_text().split()[0])).kill()
    (house / "client").unlink()
    new = opened(house)
    try:
        site().answer("agree", agreement)
    finally:
        closed(new)
    chain = read_chain(house / "runs" / "r")
    assert chain.wrong is None and chain.head.lines == 2


def test_the_gate_starts_its_client_again_and_takes_it_along_when_it_is_stopped(
    house: Path,
) -> None:
    gate = opened(house)
    client = psutil.Process(int((house / "client").read_text().split()[0]))
    gate.terminate()
    gate.wait(10)
    assert not client.is_running() and not (house / SOCKET).exists()
    (house / "client").unlink()
    gate = opened(house)
    client = psutil.Process(int((house / "client").read_text().split()[0]))
    (house / "client").unlink()
    client.kill()
    begin = time.monotonic()
    while not (house / "client").exists() and time.monotonic() - begin < 20:
        time.sleep(0.02)
    again = psutil.Process(int((house / "client").read_text().split()[0]))
    assert again.pid != client.pid and again.is_running()
    gate.terminate()
    gate.wait(10)
    assert not again.is_running() and not (house / SOCKET).exists()


def test_an_owner_that_lost_its_gate_is_still_found(
    gate: subprocess.Popen[bytes], house: Path
) -> None:
    from fedsage.federation.kits.kit import Kit
    from fedsage.federation.processes import start
    from fedsage.federation.processes.process_ids import remember

    kit = Kit(house.parent, "owner", "east")
    remember(house / start.PID, gate.pid)
    assert start.pid_of(kit) == gate.pid and not lost_its_gate(kit)
    gate.kill()
    gate.wait(10)
    assert start.running(kit) and lost_its_gate(kit)
    assert start.stop(kit) and not start.running(kit) and not lost_its_gate(kit)


def test_a_party_is_found_after_its_machine_s_clock_was_set(tmp_path: Path) -> None:
    """When a process began is told from the time of boot, which moves with the clock."""
    from fedsage.federation.processes.process_ids import recall, remember

    file = tmp_path / "pid"
    remember(file, os.getpid())
    pid, created = file.read_text().split()
    for moved, found in ((0.0, True), (1.0, True), (-2.5, True), (60.0, False)):
        file.write_text(f"{pid} {float(created) + moved}")
        assert (recall(file) is not None) == found, moved
