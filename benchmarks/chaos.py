"""Break real federations in many ways, and see that every run ends as it should.

    python benchmarks/chaos.py                       # every case once, three owners
    python benchmarks/chaos.py --random 40 --owners 10 --seed 1

Server and owners are processes of their own with mutual TLS; owners reach the server through a
proxy on loopback that can delay, lose, throttle and cut. One run is disturbed again and again,
and waits for everyone it needs, so its model must be that of an undisturbed run, bit for bit.
The first form writes ``docs/results/chaos.json`` and the table in docs/reliability.md, the
second ``docs/results/chaos-OWNERS.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from links import Link, Network, Proxy, connect_to

from fedsage.config import Config, load_config
from fedsage.federation.kit import Kit, federation_of, open_kit
from fedsage.federation.look import seen_here
from fedsage.federation.operate import start, stop
from fedsage.federation.policy import POLICY
from fedsage.federation.processes import process_of
from fedsage.federation.rehearse import rehearsal
from fedsage.federation.rundir import run_into
from fedsage.federation.status import Status
from fedsage.files import write_atomically, write_json
from fedsage.machine import commit, machine, versions
from fedsage.runs.events import HistoryLine
from fedsage.runs.execute import run_config

DOCS = Path(__file__).parent.parent / "docs"
FAST = 1000.0  # Mbit/s of a link that nobody disturbs
PATIENCE = 240.0  # seconds after which a run hangs
STEP = 2  # rounds between two faults


def quiet(words: str) -> None:
    """Nobody listens."""


@dataclass
class Seen:
    """One fault, and what came of it."""

    fault: str
    victim: str
    expected: str
    status_s: float | None = None  # until another owner's status told of it
    back_s: float | None = None  # from being up again until the first answer in the run
    end: str = ""


@dataclass
class Scene:
    """A federation with a run in it."""

    coordinator: Kit
    proxies: dict[str, Proxy]
    faults: list[Seen] = field(default_factory=list)

    def kit(self, name: str) -> Kit:
        """A party's kit."""
        return open_kit(self.coordinator.path.parent / name)

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

    def back(self, name: str) -> float:
        """Seconds until an owner answers in the run again, or the run is over."""

        def told() -> bool:
            found = self.status(name)
            one = found.owners.get(name)
            over = found.server == "up" and found.run is None
            return over or bool(one and one.in_run and one.working and not found.waiting_for)

        return self.until(told)


def family(kit: Kit) -> list[psutil.Process]:
    """A party's process and all it started."""
    found = process_of(kit)
    return [] if found is None else [*found.children(recursive=True), found]


def killed(processes: list[psutil.Process]) -> None:
    """Signal 9."""
    for one in processes:
        one.kill()
    psutil.wait_procs(processes, timeout=10)


def kill_owner(scene: Scene, name: str, seen: Seen) -> None:
    """All processes of an owner are killed; it is started again."""
    killed(family(scene.kit(name)))
    seen.status_s = scene.gone(name)
    start(scene.kit(name), None, quiet)
    seen.back_s = scene.back(name)


def stop_owner(scene: Scene, name: str, seen: Seen) -> None:
    """``federation stop`` and ``start``."""
    stop(scene.kit(name))
    seen.status_s = scene.gone(name)
    start(scene.kit(name), None, quiet)
    seen.back_s = scene.back(name)


def kill_job(scene: Scene, name: str, seen: Seen) -> None:
    """Only the process that trains is killed; the server has it started again."""
    workers = [one for one in family(scene.kit(name)) if "worker_process" in str(one.cmdline())]
    killed(workers)
    seen.status_s = scene.gone(name)
    seen.back_s = scene.back(name)


def kill_client(scene: Scene, name: str, seen: Seen) -> None:
    """The client and the process that trains are killed; the gate starts them again."""
    gate = process_of(scene.kit(name))
    killed([one for one in family(scene.kit(name)) if gate is None or one.pid != gate.pid])
    seen.status_s = scene.gone(name)
    seen.back_s = scene.back(name)


def freeze(scene: Scene, name: str, seen: Seen) -> None:
    """All processes of an owner stand still for 20 seconds."""
    stopped = family(scene.kit(name))
    for one in stopped:
        one.send_signal(signal.SIGSTOP)
    seen.status_s = scene.gone(name)
    time.sleep(max(0.0, 20.0 - (seen.status_s or 0.0)))
    for one in stopped:
        one.send_signal(signal.SIGCONT)
    seen.back_s = scene.back(name)


def kill_server(scene: Scene, name: str, seen: Seen) -> None:
    """All processes of the server are killed; it is started again."""
    kit = scene.kit("server")
    killed(family(kit))
    seen.status_s = scene.until(lambda: scene.status().server != "up", 20.0)
    start(kit, None, quiet)
    seen.back_s = scene.until(lambda: bool(scene.status().round))


def kill_server_job(scene: Scene, name: str, seen: Seen) -> None:
    """Only the server's process of the run is killed; the coordinator submits it anew."""
    found = family(scene.kit("server"))
    killed([one for one in found if "runner_process" in str(one.cmdline())])
    seen.status_s = scene.until(lambda: scene.status().run is None, 20.0)
    seen.back_s = scene.until(lambda: bool(scene.status().round))


def cut(scene: Scene, name: str, seen: Seen, seconds: float = 60.0) -> None:
    """Nothing passes between an owner and the server for a minute."""
    link = scene.proxies[name].link
    link.cut = True
    seen.status_s = scene.gone(name)
    time.sleep(max(0.0, seconds - (seen.status_s or 0.0)))
    link.cut = False
    seen.back_s = scene.back(name)


def short_cut(scene: Scene, name: str, seen: Seen) -> None:
    """Nothing passes for eight seconds."""
    cut(scene, name, seen, 8.0)


def bad_link(change: Callable[[Link], None]) -> Callable[[Scene, str, Seen], None]:
    """An owner's link is bad for five rounds."""

    def worse(scene: Scene, name: str, seen: Seen) -> None:
        link = scene.proxies[name].link
        first = scene.status().round or 0
        change(link)
        seen.back_s = scene.until(lambda: abs((scene.status().round or 10**9) - first) >= 5)
        link.latency, link.loss = 0.0, 0.0
        link.limit(FAST)

    return worse


def slow(link: Link) -> None:
    link.latency = 0.5


def lossy(link: Link) -> None:
    link.loss = 0.05


def narrow(link: Link) -> None:
    link.limit(0.8)


REJOINS, GOES_ON = "rejoins by itself", "goes on"
CASES: dict[str, tuple[Callable[[Scene, str, Seen], None], str]] = {
    "kill -9 of an owner": (kill_owner, REJOINS),
    "stop and start of an owner": (stop_owner, REJOINS),
    "kill -9 of an owner's process of the run": (kill_job, REJOINS),
    "kill -9 of an owner's client": (kill_client, REJOINS),
    "an owner frozen for 20 s (SIGSTOP)": (freeze, REJOINS),
    "kill -9 of the server": (kill_server, "goes on as a new job"),
    "kill -9 of the server's process of the run": (kill_server_job, "goes on as a new job"),
    "a cut of 60 s": (cut, REJOINS),
    "a cut of 8 s": (short_cut, GOES_ON),
    "500 ms delay each way": (bad_link(slow), GOES_ON),
    "5% of chunks sent again": (bad_link(lossy), GOES_ON),
    "100 kB/s": (bad_link(narrow), GOES_ON),
}
RANDOM = [name for name in CASES if name not in ("a cut of 60 s", "100 kB/s")]


def config_of(owners: int, rounds: int) -> Config:
    """A small graph, so that time goes into faults."""
    return load_config(
        {"run": {"method": "fedsage", "engine": "nvflare"}, "data": {"dataset": "synthetic"}},
        {"data": {"owners": owners, "partition": "random"}, "model": {"widths": [16, 8]}},
        {"synthetic": {"nodes": 150 * owners, "features": 20}, "privacy": {"level": "sums"}},
        {"classifier": {"rounds_c": rounds}, "federation": {"deadline": 60, "wait": PATIENCE}},
    )


def behind_proxies(network: Network, proxies: dict[str, Proxy]) -> Callable[[Kit], None]:
    """For :func:`rehearsal`: every owner connects to a proxy; it may be asked often."""

    def prepare(kit: Kit) -> None:
        if kit.role != "owner":
            return
        proxies[kit.name] = network.proxy(Link(FAST), federation_of(kit)["port"])
        connect_to(proxies[kit.name], kit.path)
        policy = kit.path / "local" / POLICY
        lines = policy.read_text().splitlines()
        often = [f"{one.split('=')[0]}= 999" if "starts_of" in one else one for one in lines]
        policy.write_text("\n".join(often) + "\n")

    return prepare


def disturbed(config: Config, plan: list[tuple[str, str]]) -> dict[str, Any]:
    """One run with faults, one after the other; what was seen."""
    alone = config.run.model_copy(update={"engine": "inprocess"})
    wanted = run_config(config.model_copy(update={"run": alone})).record.model_sha256
    proxies: dict[str, Proxy] = {}
    lines: list[HistoryLine] = []
    outcome: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as scratch,
        closing(Network()) as network,
        rehearsal(
            config, Path(scratch) / "keep", quiet, behind_proxies(network, proxies)
        ) as kit,
    ):
        scene = Scene(kit, proxies)

        def run() -> None:
            try:
                folder = Path(scratch) / "run"
                found = run_into(kit, config, folder, "", False, lines.append, quiet)
                outcome["model"] = found.model_sha256
            except Exception as error:
                outcome["error"] = str(error)

        running = threading.Thread(target=run)
        running.start()
        for number, (fault, name) in enumerate(plan):
            at = 1 + STEP * number
            scene.until(
                lambda at=at: (scene.status().round or 0) >= at or not running.is_alive()
            )  # type: ignore[misc]
            if not running.is_alive():
                break
            cause, expected = CASES[fault]
            seen = Seen(fault, "server" if "server" in fault else name, expected)
            cause(scene, name, seen)
            hung = seen.back_s == float("inf")
            seen.end = "hangs" if hung else expected
            scene.faults.append(seen)
            print(seen, f"load {os.getloadavg()[0]:.1f}", flush=True)
        running.join(PATIENCE)
        if running.is_alive():
            outcome["error"] = "the run did not end"
        rounds = [line.round for line in lines if line.phase == "training"]
    return {
        "faults": [asdict(one) for one in scene.faults],
        "same_model": outcome.get("model") == wanted,
        "error": outcome.get("error"),
        "rounds_in_order": rounds == list(range(config.classifier.rounds_c)),
        "silent_absences": sum(bool(line.without) for line in lines),
    }


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures over all runs."""
    faults = [one for run in found for one in run["faults"]]
    told = [one["status_s"] for one in faults if one["status_s"] is not None]
    killed_owners = [one["back_s"] for one in faults if one["fault"] == "kill -9 of an owner"]
    return {
        "runs": len(found),
        "faults": len(faults),
        "hangs": sum(one["end"] == "hangs" for one in faults),
        "lost_runs": sum(run["error"] is not None for run in found),
        "same_model": sum(run["same_model"] for run in found),
        "status_s_median": median(told) if told else None,
        "status_s_most": max(told, default=None),
        "rejoin_after_kill_s_median": median(killed_owners) if killed_owners else None,
    }


def write_table(found: list[dict[str, Any]]) -> None:
    """The table in docs/reliability.md."""

    def shown(seconds: float | None) -> str:
        return "" if seconds is None else f"{seconds:.1f}"

    rows = ["| what happened | expected | what was seen | status tells, s | back, s |",
            "|---|---|---|---|---|"]  # fmt: skip
    for run in found:
        same = "same model" if run["same_model"] else "other model"
        for one in run["faults"]:
            told, back = shown(one["status_s"]), shown(one["back_s"])
            end = f"{one['end']}, {same}"
            rows.append(f"| {one['fault']} | {one['expected']} | {end} | {told} | {back} |")
    page = DOCS / "reliability.md"
    before, rest = page.read_text().split("<!-- chaos -->")
    after = rest.split("<!-- /chaos -->")[1]
    text = "\n".join([f"{before}<!-- chaos -->", *rows, f"<!-- /chaos -->{after}"])
    write_atomically(page, lambda file: file.write(text.encode()))


def main() -> None:
    """Disturb runs, and write down what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, default=3)
    parser.add_argument("--random", type=int, default=0, help="so many faults at random")
    parser.add_argument("--a-run", type=int, default=12, help="faults in one run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    asked = parser.parse_args()
    stream = random.Random(asked.seed)
    names = [f"owner-{i}" for i in range(1, asked.owners)]  # the first one watches
    kinds = asked.cases
    if asked.random:
        kinds = [stream.choice(RANDOM) for _ in range(asked.random)]
    found = []
    while kinds:
        now, kinds = kinds[: asked.a_run], kinds[asked.a_run :]
        plan = [(kind, stream.choice(names)) for kind in now]
        config = config_of(asked.owners, STEP * len(plan) + 12)
        found.append(disturbed(config, plan))
        about = {"load": os.getloadavg()[0], "owners": asked.owners, "seed": asked.seed}
        made = {"versions": versions(), "commit": commit(), "machine": machine()}
        name = f"chaos-{asked.owners}.json" if asked.random else "chaos.json"
        write_json(
            DOCS / "results" / name, {"summary": summary(found), "runs": found} | about | made
        )
    if not asked.random:
        write_table(found)
    print(json.dumps(summary(found), indent=2))


if __name__ == "__main__":
    main()
