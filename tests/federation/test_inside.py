"""Who can join a party as one of its own jobs: holders of its certificate, and nobody else."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fedsage.federation.coordinator.rehearse import free_port
from fedsage.federation.kits.kit import Kit
from fedsage.federation.kits.make import make_kits
from fedsage.federation.processes.process_ids import process_of
from fedsage.federation.processes.start import start, stop
from fedsage.files import write_json

pytestmark = pytest.mark.federation
pytest.importorskip("nvflare")
ROOT = Path(__file__).parents[2]
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
OPEN = {"internal": {"scheme": "tcp", "resources": {"host": "localhost"}}}


def quiet(words: str) -> None:
    """Nobody listens."""


@pytest.fixture(scope="module")
def kits(hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Kit]]:
    """A server and an owner that run; each was sent a job that asks for an open listener."""
    out, port = tmp_path_factory.mktemp("inside") / "kits", free_port()
    made = {kit.name: kit for kit in make_kits(f"localhost:{port}", ["east", "north"], out)}
    parties = [made["server"], made["east"]]
    for kit in parties:
        write_json(kit.path / "0-a-job" / "app" / "config" / "comm_config.json", OPEN)
    try:
        start(made["server"], None, quiet)
        start(made["east"], hospitals / "east", quiet)
        yield made
    finally:
        for kit in parties:
            stop(kit)


def inner_port(kit: Kit, outer: int) -> int:
    """Where the party listens for its own jobs."""
    found = process_of(kit)
    assert found is not None
    family = [found, *found.children(recursive=True)]
    listening = [one for each in family for one in each.net_connections("tcp")]
    (port,) = {
        one.laddr.port
        for one in listening
        if one.status == "LISTEN" and one.laddr.port != outer
    }
    assert {one.laddr.ip for one in listening if one.laddr.port == port} == {"127.0.0.1"}
    return int(port)


def port_of(kits: dict[str, Kit], name: str) -> int:
    about = json.loads((kits[name].ours / "federation.json").read_text())
    return inner_port(kits[name], about["port"])


def intrude(
    port: int, party: str, scheme: str, shown: Sequence[Path] = (), user: Sequence[str] = ()
) -> dict[str, Any]:
    """What became of a process that asked to be let in."""
    command = [
        *user, sys.executable, "-m", "tests.federation.intruder",
        f"{scheme}://localhost:{port}", party, *map(str, shown),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def certificate(kit: Kit) -> list[Path]:
    """Certificate, key and authority of a party."""
    name = "server" if kit.role == "server" else "client"
    return [
        kit.path / "startup" / file for file in (f"{name}.crt", f"{name}.key", "rootCA.pem")
    ]


@pytest.mark.parametrize("party", ["east", "server"])
def test_nobody_joins_as_a_job_without_the_party_s_own_certificate(
    party: str, kits: dict[str, Kit], tmp_path: Path
) -> None:
    port = port_of(kits, party)
    foreign = make_kits("localhost:8102", ["east"], tmp_path / "foreign")
    (theirs,) = [
        kit for kit in foreign if kit.role == ("server" if party == "server" else "owner")
    ]
    attacks: dict[str, tuple[str, list[Path]]] = {
        "in the clear": ("tcp", []),
        "without a certificate": ("stcp", []),
        "as another owner": ("stcp", certificate(kits["north"])),
        "as the coordinator": ("stcp", certificate(kits["coordinator"])),
        "by the same name of another authority": ("stcp", certificate(theirs)),
    }
    with ThreadPoolExecutor(len(attacks)) as pool:
        found = dict(zip(
            attacks, pool.map(lambda one: intrude(port, party, *one), attacks.values()),
            strict=True,
        ))  # fmt: skip
    assert found == {name: {"joined": False} for name in attacks}


@pytest.mark.parametrize("party", ["east", "server"])
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_another_user_of_the_machine_does_not_join(party: str, kits: dict[str, Kit]) -> None:
    port = port_of(kits, party)
    for scheme in ("tcp", "stcp"):
        assert intrude(port, party, scheme, user=NOBODY) == {"joined": False}
    key = certificate(kits[party])[1]
    read = subprocess.run([*NOBODY, "cat", str(key)], capture_output=True, check=False)
    assert read.returncode != 0 and not read.stdout


def test_the_owner_s_own_jobs_join_also_while_somebody_says_nothing(
    kits: dict[str, Kit],
) -> None:
    """The same intruder with the right certificate, so that the attacks above are real."""
    port = port_of(kits, "east")
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    found = intrude(port, "east", "stcp", certificate(kits["east"]))
    for one in silent:
        one.close()
    assert found["joined"] and "Process ID" in found["told"]
