"""The page on loopback: what it shows, what it does, and to whom it does not."""

from __future__ import annotations

import base64
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from fedsage.cli.federation.pause import go_on, leave, pause
from fedsage.config import Config
from fedsage.errors import ConfigError, ProtocolError
from fedsage.federation.consent.decide import Terms, asked_of, decision_on
from fedsage.federation.consent.policy import DEFAULT
from fedsage.federation.console.page import history_of, remember_folder, sent_of
from fedsage.federation.console.server import Console
from fedsage.federation.kits.kit import Kit
from fedsage.federation.owner.pause import Steering, steer, wish_of
from fedsage.federation.status import from_kit
from fedsage.federation.status.status import OwnerStatus, Status
from fedsage.files import write_json
from fedsage.protocol.messages import Ask
from fedsage.protocol.sent_log import Ledger
from tests.docs.browser import opened
from tests.report.conftest import CHROMIUM

EVIL = "<img src=x onerror=alert(1)>"
RUN = "fedsage-plus-subspace-20261117-101112-abcdef"
OWNERS = {
    "east": OwnerStatus(True, True, 0.4, 300.0),
    "north": OwnerStatus(False, False, 75.0, 71.0),
    "west": OwnerStatus(True, True, 0.5, 290.0),
}


def status(kit: Kit, run: str | None = RUN) -> Status:
    going = {"run": run, "phase": "training", "round": 12, "rounds": 50} if run else {}
    return Status(
        party=kit.name, role=kit.role, process=4242, server="up", owners=OWNERS,
        waiting_for=["north"], waiting_seconds=71.0, deadline_seconds=529.0,
        disk_free_bytes=83 * 10**9, certificate_days=21, **going,  # type: ignore[arg-type]
    )  # fmt: skip


def terms(run: str = "fedsage-next") -> Terms:
    lines = f"- Once: {EVIL} how many nodes you have.\n- Each round: sums.\nNever: rows."
    words = f"What leaves:\n{lines}\n"
    return Terms(run, Config().model_dump(mode="json"), {}, words)


@pytest.fixture
def owner(tmp_path: Path) -> Kit:
    """An owner in the middle of a run, after another one."""
    kit = Kit(tmp_path / "east", "owner", "east")
    write_json(
        kit.ours / "federation.json", {"server": "fed.example.org:8102", "owners": [*OWNERS]}
    )
    for run in (RUN, "fedsage-of-before"):
        folder = kit.ours / "runs" / run
        ledger = Ledger()
        for kind, size in (
            ("Joined", 900),
            ("Change", 17_000),
            ("Change", 17_300),
            ("Hits", 60),
        ):
            ledger.append(folder, {"procedure": "p", "type": kind, "bytes": size})
        (folder / "what-leaves.txt").write_text(terms().leaves)
    for name in ("model.json", "predictions.csv", "model.safetensors"):
        (kit.ours / "runs" / "fedsage-of-before" / name).write_text("x" * 2000)
    return kit


@pytest.fixture
def coordinator(tmp_path: Path) -> Kit:
    """A coordinator in the middle of a run."""
    kit = Kit(tmp_path / "coordinator", "coordinator", "coordinator")
    write_json(
        kit.ours / "federation.json", {"server": "fed.example.org:8102", "owners": [*OWNERS]}
    )
    folder = tmp_path / "result"
    folder.mkdir()
    lines = [
        {"phase": "training", "round": t, "loss": 2 / (t + 2),
         "validation": 0.9 - 0.6 / (t + 1),
         "bytes": {"up": 17_000 * (t + 1), "down": 40_000 * (t + 1)}, "seconds": t,
         "without": [{"owner": "north", "why": EVIL}] if t > 8 else []}
        for t in range(12)
    ]  # fmt: skip
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    remember_folder(kit.ours, folder)
    return kit


@pytest.fixture
def served() -> Iterator[Callable[..., Console]]:
    """Pages that are closed at the end."""
    made: list[Console] = []

    def serve(kit: Kit, run: str | None = RUN) -> Console:
        def look(kit: Kit) -> Iterator[Status]:
            while True:
                yield status(kit, run)
                time.sleep(0.05)

        console = Console(kit, look=look)
        threading.Thread(target=console.serve_forever, args=(0.05,), daemon=True).start()
        made.append(console)
        while console.seen is None:
            time.sleep(0.01)
        return console

    yield serve
    for one in made:
        one.shutdown()
        one.server_close()


def ask(
    console: Console, method: str = "GET", path: str = "", body: object = None, **headers: str
) -> tuple[int, str]:
    talk = HTTPConnection("127.0.0.1", console.server_port, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path = path or f"/{console.token}/"
    talk.request(method, path, None if body is None else json.dumps(body), named)
    found = talk.getresponse()
    told = found.status, found.read().decode()
    talk.close()
    return told


def post(console: Console, body: object, **more: str) -> tuple[int, str]:
    own = {
        "Origin": console.address[: -len(console.token) - 2],
        "Content_Type": "application/json",
    }
    return ask(console, "POST", f"/{console.token}/do", body, **{**own, **more})


def test_an_owner_sees_what_runs_what_left_and_what_it_got(
    owner: Kit, served: Callable[..., Console]
) -> None:
    code, page = ask(served(owner))
    assert code == 200
    for words in ("12 of 50 rounds done", "Change", "68.6 kB", "70.5 kB",
                  "21 days left", "predictions.csv", "how many nodes you have",
                  "Waiting for <strong>north</strong>",
                  "Pause", "Leave after this round"):  # fmt: skip
        assert words in page, words
    assert EVIL not in page and "&lt;img" in page, "what others write is escaped"


def test_a_coordinator_sees_rounds_curves_traffic_and_who_was_left_out(
    coordinator: Kit, served: Callable[..., Console]
) -> None:
    _, page = ask(served(coordinator))
    for words in ("polyline points", "↑ 204 kB ↓ 480 kB", "accuracy on validation nodes: 85%",
                  "round 10, north:", "history.jsonl"):  # fmt: skip
        assert words in page, words
    assert EVIL not in page and "Pause" not in page
    assert len(history_of(coordinator.ours).missed) == 3


def test_what_left_today_is_counted_by_type(owner: Kit) -> None:
    logs = list((owner.ours / "runs").glob("*/sent.jsonl"))
    found = sent_of(logs)
    assert found.types == [("Change", 4, 68_600), ("Joined", 2, 1800), ("Hits", 2, 120)]
    assert found.today == found.total == 70_520
    assert sent_of(logs, today="1999-12-31").today == 0


def test_nothing_is_shown_without_the_token_or_to_another_host(
    owner: Kit, served: Callable[..., Console]
) -> None:
    """A guess, another site's name that leads here (DNS rebinding), and a missing one."""
    console = served(owner)
    here = f"/{console.token}/"
    assert ask(console, path=here)[0] == 200
    for path in ("/", "/events", "/x/", f"/{console.token[:-1]}/", f"/{console.token}x/", "//"):
        assert ask(console, path=path) == (404, "There is nothing here.")
    for host in ("evil.example", f"evil.example:{console.server_port}", "127.0.0.1", ""):
        assert ask(console, path=here, Host=host)[0] == 404
        assert post(console, {"action": "pause", "run": RUN}, Host=host)[0] == 404
    assert console.server_address[0] == "127.0.0.1"


def test_only_the_page_itself_can_decide(owner: Kit, served: Callable[..., Console]) -> None:
    console, want = served(owner), {"action": "pause", "run": RUN}
    own = console.address[: -len(console.token) - 2]
    for headers in (
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site"}, {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Origin": own.replace("http", "https")},
    ):  # fmt: skip
        assert post(console, want, **headers)[0] == 403
    assert (
        ask(console, "POST", "/do", want, Origin=own, Content_Type="application/json")[0] == 404
    )
    assert ask(console, "GET", f"/{console.token}/do")[0] == 404
    assert wish_of(owner.ours, RUN) == "go on"
    assert (
        post(console, [1])[0] == 400
        and post(console, {"action": "delete", "run": RUN})[0] == 409
    )
    assert post(console, {"action": "pause", "run": "another"})[0] == 409
    assert post(console, want)[0] == 200 and wish_of(owner.ours, RUN) == "pause"


def test_an_approval_is_of_what_the_page_showed(
    owner: Kit, served: Callable[..., Console]
) -> None:
    console, config = served(owner), Config()
    assert decision_on(owner.ours, terms(), DEFAULT, config) is None
    shown = terms().sha256
    assert shown in ask(console)[1]
    assert decision_on(owner.ours, terms("other"), DEFAULT, config) is None  # swapped meanwhile
    code, words = post(console, {"action": "approve", "sha256": shown})
    assert code == 409 and "has changed since you were shown it" in words
    code, _ = post(console, {"action": "approve", "sha256": terms("other").sha256})
    assert code == 200 and asked_of(owner.ours) is None


def test_a_coordinator_s_page_decides_nothing(
    coordinator: Kit, served: Callable[..., Console]
) -> None:
    assert post(served(coordinator), {"action": "pause", "run": RUN})[0] == 409


def test_a_paused_owner_holds_a_new_round_and_one_that_left_answers_no_more(
    tmp_path: Path,
) -> None:
    steering = Steering(tmp_path, "r")
    steering.heed(Ask(0))
    steer(tmp_path, "r", "pause")
    steering.heed(Ask(0))  # the round in progress is completed
    threading.Timer(0.5, steer, (tmp_path, "r", "go on")).start()
    begin = time.monotonic()
    steering.heed(Ask(1))
    assert time.monotonic() - begin > 0.3
    steer(tmp_path, "r", "leave")
    steering.heed(Ask(1))
    for late in (Ask(2), object(), Ask(1)):
        with pytest.raises(ProtocolError, match="left the run"):
            steering.heed(late)
    with pytest.raises(ConfigError, match="left r already"):
        steer(tmp_path, "r", "go on")
    Steering(tmp_path, "other").heed(Ask(0))


def test_an_owner_steers_its_part_by_command_too(
    owner: Kit, coordinator: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kit, file in ((owner, "fed_client.json"), (coordinator, "fed_admin.json")):
        (kit.path / "startup").mkdir()
        (kit.path / "startup" / file).touch()
    monkeypatch.setattr(from_kit, "seen_here", lambda kit: status(kit, RUN))
    pause(owner.path)
    assert wish_of(owner.ours, RUN) == "pause"
    go_on(owner.path)
    assert wish_of(owner.ours, RUN) == "go on"
    leave(owner.path, yes=True)
    assert wish_of(owner.ours, RUN) == "leave"
    with pytest.raises(ConfigError, match="left for good"):
        go_on(owner.path)
    with pytest.raises(ConfigError, match="only owners pause or leave"):
        pause(coordinator.path)
    monkeypatch.setattr(from_kit, "seen_here", lambda kit: status(kit, None))
    with pytest.raises(ConfigError, match="No run is in progress"):
        pause(owner.path)


def shoot(tab: object, name: str) -> None:
    """Keep a picture, if somebody wants to look at it."""
    if folder := os.environ.get("FEDSAGE_PICTURES"):
        shot = tab.call("Page.captureScreenshot", captureBeyondViewport=True)  # type: ignore[attr-defined]
        (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="no chromium")
def test_in_a_real_browser(
    owner: Kit, coordinator: Kit, served: Callable[..., Console], tmp_path: Path
) -> None:
    """Both pages, wide and narrow, dark and light; a press of a button; live updates."""
    console, other = served(owner), served(coordinator)
    decision_on(owner.ours, terms(), DEFAULT, Config())
    with opened(str(CHROMIUM), tmp_path / "profile") as tab:
        for name, page in (("owner", console), ("coordinator", other)):
            for width, scheme in (
                (1200, "light"),
                (1200, "dark"),
                (390, "light"),
                (390, "dark"),
            ):
                tab.look(width, 900, scheme)
                tab.open(page.address)
                tab.until("document.getElementById('live').textContent === 'live'")
                assert tab.run("document.documentElement.scrollWidth <= innerWidth"), (
                    name,
                    width,
                )
                assert tab.run("!document.querySelector('img')")
                hidden = "[...document.querySelectorAll('[data-part=ask] *')].some(one => "
                assert not tab.run(f"{hidden}one.scrollHeight > one.clientHeight + 9)")
                shoot(tab, f"{name}-{width}-{scheme}")
        tab.open(console.address)
        tab.until("document.getElementById('live').textContent === 'live'")
        press = "document.querySelector('button[data-action={}]').click()"
        tab.run(press.format("approve"))
        tab.until("document.getElementById('said').textContent.includes('You take part')")
        tab.until("!!document.querySelector('button[data-action=pause]')")
        tab.run(press.format("pause"))
        tab.until("document.body.textContent.includes('You have paused')")
        shoot(tab, "owner-paused")
        folder = owner.ours / "runs" / "fedsage-of-before"
        shutil.rmtree(folder)
        tab.until("!document.body.textContent.includes('fedsage-of-before')")
        assert tab.complaints == []
        local = [url for url in tab.asked if url.startswith("http://127.0.0.1:")]
        assert set(tab.asked) - {"about:blank"} == set(local), (
            "nothing is fetched from elsewhere"
        )
    assert wish_of(owner.ours, RUN) == "pause"
