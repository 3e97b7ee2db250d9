"""What parties are told of a federation, and when it stops being true."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fedsage.cli.federation.status import lines_of
from fedsage.federation.kits.kit import Kit
from fedsage.federation.processes import gate
from fedsage.federation.processes.log import DIARY, note
from fedsage.federation.status.current_run import Now, read_now
from fedsage.federation.status.status import GONE, OwnerStatus, Status, status_in, store, stored

pytest.importorskip("nvflare")
from fedsage.federation.presence import Seen, picture
from fedsage.federation.status.from_kit import seen_here

NAMES = ["east", "north", "west"]


def test_the_server_sees_who_is_there_who_answered_and_who_is_waited_for() -> None:
    seen = {
        "east": Seen(99.8, 40.0, jobs=["j"]),
        "north": Seen(99.9, 50.0),
        "west": Seen(92.0, 92.0, False),
    }
    run = {
        "run": "r", "job": "j", "process": 1, "phase": "training", "round": 12, "rounds": 50,
        "exchange": "local_update_c", "asked": 97.0, "deadline": 107.0, "members": NAMES,
        "expected": NAMES, "answers": {"east": 98.0, "north": 90.0}, "missing": {"west": 92.5},
    }  # fmt: skip
    found = picture(100.0, NAMES, seen, run)
    assert found.server == "up" and (found.phase, found.round, found.rounds) == (
        "training",
        12,
        50,
    )
    assert found.owners["east"] == OwnerStatus(True, True, 2.0, True, 60.0)
    assert found.owners["west"] == OwnerStatus(False, False, None, False, 8.0)
    assert found.answered == ["east"]  # north's answer was to an earlier exchange
    assert found.waiting_for == ["north", "west"] and found.waiting_seconds == 7.5
    assert found.deadline_seconds == 7.0
    told = json.loads(json.dumps(asdict(found) | {"of a newer version": 1}))
    assert status_in(told) == found
    early = picture(97.5, NAMES, seen, run | {"missing": {}})
    assert early.waiting_for == [] and early.deadline_seconds is None  # owners are at work
    asking = "waiting for the consent of west, for 9 s now"
    assert lines_of(picture(100.0, NAMES, seen, run | {"decisions": asking}))[-2] == asking
    idle = picture(100.0, NAMES, {}, None)
    assert idle.run is None and not any(one.connected for one in idle.owners.values())


def test_what_is_shown_ages_and_is_not_shown_once_it_may_be_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit(tmp_path, "owner", "east")
    kit.ours.mkdir()
    (kit.ours / "federation.json").write_text(json.dumps({"owners": NAMES}))
    monkeypatch.setattr("fedsage.federation.status.from_kit.pid_of", lambda kit: 7)
    monkeypatch.setattr("fedsage.federation.status.from_kit.lost_its_gate", lambda kit: False)
    store(
        kit.ours,
        Status(
            server="up", run="r", phase="training", round=3, rounds=9, waiting_for=["west"],
            waiting_seconds=2.0, deadline_seconds=5.0,
            owners={"west": OwnerStatus(False, False, 4.0, False, 3.0)},
        ),
    )  # fmt: skip
    clock = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: clock + 2.0)
    shown = seen_here(kit)
    assert shown.party == "east" and shown.process == 7 and shown.disk_free_bytes > 0
    assert shown.waiting_seconds == pytest.approx(4.0, abs=0.2)
    assert shown.deadline_seconds == pytest.approx(3.0, abs=0.2)
    assert shown.owners["west"].last_answer_seconds == pytest.approx(6.0, abs=0.2)
    text = "\n".join(lines_of(shown))
    assert "waiting for west" in text and "training, round 3 of 9" in text
    monkeypatch.setattr(time, "monotonic", lambda: clock + GONE + 0.1)
    assert seen_here(kit).server == "down" and seen_here(kit).run is None
    monkeypatch.setattr(time, "monotonic", lambda: clock - 100.0)  # the machine was restarted
    assert stored(kit.ours)[1] == float("inf") and seen_here(kit).server == "down"


def test_a_run_tells_what_it_does(tmp_path: Path) -> None:
    now = Now(tmp_path / "now.json", "r", "j", NAMES)
    now.asks("agree", NAMES, 60.0)
    now.answered("east")
    now.missed("west")
    now.tell(phase="training", round=1, rounds=5)
    now.write()
    found: Any = read_now(tmp_path / "now.json")
    assert found["members"] == NAMES and set(found["answers"]) == {"east"}
    assert found["missing"] == {"west": found["asked"]} and found["deadline"] > found["asked"]
    now.answered("west")
    now.write()
    assert read_now(tmp_path / "now.json") == found | {
        "answers": now.facts["answers"],
        "missing": {},
    }
    assert read_now(tmp_path / "absent") is None


def test_the_gate_starts_its_client_again_until_it_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "FIRST_PAUSE", 0.01)
    script = (
        "import pathlib, sys; file = pathlib.Path(sys.argv[1]); "
        "seen = file.read_text() if file.exists() else ''; file.write_text(seen + 'x'); "
        "sys.exit(3 if len(seen) < 2 else 0)"
    )
    before = signal.getsignal(signal.SIGTERM)
    try:
        command = [sys.executable, "-c", script, str(tmp_path / "starts")]
        assert gate.kept_up(tmp_path, command) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (tmp_path / "starts").read_text() == "xxx"
    lines = (tmp_path / DIARY).read_text().splitlines()
    assert len(lines) == 2 and all("is started again" in line for line in lines)


def test_the_log_has_one_line_an_event_and_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsage.federation.processes.log.MOST", 100)
    note(tmp_path, "Two\nlines become   one.")
    assert (tmp_path / DIARY).read_text().endswith("  Two lines become one.\n")
    for _ in range(10):
        note(tmp_path, "Something happened.")
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2 and max(sizes) < 200
    note(tmp_path / "absent", "Nobody can write this.")
