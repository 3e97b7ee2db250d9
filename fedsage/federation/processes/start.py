"""Start, stop and watch the process of one party."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from fedsage.errors import ConfigError, DataError, FedSageError
from fedsage.federation.consent.policy import read_policy
from fedsage.federation.kits.certificates import check_certificate, ending_soon
from fedsage.federation.kits.kit import OWNER, Kit, federation_of
from fedsage.federation.kits.make import close_inside, settle_in
from fedsage.federation.processes.log import DIARY, note
from fedsage.federation.processes.process_ids import (
    CLIENT,
    PID,
    pid_of,
    process_of,
    remember,
    running,
)
from fedsage.federation.status.status import GONE, STATUS, stored
from fedsage.files import write_json

LOG = "process.log"  # what its processes print
PATIENCE = 60.0  # seconds for a party to get ready
LAUNCHED: list[subprocess.Popen[bytes]] = []  # by this process; they outlive it


class NotYet(FedSageError):
    """A party runs, but does not see the server."""


def start(kit: Kit, data: Path | None, tell: Callable[[str], None], wait: bool = True) -> int:
    """Start a party's process, and wait until it is ready; returns its process id.

    An owner's policy and data are checked first, and its kit remembers where the data is.
    """
    if kit.role == "coordinator":
        raise ConfigError(
            "A coordinator's kit needs no process. Use it with 'fedsage federation run --kit'."
        )
    if running(kit):
        raise ConfigError(f"{kit.name} is already running (process {pid_of(kit)}).")
    check_certificate(kit)
    if words := ending_soon(kit):
        tell(f"Warning: {words}")
    if kit.role == "owner":
        read_policy(kit.path)
        check_data(kit, data, tell)
    else:
        check_port(federation_of(kit)["port"])
    settle_in(kit)
    close_inside(kit)
    return launch(kit, tell, wait)


def check_data(kit: Kit, data: Path | None, tell: Callable[[str], None]) -> None:
    """Read the owner's data, which must be valid before it joins."""
    from fedsage.data.concerns import concerns_of  # takes seconds; the server has no data
    from fedsage.data.owned import read_owned

    file = kit.ours / OWNER
    if data is None and not file.exists():
        raise ConfigError("This kit does not know its data yet: add --data FOLDER.")
    place = data.resolve() if data else Path(json.loads(file.read_text())["data"])
    owned = read_owned(place)
    labelled = int((owned.y >= 0).sum())
    if not labelled:
        raise DataError(f"{place}: no node has a label, so there is nothing to train on.")
    write_json(file, {"data": str(place)})
    tell(f"{kit.name}: {owned.num_nodes:,} nodes, {labelled:,} of them with a label")
    for words in concerns_of({kit.name: owned}):
        tell(f"Warning: {words}")


def check_port(port: int) -> None:
    """Refuse a port that another process listens on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ConfigError(
                f"Port {port} cannot be used ({error.strerror}). Stop what uses it, or make "
                "kits with another port."
            ) from None


def launch(kit: Kit, tell: Callable[[str], None], wait: bool) -> int:
    """Start the process itself, which outlives this one."""
    side = "nvflare.private.fed.app.server.server_train"
    config, who = "fed_server.json", []
    if kit.role == "owner":
        side = "fedsage.federation.processes.client"
        config, who = "fed_client.json", [f"uid={kit.name}"]
    command = [
        sys.executable, "-u", "-m", side, "-m", str(kit.path), "-s", config, "--set",
        "secure_train=true", *who, "org=fedsage", "config_folder=config",
    ]  # fmt: skip
    if kit.role == "owner":
        gate = [sys.executable, "-u", "-m", "fedsage.federation.processes.gate", str(kit.ours)]
        command = gate + command
    for stale in (kit.path / "shutdown.fl", kit.path / "restart.fl", kit.ours / STATUS):
        stale.unlink(missing_ok=True)
    (kit.path / "transfer").mkdir(exist_ok=True)
    kit.ours.mkdir(exist_ok=True)
    with (kit.ours / LOG).open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            cwd=kit.path, start_new_session=True,
        )  # fmt: skip
    LAUNCHED.append(process)
    note(kit.ours, f"Started (process {process.pid}).")
    remember(kit.ours / PID, process.pid)
    if wait:
        try:
            await_all([kit])
        except NotYet as words:
            if kit.role == "server":
                raise
            tell(str(words))
            return process.pid
        tell(f"{kit.name} is running (process {process.pid}); its log is {kit.ours / DIARY}")
    return process.pid


def await_all(kits: Sequence[Kit]) -> None:
    """Wait until all of them see the server."""
    begin = time.monotonic()
    for kit in kits:
        await_ready(kit, begin)


def await_ready(kit: Kit, begin: float) -> None:
    """Wait until a party sees the server; an owner may wait for it longer than we do."""
    while stored(kit.ours)[1] > GONE:
        if not running(kit):
            text = (kit.ours / LOG).read_text(errors="replace")
            last = [line for line in text.splitlines() if line.strip()][-1:]
            raise FedSageError(
                f"{kit.name} stopped at once: {last[0] if last else 'it wrote nothing'}. Its "
                f"log is {kit.ours / LOG}"
            )
        if time.monotonic() - begin > PATIENCE:
            where = federation_of(kit)["server"]
            raise NotYet(
                f"{kit.name} runs, but has not seen the server at {where} yet. It keeps trying "
                "until you stop it. Is the server running, and can it be reached from here? "
                f"'fedsage federation status {kit.path}' shows when it is there."
            )
        time.sleep(0.1)


def stop(kit: Kit) -> bool:
    """End a party's process and the jobs it started; returns whether there was one."""
    found = process_of(kit)
    if found is None:
        return False
    note(kit.ours, "Stopped.")
    family = [*found.children(recursive=True), found]
    for one in family:
        send(one, signal.SIGTERM)
    _, left = psutil.wait_procs(family, timeout=5)
    for one in left:
        send(one, signal.SIGKILL)
    psutil.wait_procs(left, timeout=5)
    for one in LAUNCHED:
        one.poll()
    for name in (PID, CLIENT):
        (kit.ours / name).unlink(missing_ok=True)
    return True


def send(process: psutil.Process, what: signal.Signals) -> None:
    """Send a signal, unless the process is gone."""
    try:
        os.kill(process.pid, what)
    except ProcessLookupError:
        pass
