"""A federation of real processes to be disturbed: its parties, its run, and what they show."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from hostile_owner import make_hostile
from links import Link, Network, Proxy, connect_to

from fedsage.federation.kits.kit import OWNER, Kit, federation_of, open_kit
from fedsage.federation.processes.process_ids import process_of
from fedsage.federation.status.from_kit import seen_here
from fedsage.federation.status.status import Status

FAST = 1000.0  # Mbit/s of a link that nobody disturbs
PATIENCE = 240.0  # seconds after which something hangs
ROOM = 256  # megabytes of the disk of a party whose disk is filled
HERE = Path(__file__).parent


def quiet(words: str) -> None:
    """Nobody listens."""


class Coordinator:
    """``fedsage federation run`` as a process of its own, again and again if need be."""

    def __init__(self, kit: Kit, settings: Sequence[str], out: Path) -> None:
        self.kit, self.settings, self.out = kit, settings, out
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self, resume: bool = False) -> None:
        """Start the command."""
        words = ["federation", "run", "--kit", str(self.kit.path), "--out", str(self.out)]
        words += ["--json", *(["--resume"] if resume else self.settings)]
        with self.file("out").open("wb") as out, self.file("log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fedsage", *words], stdout=out, stderr=log
            )

    def file(self, kind: str) -> Path:
        """Where the command's output goes."""
        return self.out.with_suffix(f".{kind}")

    @property
    def ended(self) -> bool:
        """Whether the command is over."""
        return self.process is None or self.process.poll() is not None

    @property
    def words(self) -> str:
        """What it said on stderr so far."""
        return self.file("log").read_text(errors="replace")

    def model(self) -> str | None:
        """The checksum of the model in its result."""
        try:
            return str(json.loads(self.file("out").read_text())["model_sha256"])
        except (ValueError, KeyError):
            return None

    def end(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass
class Scene:
    """A federation with a run in it."""

    coordinator: Coordinator
    proxies: dict[str, Proxy]
    second: Coordinator | None = None  # another run, submitted while the first one goes on

    def kit(self, name: str) -> Kit:
        """A party's kit."""
        return open_kit(self.coordinator.kit.path.parent / name)

    @property
    def run_name(self) -> str:
        """The run's name, as all parties know it; the first one at the server."""
        folders = [path for path in (self.kit("server").ours / "runs").iterdir()]
        return min(folders, key=lambda path: path.name.split("-", 1)[1]).name

    @property
    def server_run(self) -> Path:
        """The server's folder of the run."""
        return self.kit("server").ours / "runs" / self.run_name

    def kept(self) -> int:
        """How many rounds of training the server has kept."""
        found = self.server_run.glob("server-training-*.state")
        return max((int(path.stem[-5:]) for path in found), default=0)

    def data(self, name: str) -> Path:
        """An owner's data."""
        return Path(json.loads((self.kit(name).ours / OWNER).read_text())["data"])

    def status(self, but: str = "") -> Status:
        """The federation as an owner other than ``but`` sees it."""
        others = [name for name in self.proxies if name != but]
        return seen_here(self.kit(others[0]))

    def until(self, true: Callable[[], bool], patience: float = PATIENCE) -> float:
        """Seconds until something is true; infinite if it does not become so."""
        begin = time.monotonic()
        while not true():
            if time.monotonic() - begin > patience:
                return float("inf")
            time.sleep(0.05)
        return time.monotonic() - begin

    def gone(self, name: str, patience: float = 20.0) -> float:
        """Seconds until a status tells that an owner is not at work."""

        def told() -> bool:
            one = self.status(name).owners.get(name)
            return one is not None and not (one.connected and one.working)

        return self.until(told, patience)

    def waited_for(self, name: str, patience: float = 20.0) -> float:
        """Seconds until a status tells that an owner is waited for."""
        return self.until(lambda: name in self.status(name).waiting_for, patience)

    def back(self, name: str) -> float:
        """Seconds until an owner answers in the run again, or the run is over."""

        def told() -> bool:
            found = self.status(name)
            one = found.owners.get(name)
            at_work = bool(one and one.in_run and one.working and not found.waiting_for)
            return at_work or self.coordinator.ended

        return self.until(told)

    def goes_on(self, rounds: int = 1) -> float:
        """Seconds until the server has kept so many rounds more, or the run is over."""
        first = self.kept()
        return self.until(lambda: self.coordinator.ended or self.kept() >= first + rounds)

    def stopped(self, word: str) -> bool:
        """Whether the run stops, says why with this word, and how to go on."""
        self.until(lambda: self.coordinator.ended)
        last = self.coordinator.words.strip().splitlines()[-1:] or [""]
        return self.coordinator.ended and word in last[0] and "--resume" in last[0]


def family(kit: Kit) -> list[psutil.Process]:
    """A party's process and all it started."""
    found = process_of(kit)
    return [] if found is None else [*found.children(recursive=True), found]


def jobs_of(kit: Kit) -> list[psutil.Process]:
    """A party's process of the run."""
    names = "worker_process", "runner_process"
    return [one for one in family(kit) if any(name in str(one.cmdline()) for name in names)]


def killed(processes: Sequence[psutil.Process]) -> None:
    """Signal 9."""
    for one in processes:
        one.kill()
    psutil.wait_procs(processes, timeout=10)


def frozen(processes: Sequence[psutil.Process], seconds: Callable[[], float]) -> None:
    """Let processes stand still for as long as ``seconds`` says once they do."""
    for one in processes:
        one.send_signal(signal.SIGSTOP)
    time.sleep(max(0.0, seconds()))
    for one in processes:
        one.send_signal(signal.SIGCONT)


class Disks:
    """Small disks for kits, if this user may mount some."""

    def __init__(self) -> None:
        self.mounted: list[Path] = []

    def give(self, kit: Kit) -> None:
        """Move a kit to a disk of its own."""
        aside = kit.path.with_name(f"{kit.path.name}.aside")
        shutil.move(kit.path, aside)
        kit.path.mkdir()
        about = ["-t", "tmpfs", "-o", f"size={ROOM}m,mode=700", "none"]
        if os.geteuid() == 0 and not subprocess.run(["mount", *about, kit.path]).returncode:
            self.mounted.append(kit.path)
        shutil.copytree(aside, kit.path, dirs_exist_ok=True)
        shutil.rmtree(aside)

    def end(self) -> None:
        """Take them away again."""
        for path in self.mounted:
            subprocess.run(["umount", "-l", path], check=False)


def prepared(
    network: Network, proxies: dict[str, Proxy], disks: Disks
) -> Callable[[Kit], None]:
    """For ``rehearsal``: every owner connects to a proxy, and may be told to misbehave."""

    def prepare(kit: Kit) -> None:
        if kit.name in ("server", "owner-1"):
            disks.give(kit)
        if kit.role != "owner":
            return
        proxies[kit.name] = network.proxy(Link(FAST), federation_of(kit)["port"])
        connect_to(proxies[kit.name], kit.path)
        make_hostile(kit)

    return prepare
