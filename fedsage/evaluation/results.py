"""RunRecord: what a run found, as JSON in and out; and the folder it is kept in."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedsage.errors import ConfigError, DataError
from fedsage.evaluation.diagnostics import Mending, mending_from
from fedsage.files import PARTIAL, write_atomically

FORMAT = 1
RESULT, HISTORY, CHECKPOINT = "result.json", "history.jsonl", "checkpoint"
SETTINGS = "settings.json"  # in the checkpoint
OURS = (RESULT, HISTORY, "model.safetensors", "model.json", "compare.json")
PACKAGES = ("fedsage", "torch", "numpy", "scipy", "igraph", "pymetis")


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One round, as a line of ``history.jsonl``."""

    phase: str
    round: int
    loss: float
    validation: float | None  # none yet while NeighGen is trained
    bytes: dict[str, int]  # up and down, of this phase so far
    seconds: float  # since training began
    owner: int | None = None  # whose local model, where every owner trains its own
    terms: dict[str, float] = field(default_factory=dict)  # of the loss, where it has several
    picked: float | None = None  # share of nodes ever nearest, while owners exchange gradients
    without: list[dict[str, Any]] = field(default_factory=list)  # who was left out, and why


@dataclass(frozen=True, slots=True)
class OwnerLine:
    """One owner at a glance."""

    nodes: int
    links: int | None  # what owners on other machines do not tell, nobody knows
    train: int | None
    val: int | None
    test: int | None
    skew: float | None  # of its labels: total variation from everyone's
    labels: list[int]  # nodes of each class
    local: float | None  # accuracy on its own test nodes, if it has any
    name: str | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The object of ``run --json``; ``result.json`` adds what it takes to repeat the run."""

    method: str
    dataset: str
    owners: int
    partition: str
    seed: int
    preset: str
    engine: str
    backbone: str  # what the classifier is
    accuracy: dict[str, float | None]
    macro_f1: float | None
    seconds: dict[str, float]
    cpu_seconds: float
    cpu_seconds_by_phase: dict[str, float]
    peak_rss_mb: float
    bytes: dict[str, dict[str, int]]
    graph: dict[str, int]
    missing_links: int | None
    model_sha256: str
    out: str | None
    round: int  # whose classifier was kept; for local models the mean
    validation: float  # its accuracy on validation nodes, at the owners
    validation_global: float | None  # the same, queried on the whole graph: for tuning
    risk: float | None  # aggregated risk of Sec. 3.1 on test nodes
    class_names: tuple[str, ...]
    recall: list[float] | None  # of each class
    confusion: list[list[int]] | None
    labels: dict[str, list[float]] | None  # true and predicted shares of each class
    per_owner: list[OwnerLine]
    mending: Mending | None  # what was attached, where something was
    view: str  # what owners query: the plain graph, the mended one, both; or mixed
    missed: int = 0  # answers that did not come, or were refused
    resumed: int = 0  # how often it was started again; seconds count from the last time
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a run was made with."""

    config: dict[str, Any]
    command: str
    versions: dict[str, str] = field(default_factory=lambda: versions())
    commit: str | None = field(default_factory=lambda: commit())
    machine: dict[str, str | int | None] = field(default_factory=lambda: machine())


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of the source tree, if it runs from one; ``-dirty`` if the package changed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        dirty = "-dirty" if git("status", "--porcelain", "--", "fedsage") else ""
        return git("rev-parse", "HEAD") + dirty
    except (OSError, subprocess.SubprocessError):
        return None


def machine() -> dict[str, str | int | None]:
    """The kind of machine, without its name."""
    return {"system": platform.system(), "arch": platform.machine(), "cpus": os.cpu_count()}


def check_free(folder: Path, force: bool = False) -> None:
    """Refuse a folder that holds another run, unless forced."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file. Give a folder.")
    held = [name for name in OURS if (folder / name).exists()]
    if held and not force:
        raise ConfigError(
            f"--out {folder} holds another run ({', '.join(held)}). Choose another folder, or "
            "add --force to replace it."
        )


def claim(folder: Path, resume: bool = False) -> None:
    """Make ``folder`` ready for a run: what another run left there goes.

    To resume is to keep its checkpoint; lines of history are written again from there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in [*(folder / name for name in OURS), *folder.glob(f".*{PARTIAL}")]:
            path.unlink(missing_ok=True)
        if not resume and (folder / CHECKPOINT).is_dir():
            shutil.rmtree(folder / CHECKPOINT)
    except OSError as error:
        raise ConfigError(
            f"--out {folder} cannot be written ({error.strerror}). Choose another folder."
        ) from None


def append_history(folder: Path, line: HistoryLine) -> None:
    """Add one whole line: a single write, so that a kill leaves no half of it."""
    text = json.dumps(asdict(line), allow_nan=False) + "\n"
    handle = os.open(folder / HISTORY, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file, all or nothing."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def write_result(folder: Path, record: RunRecord, provenance: Provenance) -> None:
    """Write ``result.json``; it comes last in a run's folder and says that the run is whole."""
    write_json(folder / RESULT, asdict(record) | asdict(provenance))


def read_result(folder: Path) -> dict[str, Any]:
    """The object in a folder's ``result.json``."""
    try:
        found = json.loads((folder / RESULT).read_text())
    except FileNotFoundError:
        raise DataError(
            f"{folder} holds no finished run: there is no {RESULT}. Give the folder that "
            "'fedsage run' wrote to."
        ) from None
    except ValueError as error:
        raise DataError(f"{folder / RESULT} is not JSON ({error}). Run it again.") from None
    seen = found.get("format") if isinstance(found, dict) else None
    if seen != FORMAT:
        raise DataError(
            f"{folder / RESULT} has format {seen}, this fedsage reads {FORMAT}. Update "
            "fedsage, or run it again."
        )
    return dict(found)


def read_record(folder: Path) -> RunRecord:
    """The record in a folder's ``result.json``."""
    found = read_result(folder)
    known = {field.name for field in fields(RunRecord)}
    lines = [OwnerLine(**line) for line in found["per_owner"]]
    mending = mending_from(found["mending"]) if found["mending"] else None
    values = {key: value for key, value in found.items() if key in known}
    names = tuple(found["class_names"])
    return RunRecord(**values | {"per_owner": lines, "mending": mending, "class_names": names})


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Keep what a run was asked for, so that it can be resumed by its folder alone."""
    write_json(folder / CHECKPOINT / SETTINGS, settings)


def read_settings(folder: Path) -> dict[str, Any] | None:
    """What the run in ``folder`` was asked for; nothing if it never began."""
    try:
        if (folder / RESULT).exists():
            return dict(read_result(folder)["config"])
        return dict(json.loads((folder / CHECKPOINT / SETTINGS).read_text()))
    except (OSError, ValueError):
        return None


def end_checkpoint(folder: Path) -> None:
    """A finished run needs no checkpoint."""
    shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)


def peak_rss_mb() -> float:
    """The most memory this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux; its ru_maxrss would count what the parent process held too
        lines = status.read_text().splitlines()
        return next((int(x.split()[1]) / 1024 for x in lines if x.startswith("VmHWM")), 0.0)
    if sys.platform == "win32":
        return 0.0
    import resource  # is not there on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
