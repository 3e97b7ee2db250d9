"""Break real federations in many ways, and see that every run ends as it should.

    python benchmarks/chaos.py                       # every case once, three owners
    python benchmarks/chaos.py --random 40 --owners 10 --seed 1
    python benchmarks/chaos.py --privacy private --cases kill

Server, owners and coordinator are processes of their own with mutual TLS; owners reach the
server through a proxy on loopback that can delay, lose, throttle and cut. One run is disturbed
again and again at random moments, and waits for everyone it needs, so its model must be that of
an undisturbed run, bit for bit. With ``--spare`` runs go on without a missing owner, and every
round without it must say so. Results are added to ``docs/results/chaos.json``, and the table in
docs/reliability.md is made from them. In private runs every ledger must have paid for each sum
once. Needs root (small disks are mounted) and a C compiler
(for a wrong clock).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import chaos_stores  # noqa: F401 (registers its faults)
from chaos_faults import CASES, PARTS, Seen
from chaos_scene import PATIENCE, Coordinator, Disks, Scene, prepared, quiet
from links import Network, Proxy

from fedsage.config import Config, load_config
from fedsage.federation.coordinator.rehearse import rehearsal
from fedsage.files import write_atomically, write_json
from fedsage.machine import commit, machine, versions
from fedsage.privacy.ledger import SPENT, Ledger
from fedsage.protocol.procedures import in_private
from fedsage.runs.execute import run_config

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "results" / "chaos.json"
ROUNDS = 10  # for each fault: some need eight
PER_ROUND = ("Change", "NoisyGradient")  # what an owner sends once in a round
LONGEST = 4.0  # seconds at most, from a round to the next fault


def settings_of(
    owners: int, rounds: int, spare: int, privacy: str
) -> dict[str, dict[str, Any]]:
    """A small model, so that time goes into faults."""
    return {
        "run": {"method": "fedsage"},
        "model": {} if privacy == "private" else {"widths": [16, 8]},
        "privacy": {"level": privacy},
        "classifier": {"rounds_c": rounds},
        "federation": {"deadline": 60, "wait": PATIENCE, "min_owners": owners - spare},
    }


def config_of(settings: dict[str, dict[str, Any]], owners: int) -> Config:
    """All settings, with the graph that owners have parts of."""
    data = {"dataset": "synthetic", "owners": owners, "partition": "random"}
    graph = {"nodes": 150 * owners, "features": 20}
    return load_config(settings, {"data": data, "synthetic": graph})


def disturbed(
    asked: argparse.Namespace, plan: list[tuple[str, str]], stream: random.Random
) -> dict[str, Any]:
    """One run with faults, one after the other; what was seen."""
    owners, spare = asked.owners, asked.spare
    settings = settings_of(owners, ROUNDS * len(plan) + 10, spare, asked.privacy)
    config, faults, proxies = config_of(settings, owners), list[Seen](), dict[str, Proxy]()
    wanted = run_config(config).record.model_sha256
    words = [f"{section}.{key}={json.dumps(value)}" for section, held in settings.items()
             for key, value in held.items() if section != "run"]  # fmt: skip
    command = ["--method", "fedsage", *(part for one in words for part in ("--set", one))]
    disks = Disks()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(disks.end)
        network = stack.enter_context(closing(Network()))
        prepare = prepared(network, proxies, disks)
        kit = stack.enter_context(rehearsal(config, scratch / "keep", quiet, prepare))
        one = Coordinator(kit, command, scratch / "run")
        stack.callback(one.end)
        scene = Scene(one, proxies)
        one.begin()
        for name, victim in plan:
            scene.until(lambda: one.ended or (scene.status().round or 0) > 0)
            scene.goes_on()
            time.sleep(stream.uniform(0, LONGEST))
            if one.ended:
                break
            faults.append(caused(scene, name, victim))
        scene.until(lambda: one.ended, 3 * PATIENCE)
        found = judged(scene, faults, config, wanted)
    return found | {"owners": owners, "spare": spare, "privacy": asked.privacy}


def caused(scene: Scene, name: str, victim: str) -> Seen:
    """Cause a fault, and see what comes of it."""
    cause, expected = CASES[name]
    who = next((part for part in PARTS if f"the {part}" in name), victim)
    seen = Seen(name, who, expected, round=scene.kept(), load=os.getloadavg()[0])
    try:
        cause(scene, victim, seen)
    except Exception as error:
        seen.end = f"{type(error).__name__}: {error}"
    if seen.back_s == float("inf"):
        seen.end, seen.back_s = "hangs", None
    seen.end = seen.end or expected
    print(json.dumps(asdict(seen)), flush=True)
    return seen


def judged(scene: Scene, faults: list[Seen], config: Config, wanted: str) -> dict[str, Any]:
    """What became of a run: its model, its rounds, and who was absent in silence."""
    one, second = scene.coordinator, scene.second
    file = one.out / "history.jsonl"
    text = file.read_text().splitlines() if file.exists() else []
    lines = [line for line in map(json.loads, text) if line["phase"] == "training"]
    rounds = [line["round"] for line in lines]
    without = [miss for line in lines for miss in line["without"]]
    if second is not None:
        scene.until(lambda: second.ended)
    last = one.words.strip().splitlines()[-1:] or [""]
    return {
        "faults": [asdict(seen) for seen in faults],
        "model": one.model(),
        "same_model": one.model() == wanted,
        "error": None if one.ended and one.model() else last[0],
        "rounds_in_order": rounds == list(range(config.classifier.rounds_c)),
        "absences_told": len(without),
        "silent_absences": silent(scene, lines),
        "second_run_ended": None if second is None else second.model() is not None,
        "paid_once": paid_once(scene, config) if in_private(config) else None,
    }


def paid_once(scene: Scene, config: Config) -> bool:
    """Whether every owner has paid for each sum of the run once, and within its ε."""
    wanted = ["count", *(f"round {t + 1}" for t in range(config.classifier.rounds_c))]
    ledgers = [Ledger(scene.kit(name).ours / SPENT) for name in scene.proxies]
    how = config.privacy
    return all(
        sorted(one.what for one in ledger.entries() if one.run == scene.run_name)
        == sorted(wanted)
        and ledger.spent(how.delta) <= how.epsilon
        for ledger in ledgers
    )


def silent(scene: Scene, lines: list[dict[str, Any]]) -> int:
    """Rounds without an owner that no line names: its own log shows that it sent too little."""
    found = 0
    for name in scene.proxies:
        told = sum(any(name in str(miss) for miss in line["without"]) for line in lines)
        (log,) = (scene.kit(name).ours / "runs").glob(f"{scene.run_name}/sent.jsonl")
        sent = sum(json.loads(line).get("type") in PER_ROUND for line in log.open())
        found += max(0, len(lines) - told - sent)
    return found


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures over all runs."""
    faults = [one for run in found for one in run["faults"]]
    told = [one["status_s"] for one in faults if one["status_s"] is not None]
    killed_owners = [one["back_s"] for one in faults
                     if one["fault"] == "kill -9 of an owner" and one["back_s"]]  # fmt: skip
    return {
        "runs": len(found),
        "faults": len(faults),
        "as_expected": sum(one["end"] == one["expected"] for one in faults),
        "hangs": sum(one["end"] == "hangs" for one in faults),
        "lost_runs": sum(run["error"] is not None for run in found),
        "silent_absences": sum(run["silent_absences"] for run in found),
        "same_model": sum(run["same_model"] for run in found),
        "status_s_median": median(told) if told else None,
        "status_s_most": max(told, default=None),
        "rejoin_after_kill_s_median": median(killed_owners) if killed_owners else None,
    }


def table(found: list[dict[str, Any]]) -> list[str]:
    """The table in docs/reliability.md: one row for each kind of fault."""

    def shown(seconds: list[float]) -> str:
        return f"{median(seconds):.1f} ({max(seconds):.1f})" if seconds else ""

    rows = ["| what happened | expected | times | as expected | status tells, s | back, s |",
            "|---|---|---|---|---|---|"]  # fmt: skip
    faults = [one for run in found for one in run["faults"]]
    for name, (_, expected) in CASES.items():
        same = [one for one in faults if one["fault"] == name]
        if not same:
            continue
        well = sum(one["end"] == expected for one in same)
        times = [
            shown([one[key] for one in same if one[key] is not None])
            for key in ("status_s", "back_s")
        ]
        rows.append(f"| {name} | {expected} | {len(same)} | {well} | {' | '.join(times)} |")
    return rows


def write_table(found: list[dict[str, Any]]) -> None:
    """Put the table into docs/reliability.md."""
    page = DOCS / "reliability.md"
    before, rest = page.read_text().split("<!-- chaos -->")
    after = rest.split("<!-- /chaos -->")[1]
    text = "\n".join([f"{before}<!-- chaos -->", *table(found), f"<!-- /chaos -->{after}"])
    write_atomically(page, lambda file: file.write(text.encode()))


def main() -> None:
    """Disturb runs, and write down what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, default=3)
    parser.add_argument("--spare", type=int, default=0, help="owners that a round may miss")
    parser.add_argument("--privacy", choices=("sums", "private"), default="sums")
    parser.add_argument("--random", type=int, default=0, help="so many faults at random")
    parser.add_argument("--a-run", type=int, default=9, help="faults in one run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    here = Path(__file__).parent  # parties run this code, and may be hostile_owner
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here.parent), str(here)])
    stream = random.Random(asked.seed)
    kinds = [name for name in CASES if any(one in name for one in asked.cases)]
    if asked.random:
        kinds = [stream.choice(kinds) for _ in range(asked.random)]
    names = [f"owner-{i}" for i in range(asked.owners)]
    while kinds:
        now, kinds = kinds[: asked.a_run], kinds[asked.a_run :]
        plan = [(kind, stream.choice(names)) for kind in now]
        made = {"versions": versions(), "commit": commit(), "machine": machine()}
        run = disturbed(asked, plan, stream) | {"seed": asked.seed} | made
        before = json.loads(asked.out.read_text())["runs"] if asked.out.exists() else []
        found = [*before, run]
        write_json(asked.out, {"summary": summary(found), "runs": found})
        if asked.out == RESULTS:
            write_table(found)
        print(json.dumps(summary(found), indent=2), flush=True)


if __name__ == "__main__":
    main()
