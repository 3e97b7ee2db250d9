"""The result files of one or more runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

from fedsage.errors import DataError
from fedsage.runs.folder import RESULT, read_history, read_result

COMPARISON = "compare.json"
ASKED = ("dataset", "owners", "partition", "preset", "backbone")  # beside method and seed
NAMES = {"owners": "M = "}
Groups: TypeAlias = Mapping[str, Sequence["Run"]]  # by method, as the page calls it


@dataclass(frozen=True, slots=True)
class Run:
    """One run's folder."""

    folder: Path
    result: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def method(self) -> str:
        """What was run."""
        return str(self.result["method"])

    @property
    def finished(self) -> str:
        """When it ended, in UTC to the second; by the file's date where it does not say."""
        if told := self.result.get("finished"):
            return str(told)
        changed = datetime.fromtimestamp((self.folder / RESULT).stat().st_mtime, timezone.utc)
        return changed.strftime("%Y-%m-%dT%H:%M:%SZ")


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in ``folders``: each a run's own folder, or one that holds several."""
    runs = [read_run(found) for folder in folders for found in run_folders(folder)]
    if not runs:
        raise DataError("No folder given. Example: fedsage report runs/demo")
    return runs


def run_folders(folder: Path) -> list[Path]:
    """``folder`` itself if it holds a run, else the folders in it that do."""
    if (folder / RESULT).is_file():
        return [folder]
    inside = sorted(path.parent for path in folder.glob(f"*/{RESULT}"))
    order = compared_methods(folder)
    inside.sort(key=lambda path: order.get(path.name.rpartition("-seed")[0], len(order)))
    if not inside:
        raise DataError(
            f"{folder} holds no finished run: there is no {RESULT} in it or in its folders. "
            "Give the folder that 'fedsage run' or 'fedsage compare' wrote to."
        )
    return inside


def compared_methods(folder: Path) -> dict[str, int]:
    """The order of methods in a comparison, if ``folder`` holds one."""
    try:
        rows = json.loads((folder / COMPARISON).read_text())["rows"]
    except (OSError, ValueError, KeyError):
        return {}
    return {row["method"]: k for k, row in enumerate(rows)}


def read_run(folder: Path) -> Run:
    """One run."""
    result = read_result(folder)
    return Run(folder, result, [asdict(line) for line in read_history(folder)])


def by_method(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by method, in order of first appearance; by what else differs, where it does."""
    differ = [key for key in ASKED if len({str(run.result[key]) for run in runs}) > 1]
    groups: dict[str, list[Run]] = {}
    for run in runs:
        more = "".join(f", {NAMES.get(key, '')}{run.result[key]}" for key in differ)
        groups.setdefault(f"{run.method}{more}", []).append(run)
    return groups
