"""A run in parts: what it waits for, what it asks again, and what parties load while idle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from fedsage.errors import Absent
from fedsage.federation.status.status import OwnerStatus
from fedsage.protocol.exchange import Exchange
from tests.federation.conftest import config_for
from tests.federation.test_faults import altered, asked_to_test, engine_with, right

Ends: TypeAlias = list[Callable[[Any], None]]  # how the parts of a run end


def in_parts(ends: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wait: float) -> Any:
    """The controller of a run whose parts end so, and then well."""
    pytest.importorskip("nvflare")
    from fedsage.federation import nvflare_engine, nvflare_server

    engine = engine_with({"a": right, "b": right}, least=2)
    there = {name: OwnerStatus(connected=True, working=True) for name in ("a", "b")}
    engine.there, engine.working = lambda: there, {0, 1}
    left, config = list(ends), config_for("fedsage")

    def part(*arguments: Any) -> str:
        if left:
            left.pop(0)(engine)
            raise Absent("Too few answers.")
        return "the result"

    monkeypatch.setattr(nvflare_server, "serve", part)
    monkeypatch.setattr(nvflare_engine, "STUCK", 0.01)
    monkeypatch.setattr(nvflare_engine, "LOOK", 0.01)
    controller = nvflare_server.FedSageController(
        config.model_dump_json(), "r", ["a", "b"], 1.0, 2, wait, "", {}
    )
    return controller, controller.parts(config, engine, engine.now, tmp_path / "runs" / "r")


def refused_answer(engine: Any) -> None:
    """An owner gave an answer that was refused; nobody is absent."""


def stuck_owner(engine: Any) -> None:
    engine.stuck[1] = "it cannot write to its disk"


def test_every_part_knows_the_tokens_of_owners_that_were_started_again() -> None:
    """Also of one that is back before anybody saw that it was gone."""
    engine = engine_with({"a": right})
    for part in (1, 2):
        engine.begin()
        assert engine.fl_ctx.fetched == part == engine.part


def test_after_a_refused_answer_a_run_asks_once_more_and_then_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert in_parts([refused_answer], monkeypatch, tmp_path, 60)[1] == "the result"
    with pytest.raises(Absent):
        in_parts([refused_answer, refused_answer], monkeypatch, tmp_path, 60)


def test_a_run_waits_for_an_owner_with_a_full_disk_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    controller, found = in_parts([stuck_owner] * 5, monkeypatch, tmp_path, 60)
    assert found == "the result"
    assert controller.waits == "waiting for b: it cannot write to its disk"
    with pytest.raises(Absent):
        in_parts([stuck_owner] * 99, monkeypatch, tmp_path, 0.05)


def test_an_owner_that_cannot_answer_for_now_is_told_from_one_that_must_not() -> None:
    pytest.importorskip("nvflare")
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.shareable import make_reply

    engine = engine_with({"a": right, "b": altered(error="the disk is full", later=True)})
    asked_to_test(Exchange(engine))
    assert engine.stuck == {1: "the disk is full"} and not engine.away
    broken = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    engine = engine_with({"a": right, "b": lambda data: broken})
    asked_to_test(Exchange(engine))
    assert engine.stuck == {1: "failed (EXECUTION_EXCEPTION)"}


IDLE = (
    "processes.gate", "presence", "admission", "processes.start", "status.from_kit",
    "consent.decide",
)  # fmt: skip


@pytest.mark.slow
def test_parties_that_only_wait_load_neither_torch_nor_numpy() -> None:
    pytest.importorskip("nvflare")
    names = ", ".join(f"fedsage.federation.{name}" for name in IDLE)
    seen = "[name for name in ('torch', 'numpy', 'numba') if name in sys.modules]"
    command = [sys.executable, "-c", f"import sys, {names}; print({seen})"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == "[]"


def test_many_owners_ask_the_server_less_often() -> None:
    pytest.importorskip("nvflare")
    from fedsage.federation.coordinator.submission import seconds_between_questions

    assert seconds_between_questions(3) == seconds_between_questions(10) == 0.02
    for owners in (50, 200):
        assert owners / seconds_between_questions(owners) == 100


def test_a_run_that_waits_for_people_says_so_once_and_again_when_that_changes() -> None:
    pytest.importorskip("nvflare")
    from fedsage.federation.coordinator.job import Waits
    from fedsage.federation.status.status import Status

    said: list[str] = []
    waits = Waits(said.append)
    all_, one = "waiting for the consent of a, b", "waiting for the consent of b"
    slow = Status(waiting_for=["a", "b"], waiting_seconds=9.0)  # between two questions
    for seen, words in ((slow, all_), (Status(), all_), (slow, all_), (slow, one)):
        waits.tell(seen, f"{words}, for 22 s now")
    assert said == [f"{all_}, for 22 s now", f"{one}, for 22 s now"]
