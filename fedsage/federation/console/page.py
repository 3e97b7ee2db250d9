"""What a party's people see on their page, gathered from its kit."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsage.federation.consent.decide import Asked, asked_of
from fedsage.federation.kits.kit import Kit, federation_of
from fedsage.federation.kits.old_runs import KeptRun, kept_runs
from fedsage.federation.owner.pause import wish_of
from fedsage.federation.owner.site import LEAVES
from fedsage.federation.processes.gate import RUNS
from fedsage.federation.status.status import Status
from fedsage.files import write_json
from fedsage.protocol.sent_log import SENT, as_json
from fedsage.readable import counted
from fedsage.runs.folder import HISTORY

FOLDER = "folder.json"  # in a coordinator's kit: where its last run is
GOT = ("predictions.csv", "model.safetensors", "mended.npz", "graph.npz", "result.json",
       "history.jsonl", "report.html")  # fmt: skip
PHASES = {"mending": "mending graphs", "training": "training", "evaluation": "testing"}
WIDE, HIGH = 600.0, 160.0  # of a curve, in its own units


@dataclass(frozen=True, slots=True)
class Sent:
    """What left an owner."""

    types: list[tuple[str, int, int]] = field(default_factory=list)  # of today: count, bytes
    today: int = 0  # bytes
    total: int = 0  # bytes, in all runs
    refusals: int = 0  # errors that left today instead of answers


@dataclass(frozen=True, slots=True)
class Curve:
    """A line over the rounds, ready to be drawn."""

    name: str
    points: str  # of an SVG polyline
    last: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class History:
    """The rounds of a run, as its coordinator knows them."""

    folder: str = ""
    rounds: int = 0
    curves: list[Curve] = field(default_factory=list)
    up: int = 0  # bytes
    down: int = 0
    missed: list[str] = field(default_factory=list)  # who was left out, and why


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything on the page of a party."""

    status: Status
    doing: str  # in one sentence
    server: str  # where it is
    asked: Asked | None = None
    wish: str = "go on"
    sent: Sent = field(default_factory=Sent)
    leaves: list[str] = field(default_factory=list)  # in the run in progress
    runs: list[KeptRun] = field(default_factory=list)
    got: list[tuple[str, int, float]] = field(default_factory=list)  # path, bytes, time
    history: History = field(default_factory=History)


def scene_of(kit: Kit, status: Status) -> Scene:
    """The page of a party, given what it knows of the federation."""
    known: dict[str, Any] = {
        "status": status, "doing": doing(status), "server": federation_of(kit)["server"],
    }  # fmt: skip
    if kit.role == "coordinator":
        history = history_of(kit.ours)
        return Scene(**known, history=history, got=artifacts([Path(history.folder)]))
    runs = kept_runs(kit, status.run)
    if kit.role == "server":
        return Scene(**known, runs=runs)
    folder = kit.ours / RUNS
    return Scene(
        **known,
        asked=asked_of(kit.ours),
        wish=wish_of(kit.ours, status.run or ""),
        sent=sent_of(folder.glob(f"*/{SENT}")),
        leaves=leaves_of(folder / status.run / LEAVES) if status.run else [],
        runs=runs,
        got=artifacts(folder / one.run for one in runs if one.result == "ended"),
    )


def doing(status: Status) -> str:
    """What happens now, in one sentence."""
    if status.server != "up":
        return "The server cannot be reached." if status.server == "down" else (
            "The server does not answer."
        )  # fmt: skip
    if status.run is None:
        return "Nothing is running."
    if status.phase is None:
        return f"Run {status.run} is getting ready."
    words = PHASES.get(status.phase, status.phase)
    at = f", {status.round} of {counted(status.rounds, 'round')} done" if status.rounds else ""
    return f"Run {status.run} is {words}{at}."


def sent_of(logs: Iterable[Path], today: str | None = None) -> Sent:
    """What left, from the logs of all runs; ``today`` as in their times (UTC)."""
    today = today or time.strftime("%Y-%m-%d", time.gmtime())
    counts, sizes = Counter[str](), Counter[str]()
    total = refusals = 0
    for log in logs:
        for raw in log.read_bytes().split(b"\n"):
            line = as_json(raw)
            told = line.get("bytes")
            num_bytes = told if isinstance(told, int) else 0
            total += num_bytes
            if not str(line.get("time", "")).startswith(today):
                continue
            if line.get("type") == "error":
                refusals += 1
                continue
            counts[str(line.get("type"))] += 1
            sizes[str(line.get("type"))] += num_bytes
    types = [(name, counts[name], num_bytes) for name, num_bytes in sizes.most_common()]
    return Sent(types, sum(sizes.values()), total, refusals)


def leaves_of(file: Path) -> list[str]:
    """The lines of what-leaves.txt that say what leaves."""
    if not file.exists():
        return []
    lines = file.read_text().splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]


def artifacts(folders: Iterable[Path]) -> list[tuple[str, int, float]]:
    """The files in which people find what a run gave them, the newest run first."""
    found = []
    for folder in folders:
        for name in GOT:
            if folder.name and (path := folder / name).is_file():
                about = path.stat()
                found.append((str(path), about.st_size, about.st_mtime))
    return found


def remember_folder(ours: Path, folder: Path) -> None:
    """Let the coordinator's page find its last run."""
    write_json(ours / FOLDER, {"folder": str(folder.resolve())})


def history_of(ours: Path) -> History:
    """The rounds of the coordinator's last run."""
    try:
        folder = Path(json.loads((ours / FOLDER).read_text())["folder"])
        raw = (folder / HISTORY).read_bytes().split(b"\n")
    except (OSError, ValueError, KeyError):
        return History()
    lines = [line for one in raw if (line := as_json(one))]
    last: dict[str, dict[str, int]] = {line["phase"]: line["bytes"] for line in lines}
    missed = [
        f"round {line['round'] + 1}, {one.get('owner')}: {one.get('why')}"
        for line in lines
        for one in line.get("without", [])
    ]
    training = [line for line in lines if line["phase"] == "training"]
    values = [line["validation"] for line in training if line["validation"] is not None]
    losses = [line["loss"] for line in training if line["loss"] is not None]
    curves = [curve("accuracy on validation nodes", values, 100.0, "%"),
              curve("loss", losses, 1.0, "")]  # fmt: skip
    return History(
        folder=str(folder),
        rounds=len(training),
        curves=[one for one in curves if one is not None],
        up=sum(one["up"] for one in last.values()),
        down=sum(one["down"] for one in last.values()),
        missed=missed[-20:],
    )


def curve(name: str, values: Sequence[float], scale: float, unit: str) -> Curve | None:
    """A curve over the rounds; None if there are fewer than two."""
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    width, height = WIDE / (len(values) - 1), HIGH / ((high - low) or 1.0)
    points = " ".join(
        f"{i * width:.1f},{HIGH - (value - low) * height:.1f}" for i, value in enumerate(values)
    )
    last, least, most = (f"{scale * value:.3g}{unit}" for value in (values[-1], low, high))
    return Curve(name, points, last, least, most)
