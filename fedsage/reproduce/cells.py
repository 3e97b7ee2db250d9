"""Cells of a study: runs that are stored as they end, so that a killed study can continue.

Runs over seeds become one row each: what ``compare --json`` and ``reproduce --json`` print.
"""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fedsage.config import Config
from fedsage.data.load import is_path
from fedsage.errors import ConfigError, FedSageError, PrivacyError, ProtocolError
from fedsage.files import write_json
from fedsage.machine import commit, forget_peak, machine, versions
from fedsage.methods import PLUS, find_method
from fedsage.presets import Settings
from fedsage.registry import at_fault, checksum, is_file
from fedsage.reproduce.tables import beside_paper
from fedsage.runs.comparison import as_json, row_of
from fedsage.runs.execute import run_config
from fedsage.runs.folder import EARLIER, with_phases

READ = (".npz", ".csv", ".parquet", ".xlsx", ".toml")  # files that hold graphs, by their ends
Labels: TypeAlias = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run, and the labels of its place in the table (without the seed)."""

    labels: Labels
    config: Config


@dataclass(frozen=True, slots=True)
class FinishedCell:
    """A cell that was run."""

    labels: Labels
    seed: int
    settings: str  # their fingerprint
    commit: str
    record: dict[str, Any]
    history: list[dict[str, Any]]

    def brief(self) -> dict[str, Any]:
        """What a study's JSON file keeps of the run."""
        kept = ("accuracy", "macro_f1", "round", "validation", "cpu_seconds", "model_sha256")
        found = {key: self.record[key] for key in kept}
        where = {"seed": self.seed, "settings": self.settings, "commit": self.commit}
        return {**self.labels} | where | found


def fingerprint(config: Config) -> str:
    """A short checksum of all that a method's numbers depend on: settings and users' files."""
    way = find_method(config.run.method).way(config.mends_by)
    unused = {"mend", "neighgen"} - {*way.sections}
    settings = config.model_dump(
        mode="json",
        exclude=unused | {"federation"},
        exclude_defaults=True,  # so that a new setting in a later version changes nothing
    )
    run = config.run
    settings["run"] = {"method": run.method, "seed": run.seed, "kernel": run.kernel}
    if files := files_of(config, settings):
        settings["files"] = files
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def files_of(config: Config, settings: Settings) -> dict[str, Any]:
    """What is in the files that settings name: code by its checksum, data by size and time."""
    words = [one for section in settings.values() for one in section.values()]
    code = {one for one in words if isinstance(one, str) and is_file(one)}
    found: dict[str, Any] = {one: checksum(one.removeprefix(PLUS)) for one in code}
    if is_path(config.data.dataset):
        data = Path(config.data.dataset)
        inside = [*data.glob("*"), *data.glob("*/*")] if data.is_dir() else [data]
        files = [
            (str(one), one.stat()) for one in inside if one.suffix in READ and one.is_file()
        ]
        found["data"] = sorted([name, at.st_size, at.st_mtime_ns] for name, at in files)
    return found


def not_tolerated(cell: Cell, failure: FedSageError) -> None:
    """End everything with the first run that fails."""
    raise failure


def run_cells(
    cells: Sequence[Cell],
    store: Path,
    on_cell: Callable[[int, int, Cell], None],
    jobs: int = 1,
    on_failure: Callable[[Cell, FedSageError], None] = not_tolerated,
) -> list[FinishedCell]:
    """Run what is not in ``store`` yet; each cell is stored when it ends.

    With ``jobs`` of zero, nothing is run: only stored cells are returned. A run that
    fails by itself is handed to ``on_failure``; the others go on if that allows it.
    """
    places = [(store / f"{fingerprint(cell.config)}.json", cell) for cell in cells]
    missing = {path: cell for path, cell in places if not path.exists()}
    store.mkdir(parents=True, exist_ok=True)
    if jobs:
        for k, (cell, failure) in enumerate(run_each(missing, jobs)):
            if failure:
                on_failure(cell, failure)
            on_cell(k + 1, len(missing), cell)
    done = []
    for path, cell in [(path, one) for path, one in places if path.exists()]:
        found = json.loads(path.read_text())
        mark, seed = path.stem, cell.config.run.seed
        record, lines = found["record"], found["history"]
        if record["format"] == 1:  # stored by an earlier version
            record = with_phases(record)
            lines = [line | {"phase": EARLIER[line["phase"]]} for line in lines]
        done.append(FinishedCell(cell.labels, seed, mark, found["commit"], record, lines))
    return done


def run_each(
    missing: dict[Path, Cell], jobs: int
) -> Iterator[tuple[Cell, FedSageError | None]]:
    """Run cells, ``jobs`` at a time, each in a separate process; yields each as it ends."""
    if jobs == 1 or len(missing) < 2:
        for path, cell in missing.items():
            yield cell, failure_of(partial(run_cell, cell.config, path))
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), leave_with_parent)
    try:
        waiting = {
            pool.submit(run_cell, cell.config, path): cell for path, cell in missing.items()
        }
        for one in as_completed(waiting):
            yield waiting[one], failure_of(one.result)
    finally:
        pool.shutdown(cancel_futures=True)


def failure_of(run: Callable[[], None]) -> FedSageError | None:
    """Why a run was refused or ended in its rounds; nothing if it was not."""
    try:
        run()
    except (ConfigError, PrivacyError, ProtocolError) as failure:
        return failure
    return None


def leave_with_parent() -> None:
    """End this process when its parent is gone, however that ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_cell(config: Config, path: Path) -> None:
    """Run one cell and store its result."""
    gc.collect()  # so that the peak is of this run, without owners of earlier ones
    forget_peak()
    try:
        result = run_config(config)
    except FedSageError:
        raise
    except Exception as error:
        if place := at_fault(error):
            raise ConfigError(f"{type(error).__name__} in {place}: {error}") from error
        raise
    if fingerprint(config) != path.stem:
        raise ConfigError(
            "A file that this run reads changed while it ran, so its result was not kept. "
            "Repeat the command."
        )
    kept = {
        "record": asdict(result.record),
        "history": [asdict(line) for line in result.history],
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
    }
    write_json(path, kept)


def grouped(done: Sequence[FinishedCell]) -> list[tuple[Labels, list[FinishedCell]]]:
    """Cells by their labels, seeds together, in order."""
    groups: dict[str, tuple[Labels, list[FinishedCell]]] = {}
    for one in done:
        groups.setdefault(json.dumps(one.labels), (one.labels, []))[1].append(one)
    return list(groups.values())


NAMED = ("dataset", "M", "method")  # labels that have their own key in every row


def study_rows(
    done: Sequence[FinishedCell], paper: Callable[[Labels], Sequence[float] | None]
) -> list[dict[str, Any]]:
    """One row for every group of a study's runs; the studied setting is an extra key."""
    rows = []
    for labels, group in grouped(done):
        printed = paper(labels)
        row = as_json(row_of([one.record for one in group], printed[0] if printed else None))
        beside = beside_paper(row["global"]["each"], printed)
        studied = {key: value for key, value in labels.items() if key not in NAMED}
        told = {key: beside[key] for key in ("paper std", "difference", "marked")}
        rows.append(row | studied | told)
    return rows
