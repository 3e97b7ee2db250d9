"""The page ``docs/ten-tasks.md``: every block is short, public and true."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fedsage as fs
from fedsage.runs.track import TRACKERS

PAGE = Path(__file__).parent.parent / "docs" / "ten-tasks.md"
TASKS = dict(re.findall(r"^## (\d+)\. .*?```python\n(.*?)```", PAGE.read_text(), re.M | re.S))
MOST_LINES, ALLOWED = 12, {"fedsage", "torch", "numpy", "pandas"}
NEEDS = {"5": "pandas", "8": "pandas", "10": "torch_geometric"}
Names = dict[str, Any]


def stopped_early(found: Names) -> bool:
    rounds = [line.validation for line in found["result"].history]
    waited = len(rounds) - 1 - rounds.index(max(rounds))
    return (waited == 5 or rounds[-1] > 0.95) and len(found["table"]) == len(rounds) < 200


def swept_and_compared(found: Names) -> bool:
    best = found["comparison"].records["fedsage"][0]
    settled = found["sweep"].max() == max(
        run.record.validation for run in found["runs"].values()
    )
    return settled and found["table"]["low"].notna().sum() == 1 and best.method == "fedsage"


HOLDS: dict[str, Callable[[Names], bool]] = {
    "1": lambda found: isinstance(found["result"].model.to_pyg_module(), found["MyGNN"]),
    "2": lambda found: [len(ids) for ids in found["owners"].nodes] == [67, 67, 66],
    "3": lambda found: sum(one.test for one in found["result"].record.per_owner) == 40,
    "4": lambda found: found["result"].settings["classifier"]["aggregate"].endswith("middle"),
    "5": stopped_early,
    "6": lambda found: found["points"].shape == (200, 2) and found["points"].std() > 0,
    "7": lambda found: (found["labels"] == found["result"].model.predict(found["graph"])).all(),
    "8": swept_and_compared,
    "9": lambda found: Path("runs/watched/result.json").is_file(),
    "10": lambda found: torch.allclose(
        found["logits"], found["result"].model.logits(found["graph"]), atol=1e-5
    ),
}


def run_block(text: str) -> Names:
    found: Names = {"__name__": "task"}
    exec(compile(text, PAGE.name, "exec"), found)
    return found


def test_there_are_ten_tasks() -> None:
    assert list(TASKS) == list(HOLDS) == [str(k) for k in range(1, 11)]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_short_and_takes_public_names_only(task: str) -> None:
    lines = [line for line in TASKS[task].splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= 100
    nodes = list(ast.walk(ast.parse(TASKS[task])))
    imported = {
        one.name for node in nodes if isinstance(node, ast.Import) for one in node.names
    }
    assert "fedsage" in imported <= ALLOWED
    assert not any(isinstance(node, ast.ImportFrom) for node in nodes)
    of_fs = [
        node.attr for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        and node.value.id == "fs"
    ]  # fmt: skip
    assert of_fs and set(of_fs) <= set(fs.__all__)
    private = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    assert not [name for name in private if name.startswith("_") and name != "__init__"]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_task_does_what_it_says(task: str) -> None:
    if task in NEEDS:
        pytest.importorskip(NEEDS[task])
    text = TASKS[task]
    if task == "9":  # the same with a tracker that needs no other process
        pytest.importorskip("tensorboard")
        text = text.replace('"wandb"', '"tensorboard"')
        assert text != TASKS[task]
    assert HOLDS[task](run_block(text))
    if task == "9":
        assert list(Path("runs/watched/tensorboard").glob("events.*"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of wandb's own
def test_a_run_is_watched_in_weights_and_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    if "wandb" not in TRACKERS.ours() or importlib.util.find_spec("wandb") is None:
        pytest.skip("wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert HOLDS["9"](run_block(TASKS["9"]))
