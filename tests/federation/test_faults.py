"""Owners that are away, lie or change; servers that ask too much; kits that cannot start."""

from __future__ import annotations

import datetime
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsage.errors import ConfigError, PrivacyError, ProtocolError, StorageError
from fedsage.federation.owner.site import Site
from fedsage.federation.server.serve import serve
from fedsage.federation.status.current_run import Now
from fedsage.models.classifier import load_models
from fedsage.models.parameters import sha256_of
from fedsage.protocol.agreement import Agreement
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Hits
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Miss
from fedsage.protocol.wire import encode
from fedsage.runs.events import HistoryLine, ignore_event
from tests.federation.conftest import NAMES, SiteEngine, Stop, config_for, into, stop_after
from tests.small import HOWS, traffic_of

Make = Callable[[], list[Site]]


class Away(SiteEngine):
    """The third owner does not answer while ``gone`` says so."""

    def __init__(self, sites: list[Site], gone: Callable[[str, int], bool]) -> None:
        super().__init__(sites, 2)
        self.gone = gone

    def carry(
        self, procedure: Any, requests: Mapping[int, Any], lot: int | None = None
    ) -> dict[int, Any]:
        lost = [i for i in requests if i == 2 and self.gone(procedure.name, t_of(requests[i]))]
        here = {i: request for i, request in requests.items() if i not in lost}
        missed = {i: Miss(i, procedure.name, "asleep") for i in lost}
        return super().carry(procedure, here, lot) | missed


def t_of(request: Any) -> int:
    return int(getattr(request, "t", -1))


@pytest.mark.slow
def test_a_run_resumes_after_an_owner_missed_many_rounds_of_neighgen(
    sites: Make, tmp_path: Path
) -> None:
    config = config_for("fedsage+neighgen", neighgen={"rounds_gen": 8})

    def gone(name: str, t: int) -> bool:
        return name in ("local_request", "feed_forward", "update_neighgen") and t >= 2

    folder = tmp_path / "server"
    with pytest.raises(Stop):
        serve(config, Away(sites(), gone), NAMES, "r", "1.0", folder, stop_after(10))
    lines: list[HistoryLine] = []
    engine = Away(sites(), gone)
    again = serve(config, engine, NAMES, "r", "1.0", folder, into(lines))
    assert again.record.resumed == 1 and len(lines) == 8 + 4
    assert not any(name == "local_request" for _, name in engine.log)
    whole = serve(config, Away(sites(), gone), NAMES, "w", "1.0", tmp_path / "w", ignore_event)
    assert again.record.model_sha256 == whole.record.model_sha256


@pytest.mark.slow
def test_who_is_not_there_at_the_start_is_left_out(sites: Make, tmp_path: Path) -> None:
    config = config_for("fedsage")
    engine = Away(sites(), lambda name, t: name == "agree")
    found = serve(config, engine, NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    assert engine.owners == [0, 1] and found.record.owners == 2
    assert {i for i, name in engine.log if name == "receive_scale"} == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["column_sums", "column_squares", "receive_scale"])
def test_nobody_may_miss_the_scale(name: str, sites: Make, tmp_path: Path) -> None:
    engine = Away(sites(), lambda asked, t: asked == name)
    with pytest.raises(ProtocolError, match=f"{name}.*but 3 are needed"):
        serve(config_for("fedsage"), engine, NAMES, "r", "1.0", tmp_path / "s", ignore_event)


@pytest.mark.slow
def test_the_scale_is_agreed_on_once(sites: Make, tmp_path: Path) -> None:
    config, folder = config_for("fedsage"), tmp_path / "server"
    with pytest.raises(Stop):
        serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, stop_after(2))
    engine = SiteEngine(sites())
    serve(config, engine, NAMES, "r", "1.0", folder, ignore_event)
    assert not any(name == "column_sums" for _, name in engine.log)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_who_missed_the_last_broadcast_gets_the_model_before_the_end(
    how: str, sites: Make, tmp_path: Path
) -> None:
    broadcast = {"full": "receive_classifier", "low-rank": "receive_change"}[how]
    asked = {broadcast: 0}

    def gone(name: str, t: int) -> bool:
        if name != broadcast:
            return False
        asked[name] += 1
        return asked[name] == 5  # φ itself, then one a round: the last of four rounds

    made, settings = sites(), {"rounds_c": 4, "selection": "last"}
    found = serve(
        config_for("fedsage", classifier=settings, traffic=traffic_of(how, rank=1)),
        Away(made, gone), NAMES, "r", "1.0", tmp_path / "s", ignore_event,
    )  # fmt: skip
    assert asked[broadcast] == 6  # and once more, as it had missed one
    for site in made:
        (model,) = load_models(site.runs / "r")
        assert sha256_of(model.phi) == found.record.model_sha256


@pytest.mark.slow
def test_a_run_begun_with_other_data_is_not_gone_on_with(
    sites: Make, tmp_path: Path, hospitals: Path
) -> None:
    config, folder = config_for("fedsage"), tmp_path / "server"
    with pytest.raises(Stop):
        serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, stop_after(2))
    changed = sites()
    changed[1].owned = replace(changed[1].owned, content="other")
    with pytest.raises(ConfigError, match="Owner north began this run with other data"):
        serve(config, SiteEngine(changed), NAMES, "r", "1.0", folder, ignore_event)
    other = config_for("fedsage", classifier={"eta": 0.5})
    with pytest.raises(ConfigError, match="began this run with other settings"):
        serve(other, SiteEngine(sites()), NAMES, "r", "1.0", folder, ignore_event)


@pytest.mark.parametrize("run", ["../up", "/etc/x", "a/b", "", "A b", "x" * 101])
def test_a_server_cannot_choose_where_an_owner_writes(run: str, sites: Make) -> None:
    settings = config_for("fedsage").model_dump_json()
    with pytest.raises(PrivacyError, match="only letters, digits"):
        sites()[0].agree(Agreement(run, 0, "1.0", settings, "{}"))


def test_an_owner_agrees_once_and_to_no_small_batches(sites: Make) -> None:
    site = sites()[0]
    settings = config_for("fedsage").model_dump_json()
    site.agree(Agreement("r", 0, "1.0", settings, "{}"))
    with pytest.raises(PrivacyError, match="already agreed to this run"):
        site.agree(Agreement("r", 0, "1.0", settings, "{}"))
    low = config_for("fedsage", neighgen={"min_batch": 2}).model_dump_json()
    with pytest.raises(PrivacyError, match="at least 8"):
        sites()[1].agree(Agreement("r", 1, "1.0", low, "{}"))


@pytest.mark.slow
def test_states_that_fit_nobody_are_an_error_and_no_new_start(
    sites: Make, tmp_path: Path
) -> None:
    config, folder = config_for("fedsage+neighgen"), tmp_path / "server"
    with pytest.raises(Stop):
        serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, stop_after(2))
    for path in (tmp_path / "west" / "r" / "checkpoint").glob("*.state"):
        path.unlink()
    with pytest.raises(StorageError, match="but no round that the server and all owners"):
        serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, ignore_event)


# what needs NVFlare, but no process of its own


class FakeController:
    """Hands tasks to ``answers``, which may take their time or say nothing."""

    def __init__(self, answers: dict[str, Callable[[Any], Any]]) -> None:
        self.answers, self.cancelled = answers, 0

    def broadcast(self, task: Any, fl_ctx: Any, targets: list[str], **more: Any) -> None:
        class Done:
            result: Any = None

        def reply() -> None:
            done = Done()
            done.result = self.answers[targets[0]](task.data)
            if done.result is not None:
                task.result_received_cb(client_task=done, fl_ctx=None)

        threading.Thread(target=reply, daemon=True).start()

    def cancel_task(self, task: Any, fl_ctx: Any = None) -> None:
        self.cancelled += 1


def right(data: Any) -> Any:
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.shareable import make_reply

    reply = make_reply(ReturnCode.OK)
    reply["asked"], reply["frame"] = data["asked"], encode(Hits(1, 1, 1, 2))
    return reply


class Tokens:
    """Stands in for NVFlare's context and engine; counts how often tokens were fetched."""

    fetched = 0

    def get_engine(self) -> Tokens:
        return self

    def sync_clients_from_main_process(self) -> None:
        self.fetched += 1


def engine_with(
    answers: dict[str, Callable[[Any], Any]], deadline: float = 0.6, least: int = 1
) -> Any:
    pytest.importorskip("nvflare")
    from nvflare.apis.signal import Signal

    from fedsage.federation import nvflare_engine

    return nvflare_engine.NVFlareEngine(
        FakeController(answers),  # type: ignore[arg-type]
        Tokens(), Signal(), sorted(answers), "r", deadline, least, Now(Path(), "r", "j", []),
        dict,
    )  # fmt: skip


def asked_to_test(exchange: Exchange) -> dict[int, Hits]:
    return exchange.sum_and_each(DataOwner.test_classifier, engine_ask())[1]


def test_a_gone_owner_costs_the_deadline_once_and_is_back_when_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("nvflare")
    from fedsage.federation import nvflare_engine

    monkeypatch.setattr(nvflare_engine, "GRACE", 0.05)
    asleep = {"on": True}
    engine = engine_with({"a": right, "b": lambda data: None if asleep["on"] else right(data)})
    exchange = Exchange(engine)
    times = []
    for _ in range(3):
        begin = time.monotonic()
        assert set(asked_to_test(exchange)) == {0}
        times.append(time.monotonic() - begin)
    assert times[0] >= 0.6 and max(times[1:]) < 0.4
    begin = time.monotonic()
    assert engine.carry(DataOwner.test_classifier, {1: engine_ask()})[1].why.startswith(
        "no answer"
    )
    assert time.monotonic() - begin < 0.4  # also where nobody else is asked
    asleep["on"] = False
    assert set(asked_to_test(exchange)) == {0, 1} and not engine.away


def engine_ask() -> Any:
    from fedsage.protocol.messages import Ask

    return Ask(0)


def altered(**parts: Any) -> Callable[[Any], Any]:
    def answer(data: Any) -> Any:
        reply = right(data)
        for key, value in parts.items():
            reply[key] = value
        return reply

    return answer


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"asked": "r/0/test_classifier"}, "an answer to r/0/test_classifier"),
        ({"frame": b"rubbish"}, "cannot be read"),
        ({"frame": 10**9}, "failed"),
        ({"frame": encode(engine_ask())}, "Expected a Hits"),
        ({"error": "the disk is full"}, "the disk is full"),
    ],
)
def test_a_reply_that_is_none_is_left_out(parts: dict[str, Any], why: str) -> None:
    exchange = Exchange(engine_with({"a": right, "b": altered(**parts)}))
    assert set(asked_to_test(exchange)) == {0}
    assert why in exchange.misses[0].why
    strict = engine_with({"a": right, "b": altered(**parts)}, least=2)
    with pytest.raises(ProtocolError, match="Owner b: "):
        asked_to_test(Exchange(strict))


def test_an_error_that_waiting_cannot_mend_ends_the_run() -> None:
    engine = engine_with({"a": right, "b": altered(error="another version", fatal=True)})
    with pytest.raises(ConfigError, match="Owner b: another version"):
        asked_to_test(Exchange(engine))


LEAKS: dict[str, dict[str, Any]] = {
    "more than a message": {"rows": [[1.0, 2.0]]},
    "an error beside a frame": {"error": "x"},
    "a long error": {"error": "x" * 5000, "frame": None},
    "a question that is none": {"asked": {"rows": [1, 2]}},
    "a frame that is no bytes": {"frame": "text"},
    "another message": {"frame": encode(engine_ask())},
    "long headers": {"__headers__": {"x": "y" * 10000}},
}


@pytest.mark.parametrize("case", LEAKS)
def test_nothing_but_messages_passes_the_filter(case: str, tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    from fedsage.federation import nvflare_owner
    from fedsage.protocol.door import Door
    from fedsage.protocol.sent_log import Ledger

    class Context:
        def get_prop(self, key: str, default: Any = None) -> str:
            return "test_classifier"

        def get_job_id(self) -> str:
            return "job"

    door = nvflare_owner.DOORS["job"] = Door(
        {"test_classifier": DataOwner.test_classifier}, folder=tmp_path, record=Ledger().append
    )
    door.let_out(DataOwner.test_classifier, Hits(1, 1, 1, 2))
    only = nvflare_owner.OnlyMessages()
    fine = right({"asked": "r/1/test_classifier"})
    assert only.process(fine, Context()) is fine  # type: ignore[arg-type]
    bad = right({"asked": "r/1/test_classifier"})
    for key, value in LEAKS[case].items():
        if value is None:
            del bad[key]
        else:
            bad[key] = value
    passed = only.process(bad, Context())  # type: ignore[arg-type]
    assert "frame" not in passed and "refused by this owner's filter" in passed["error"]
    assert set(passed) <= {"asked", "error", "__headers__"} and len(str(dict(passed))) < 2500
    (line,) = (tmp_path / "sent.jsonl").read_text().splitlines()  # of the fine one alone
    assert json.loads(line)["type"] == "Hits"


@pytest.mark.slow
def test_a_port_in_use_and_a_certificate_that_ran_out_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvflare")
    from fedsage.federation.consent.policy import POLICY
    from fedsage.federation.consent.policy_text import TEXT
    from fedsage.federation.kits import certificates
    from fedsage.federation.kits.kit import open_kit
    from fedsage.federation.kits.make import make_kits
    from fedsage.federation.processes import start

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=r"Port \d+ cannot be used"):
            start.check_port(taken.getsockname()[1])
    kits = {kit.name: kit for kit in make_kits("localhost:8102", ["b", "a"], tmp_path / "kits")}
    assert set(kits) == {"server", "coordinator", "a", "b"}
    moved = kits["a"].path.rename(tmp_path / "elsewhere")
    assert open_kit(moved).name == "a"  # whatever its folder is called
    allowed = json.loads((moved / "local" / "authorization.json").read_text())["permissions"]
    assert {role["byoc"] for role in allowed.values()} == {"none"}
    assert {role["shell_commands"] for role in allowed.values()} == {"none"}
    filters = json.loads((moved / "local" / "privacy.json").read_text())["scopes"][0]
    assert "OnlyMessages" in filters["task_result_filters"][0]["path"]
    assert (moved / "local" / POLICY).read_text() == TEXT
    assert not (kits["server"].path / "local" / POLICY).exists()
    assert moved.stat().st_mode & 0o077 == 0
    certificates.check_certificate(open_kit(moved))

    year = 2100

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:
            return datetime.datetime(year, 1, 1, tzinfo=tz)

    monkeypatch.setattr(certificates.datetime, "datetime", Clock)
    with pytest.raises(ConfigError, match=r"is valid from .* federation renew"):
        certificates.check_certificate(open_kit(moved))
    year = 2001
    with pytest.raises(ConfigError, match=r"it is 2001-01-01 00:00 .* Set the clock right"):
        certificates.check_certificate(open_kit(moved))
    (moved / "startup" / "client.crt").write_text("no certificate")
    with pytest.raises(ConfigError, match="is not a certificate"):
        certificates.check_certificate(open_kit(moved))
