"""Faults of disks, clocks, checkpoints, data and replies for ``benchmarks/chaos.py``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from chaos_faults import GOES_ON, REJOINS, Cause, Seen, fault
from chaos_scene import PATIENCE, Scene, family, killed, quiet
from hostile_owner import ORDER

from fedsage.federation.processes.start import start, stop

WAITS = "waits, and goes on when there is room"
WRONG_CLOCK = "LD_PRELOAD", "CLOCK_OFF"
ASKED_AGAIN, STOPS = "is asked again", "stops, says why, goes on with --resume"


def fill(disk: Path) -> Path:
    """Leave no room on a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return filler


@fault("a full disk at an owner, for 20 s", WAITS)
def full_disk(scene: Scene, name: str, seen: Seen) -> None:
    filler = fill(scene.kit("owner-1").path)
    seen.victim, begin = "owner-1", time.monotonic()
    seen.status_s = scene.waited_for("owner-1")
    time.sleep(max(0.0, 20.0 - (time.monotonic() - begin)))
    filler.unlink()
    seen.back_s = max(scene.back("owner-1"), scene.goes_on())


@fault("a full disk at the server, for 20 s", WAITS)
def full_server(scene: Scene, name: str, seen: Seen) -> None:
    filler = fill(scene.kit("server").path)
    time.sleep(20.0)
    filler.unlink()
    seen.back_s = scene.goes_on()


def resume(scene: Scene, seen: Seen, told: bool) -> None:
    """Continue a run that stopped, if it said what it should have said."""
    seen.end = "" if told else "ended otherwise"
    if scene.coordinator.ended:
        scene.coordinator.begin(resume=True)
    seen.back_s = scene.goes_on()


@fault("an owner's clock an hour ahead", REJOINS)
def clock_ahead(scene: Scene, name: str, seen: Seen) -> None:
    killed(family(scene.kit(name)))
    seen.status_s = scene.gone(name)
    os.environ.update(wrong_clock(scene, 3600))
    start(scene.kit(name), None, quiet)
    for key in WRONG_CLOCK:
        os.environ.pop(key)
    seen.back_s = scene.back(name)


@fault("an owner's clock an hour behind", "does not start, and says that its clock is wrong")
def clock_behind(scene: Scene, name: str, seen: Seen) -> None:
    """The certificate is younger than an hour, so it is not valid yet by that clock."""
    kit = scene.kit(name)
    stop(kit)
    command = [sys.executable, "-m", "fedsage", "federation", "start", str(kit.path)]
    env = os.environ | wrong_clock(scene, -3600)
    told = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    seen.end = "" if told.returncode == 2 and "clock" in told.stderr else "ended otherwise"
    start(kit, None, quiet)
    seen.back_s = scene.back(name)


def wrong_clock(scene: Scene, seconds: int) -> dict[str, str]:
    """For the environment of a process whose clock is off by so many seconds."""
    library = scene.coordinator.out.with_name("clock.so")
    if not library.exists():
        source = str(Path(__file__).with_name("clock.c"))
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True
        )
    return dict(zip(WRONG_CLOCK, (str(library), str(seconds)), strict=True))


@fault("the server restarted with a checkpoint one round old", "goes on from there")
def old_checkpoint(scene: Scene, name: str, seen: Seen) -> None:
    with_checkpoint_of(scene, 1)
    seen.back_s = scene.goes_on()


@fault("the server restarted with a checkpoint eight rounds old", STOPS)
def older_checkpoint(scene: Scene, name: str, seen: Seen) -> None:
    run, newest = scene.server_run, with_checkpoint_of(scene, 8)
    told = scene.stopped("newest copy")
    stop(scene.kit("server"))
    shutil.rmtree(run)
    shutil.move(newest, run)
    start(scene.kit("server"), None, quiet)
    resume(scene, seen, told)


def with_checkpoint_of(scene: Scene, rounds: int) -> Path:
    """Kill the server, and give it what it had some rounds ago; returns what it had now."""
    run, first = scene.server_run, scene.kept()
    old, newest = (run.parent.parent / name for name in ("old", "newest"))
    for path in (old, newest):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(run, old, ignore=shutil.ignore_patterns("*.partial"))
    begin = time.monotonic()
    while scene.kept() < first + rounds and time.monotonic() - begin < PATIENCE:
        time.sleep(0.005)
    killed(family(scene.kit("server")))
    shutil.move(run, newest)
    shutil.move(old, run)
    start(scene.kit("server"), None, quiet)
    return newest


@fault("an owner with other data than agreed", STOPS)
def other_data(scene: Scene, name: str, seen: Seen) -> None:
    kit, file = scene.kit(name), scene.data(name) / "graph.npz"
    agreed = file.read_bytes()
    stop(kit)
    with np.load(file) as held:
        arrays = dict(held)
    column = "x_data" if "x_data" in arrays else "x"
    arrays[column] = arrays[column] + 1
    np.savez(file, **arrays)
    start(kit, None, quiet)
    told = scene.stopped("data")
    file.write_bytes(agreed)
    stop(kit)
    start(kit, None, quiet)
    resume(scene, seen, told)


def hostile(how: str) -> Cause:
    """An owner sends one reply otherwise."""

    def send(scene: Scene, name: str, seen: Seen) -> None:
        order = scene.kit(name).ours / ORDER
        order.write_text(how)
        sent = scene.until(lambda: not order.exists())
        seen.back_s = max(sent, scene.goes_on())

    return send


fault("a reply replayed", ASKED_AGAIN)(hostile("replayed"))
fault("a reply duplicated", GOES_ON)(hostile("duplicated"))
fault("a reply cut short", ASKED_AGAIN)(hostile("cut short"))
fault("a reply of 80 MB more", ASKED_AGAIN)(hostile("too large"))
