"""Faults of processes and links for ``benchmarks/chaos.py``, and what should follow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import psutil
from chaos_scene import (
    FAST,
    Coordinator,
    Scene,
    family,
    frozen,
    jobs_of,
    killed,
    quiet,
)
from links import Link

from fedsage.federation.processes.process_ids import process_of
from fedsage.federation.processes.start import start, stop

REJOINS, GOES_ON, NEW_JOB = "rejoins by itself", "goes on", "goes on as a new job"


@dataclass
class Seen:
    """One fault, and what came of it."""

    fault: str
    victim: str
    expected: str
    status_s: float | None = None  # until another owner's status told of it
    back_s: float | None = None  # from being up again until the first answer in the run
    end: str = ""
    round: int = 0
    load: float = 0.0


Cause: TypeAlias = Callable[[Scene, str, Seen], None]
CASES: dict[str, tuple[Cause, str]] = {}
PARTS = ("server", "coordinator")  # whoever a fault names; otherwise its victim is an owner


def fault(name: str, expected: str) -> Callable[[Cause], Cause]:
    """Register a fault with its expected end."""

    def keep(cause: Cause) -> Cause:
        CASES[name] = cause, expected
        return cause

    return keep


@fault("kill -9 of an owner", REJOINS)
def kill_owner(scene: Scene, name: str, seen: Seen) -> None:
    killed(family(scene.kit(name)))
    seen.status_s = scene.gone(name)
    start(scene.kit(name), None, quiet)
    seen.back_s = scene.back(name)


@fault("stop and start of an owner", REJOINS)
def stop_owner(scene: Scene, name: str, seen: Seen) -> None:
    stop(scene.kit(name))
    seen.status_s = scene.gone(name)
    start(scene.kit(name), None, quiet)
    seen.back_s = scene.back(name)


@fault("kill -9 of an owner's process of the run", REJOINS)
def kill_job(scene: Scene, name: str, seen: Seen) -> None:
    killed(jobs_of(scene.kit(name)))
    seen.status_s = scene.gone(name)
    seen.back_s = scene.back(name)


@fault("kill -9 of an owner's client", REJOINS)
def kill_client(scene: Scene, name: str, seen: Seen) -> None:
    """The gate, which stays, starts it again."""
    gate = process_of(scene.kit(name))
    killed([one for one in family(scene.kit(name)) if gate is None or one.pid != gate.pid])
    seen.status_s = scene.gone(name)
    seen.back_s = scene.back(name)


def freeze_until_noticed(
    scene: Scene,
    name: str,
    seen: Seen,
    what: list[psutil.Process],
    notice: Callable[[str], float],
) -> None:
    """Freeze an owner's processes for 20 s in all, and time the status and the return."""

    def told() -> float:
        seen.status_s = notice(name)
        return 20.0 - seen.status_s

    frozen(what, told)
    seen.back_s = scene.back(name)


@fault("an owner frozen for 20 s (SIGSTOP)", REJOINS)
def freeze(scene: Scene, name: str, seen: Seen) -> None:
    freeze_until_noticed(scene, name, seen, family(scene.kit(name)), scene.gone)


@fault("an owner's process of the run frozen for 20 s", GOES_ON)
def freeze_job(scene: Scene, name: str, seen: Seen) -> None:
    freeze_until_noticed(scene, name, seen, jobs_of(scene.kit(name)), scene.waited_for)


@fault("kill -9 of the server", NEW_JOB)
def kill_server(scene: Scene, name: str, seen: Seen) -> None:
    killed(family(scene.kit("server")))
    seen.status_s = scene.until(lambda: scene.status().server != "up", 20.0)
    start(scene.kit("server"), None, quiet)
    seen.back_s = scene.goes_on()


@fault("stop and start of the server", NEW_JOB)
def stop_server(scene: Scene, name: str, seen: Seen) -> None:
    stop(scene.kit("server"))
    seen.status_s = scene.until(lambda: scene.status().server != "up", 20.0)
    start(scene.kit("server"), None, quiet)
    seen.back_s = scene.goes_on()


@fault("kill -9 of the server's process of the run", NEW_JOB)
def kill_server_job(scene: Scene, name: str, seen: Seen) -> None:
    killed(jobs_of(scene.kit("server")))
    seen.status_s = scene.until(lambda: scene.status().run is None, 20.0)
    seen.back_s = scene.goes_on()


@fault("the server frozen for 10 s (SIGSTOP)", GOES_ON)
def freeze_server(scene: Scene, name: str, seen: Seen) -> None:
    def told() -> float:
        seen.status_s = scene.until(lambda: scene.status().server != "up", 20.0)
        return 10.0 - seen.status_s

    frozen(family(scene.kit("server")), told)
    seen.back_s = scene.goes_on()


@fault("kill -9 of the coordinator's command", "goes on; --resume follows it")
def kill_coordinator(scene: Scene, name: str, seen: Seen) -> None:
    scene.coordinator.end()
    first = scene.kept()
    seen.back_s = scene.until(lambda: scene.kept() > first)
    scene.coordinator.begin(resume=True)


@fault("a second coordinator submits a run", "the second run waits, and says so")
def second_run(scene: Scene, name: str, seen: Seen) -> None:
    """It is looked at again when the first run is over."""
    one = scene.coordinator
    settings = [*one.settings, "--seed", "1", "--set", "classifier.rounds_c=2"]
    scene.second = scene.second or Coordinator(one.kit, settings, one.out.with_name("second"))
    if scene.second.process is None:
        scene.second.begin()
    seen.status_s = None
    said = scene.until(lambda: "begins when" in scene.second.words)  # type: ignore[union-attr]
    seen.back_s = max(said, scene.goes_on())


def cut(scene: Scene, name: str, seen: Seen, seconds: float) -> None:
    """Nothing passes between an owner and the server."""
    link = scene.proxies[name].link
    link.cut = True
    seen.status_s = scene.gone(name)
    time.sleep(max(0.0, seconds - seen.status_s))
    link.cut = False
    seen.back_s = scene.back(name)


@fault("a cut of 60 s", REJOINS)
def long_cut(scene: Scene, name: str, seen: Seen) -> None:
    cut(scene, name, seen, 60.0)


@fault("a cut of 8 s", GOES_ON)
def short_cut(scene: Scene, name: str, seen: Seen) -> None:
    cut(scene, name, seen, 8.0)


def bad_link(change: Callable[[Link], None]) -> Cause:
    """An owner's link is bad for five rounds."""

    def worse(scene: Scene, name: str, seen: Seen) -> None:
        link = scene.proxies[name].link
        change(link)
        seen.back_s = scene.goes_on(5)
        link.latency, link.loss = 0.0, 0.0
        link.limit(FAST)

    return worse


def slow(link: Link) -> None:
    link.latency = 0.5


def lossy(link: Link) -> None:
    link.loss = 0.05


fault("500 ms delay each way", GOES_ON)(bad_link(slow))
fault("5% of chunks sent again", GOES_ON)(bad_link(lossy))
fault("100 kB/s", GOES_ON)(bad_link(lambda link: link.limit(0.8)))
