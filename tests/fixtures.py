"""Fixtures: a small synthetic graph and its owners. Shapes are checked at run time."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import settings

import fedsage.kernels.door
from tests.checker import checking

with checking("fedsage"):  # of what is loaded here, and of all that it loads
    import fedsage.cli.main
    import fedsage.evaluation.evaluate
    import fedsage.models.export
    import fedsage.runs.compare
    import fedsage.runs.comparison  # noqa: F401

from fedsage.config import Config, load_config
from fedsage.data.synthetic import synthetic
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, partition
from fedsage.runs import execute as runs_execute
from fedsage.runs.events import Stopwatch
from fedsage.runs.execute import execute
from fedsage.runs.result import RunResult
from tests.small import SMALL

torch.set_num_threads(1)
settings.register_profile("fedsage", deadline=None)  # a busy machine is no failure
settings.load_profile("fedsage")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over modules and tests, once for the whole session.

    Every run would do so for itself, and afterwards look through them all: half a second. What
    runs leave behind is collected as always.
    """
    gc.collect()
    gc.freeze()
    spared = SimpleNamespace(collect=gc.collect, freeze=nothing, unfreeze=nothing)
    runs_execute.gc = spared  # type: ignore[assignment]


def nothing() -> None:
    """What is frozen stays so until the session ends."""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads a user's cache or writes beside the source."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def graph() -> Graph:
    """Sixty nodes, three classes, sparse features."""
    return synthetic(nodes=60, classes=3, features=40, words=6.0, topicality=0.6)


@pytest.fixture(scope="session")
def owners(graph: Graph) -> Partition:
    """Three owners of twenty nodes."""
    return partition(graph, 3, "random", 0)


Train = Callable[..., RunResult]


@pytest.fixture(scope="session")
def train(graph: Graph, owners: Partition) -> Train:
    """Train a method on the small graph; keywords are settings by section."""

    def run(method: str = "fedsage", seed: int = 0, **sections: dict[str, object]) -> RunResult:
        chosen = {"run": {"method": method, "seed": seed}}
        config: Config = load_config(SMALL, sections, chosen)
        return execute(config, owners, graph, Stopwatch())

    return run


@pytest.fixture
def diverge(graph: Graph, owners: Partition) -> Train:
    """Train a method with settings that no limit would allow."""

    def run(method: str = "fedsage", seed: int = 0, **sections: dict[str, object]) -> RunResult:
        config: Config = load_config(SMALL, {"run": {"method": method, "seed": seed}})
        beyond = {
            name: getattr(config, name).model_copy(update=one) for name, one in sections.items()
        }
        return execute(config.model_copy(update=beyond), owners, graph, Stopwatch())

    return run


LONGEST = (
    "federation/test_federation.py",
    "docs/test_site.py",
    "federation/test_serve.py",
    "docs/",
    "test_packaging.py",
    "federation/",
    "mending/",
    "audit/",
    "test_resume.py",
    "reproduce/",
    "cli/",
)


def place(item: pytest.Item) -> int:
    """How early a test's file is begun."""
    path = item.path.as_posix()
    return next((k for k, one in enumerate(LONGEST) if f"tests/{one}" in path), len(LONGEST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first, so that no worker is left alone with one at the end.

    Tests on the real datasets need them on disk; no test downloads anything.
    """
    items.sort(key=place)
    folder = Path(os.environ.get("FEDSAGE_DATA", "nowhere"))
    for item in items:
        if item.get_closest_marker("dataset") and not (folder / "cora.npz").exists():
            item.add_marker(pytest.mark.skip(reason="the datasets are not in $FEDSAGE_DATA"))
