"""Recorded runs on a synthetic graph whose owners have fewer rows than features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from fedsage.audit.case import Case
from fedsage.audit.prepare import recorded_case, run_for_audit
from fedsage.config import load_config
from fedsage.machine import dense_threads
from fedsage.rng import generator
from fedsage.runs.events import ignore_event
from tests.cli.conftest import fedsage  # noqa: F401

SETTINGS: dict[str, dict[str, Any]] = {
    "data": {"dataset": "synthetic", "owners": 3},
    "synthetic": {"nodes": 300, "classes": 3, "features": 300, "words": 8.0},
    "model": {"widths": [32, 16], "dropout": 0.0},
    "classifier": {"rounds_c": 16, "batch_size": 16},
}
MakeCase = Callable[..., Case]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """As an audit has it."""
    with dense_threads(1):
        yield


@pytest.fixture(scope="session")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> MakeCase:
    """A recorded run, by its way of mending and the form of its messages."""
    made: dict[str, Case] = {}

    def make(way: str = "subspace", how: str = "full", **sections: dict[str, object]) -> Case:
        key = f"{way} {how} {sections}"
        if key not in made:
            folder = tmp_path_factory.mktemp("audit") / "run"
            chosen = {"run": {"method": f"fedsage+{way}"}, "traffic": {"how": how, "rank": 4}}
            config = load_config(SETTINGS, chosen, sections)
            run_for_audit(config, folder, ignore_event, False, "")
            made[key] = recorded_case(folder, quick=True)
        return made[key]

    return make


@pytest.fixture(scope="session")
def masked_case(case_of: MakeCase) -> Case:
    """A run whose sums are hidden, as its server saw it."""
    with same_masks():
        case = case_of(how="low-rank", privacy={"level": "sums"})
    return replace(case, quick=False, read={})


@contextmanager
def same_masks() -> Iterator[None]:
    """The same masks every time, so that what an attack finds in them is the same."""
    stream = generator(0, "masks")
    with pytest.MonkeyPatch.context() as patch:
        new = "fedsage.protocol.hidden_sums.owner.new_secret"
        patch.setattr(new, lambda: int.from_bytes(stream.bytes(15), "big"))
        yield
