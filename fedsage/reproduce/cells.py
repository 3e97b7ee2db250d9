"""Cells of a study: runs that are kept as they end, so that a killed study goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fedsage.config import Config
from fedsage.evaluation.results import commit, machine, versions, write_json
from fedsage.prepare import way_of_mending
from fedsage.runs import ignore_line, run_config

Labels: TypeAlias = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run, and what its place in the table is called (its seed is not part of that)."""

    labels: Labels
    config: Config


@dataclass(frozen=True, slots=True)
class Done:
    """A cell that was run."""

    labels: Labels
    seed: int
    record: dict[str, Any]
    history: list[dict[str, Any]]


def fingerprint(config: Config) -> str:
    """A short checksum of all settings that a method's numbers depend on."""
    way = way_of_mending(config.run.method, config.mend.how)
    unused = {"none": {"mend", "neighgen"}, "neighgen": set(), "shared": set()}
    settings = config.model_dump(mode="json", exclude=unused.get(way, {"neighgen"}))
    settings["run"] = {key: settings["run"][key] for key in ("method", "seed", "kernel")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def run_cells(
    cells: Sequence[Cell], store: Path, on_cell: Callable[[int, int, Cell], None]
) -> list[Done]:
    """Run what is not in ``store`` yet; each cell is written whole when it ends."""
    done = []
    for k, cell in enumerate(cells):
        path = store / f"{fingerprint(cell.config)}.json"
        if not path.exists():
            result = run_config(cell.config, ignore_line)
            store.mkdir(parents=True, exist_ok=True)
            kept = {
                "record": asdict(result.record),
                "history": [asdict(line) for line in result.history],
                "versions": versions(),
                "commit": commit(),
                "machine": machine(),
            }
            write_json(path, kept)
        found = json.loads(path.read_text())
        seed = cell.config.run.seed
        done.append(Done(cell.labels, seed, found["record"], found["history"]))
        on_cell(k + 1, len(cells), cell)
    return done


def grouped(done: Sequence[Done]) -> list[tuple[Labels, list[Done]]]:
    """Cells by what they are called, seeds together, in order."""
    groups: dict[str, tuple[Labels, list[Done]]] = {}
    for one in done:
        groups.setdefault(json.dumps(one.labels), (one.labels, []))[1].append(one)
    return list(groups.values())
