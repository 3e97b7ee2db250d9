"""An owner decides what it takes part in, and a decision holds for what it was shown."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsage.config import Config, load_config
from fedsage.data.owned import read_owned
from fedsage.engines.simulated import known_keys
from fedsage.errors import ConfigError, PrivacyError, ProtocolError
from fedsage.federation.consent.decide import (
    CONSENT,
    Terms,
    asked_of,
    decide,
    decision_on,
    must_ask,
)
from fedsage.federation.consent.how_often import DAY
from fedsage.federation.consent.policy import Policy, policy_in, with_rules
from fedsage.federation.owner import site as site_module
from fedsage.federation.owner.site import Site
from fedsage.federation.server.serve import serve
from fedsage.presets import overlaid
from fedsage.protocol.agreement import Agreement, Consent
from fedsage.protocol.wire import decode, encode
from fedsage.runs.events import Event, ignore_event
from tests.federation.conftest import NAMES, TINY, SiteEngine, config_for

ASKS = Policy({**TINY.rules, "unasked.methods": []})  # as TINY, but the owner is asked


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "HELD", 0.05)
    monkeypatch.setattr(site_module, "LOOK", 0.01)


@pytest.fixture
def houses(hospitals: Path, tmp_path: Path) -> Callable[..., list[Site]]:
    """Owners in kits of their own; those that are named are asked."""

    def make(*asked: str) -> list[Site]:
        keys = known_keys(range(len(NAMES)))
        return [
            Site(
                n, read_owned(hospitals / n), tmp_path / n / "runs", "1.0", print, keys[i],
                ASKS if n in asked else TINY,
            )
            for i, n in enumerate(NAMES)
        ]  # fmt: skip

    return make


def terms(name: str = "r", leaves: str = "Sums.", **changed: Any) -> Terms:
    return Terms(name, overlaid(load_config().model_dump(mode="json"), changed), {}, leaves)


def decided(folder: Path, what: Terms, policy: Policy = ASKS, clock: float = 0.0) -> bool:
    config = Config.model_validate(what.settings)
    found = decision_on(folder, what, policy, config, clock)
    return found is not None and found.yes


OTHER: dict[str, Terms] = {
    "another number": terms(classifier={"rounds_c": 99}),
    "another level": terms(privacy={"level": "open"}),
    "fewer owners": terms(federation={"min_owners": 2}),
    "another seed": terms(run={"seed": 1}),
    "another run": terms("r2"),
    "other words": terms(leaves="Everything."),
    "another file": Terms("r", terms().settings, {"mend.how": "0" * 64}, "Sums."),
}


@pytest.mark.parametrize("case", OTHER)
def test_a_decision_does_not_stick_to_what_was_not_shown(case: str, tmp_path: Path) -> None:
    """A hostile server gets consent for one thing and asks for another under its name."""
    assert not decided(tmp_path, terms())
    decide(tmp_path, terms().sha256, True)
    assert decided(tmp_path, terms())
    assert not decided(tmp_path, OTHER[case])
    waiting = terms(federation={"deadline": 5.0, "wait": 5.0})
    assert decided(tmp_path, waiting), (
        "how long to wait tells nothing: a resumed run may differ"
    )


@pytest.mark.parametrize("case", OTHER)
def test_always_covers_later_runs_that_differ_in_name_and_seed_only(
    case: str, tmp_path: Path
) -> None:
    assert not decided(tmp_path, terms())
    decide(tmp_path, terms().sha256, True, always=True)
    assert decided(tmp_path, OTHER[case]) == (case in ("another seed", "another run"))


def test_a_request_that_is_swapped_while_the_owner_reads_is_not_approved(
    tmp_path: Path,
) -> None:
    assert not decided(tmp_path, terms())
    shown = asked_of(tmp_path)
    assert shown is not None
    assert not decided(tmp_path, OTHER["another level"])  # the server asks for something else
    with pytest.raises(PrivacyError, match="has changed since you were shown it"):
        decide(tmp_path, shown.terms.sha256, True)
    assert not decided(tmp_path, OTHER["another level"]) and not decided(tmp_path, terms())


def test_consent_unasked_ends_after_so_many_runs_a_day(tmp_path: Path) -> None:
    """Also for a server that asks for consent to many runs before it starts the first."""
    policy = Policy({**TINY.rules, "unasked.runs_a_day": 2})
    assert [decided(tmp_path, terms(f"r{i}"), policy) for i in range(4)] == [1, 1, 0, 0]
    assert decided(tmp_path, terms("r1"), policy), "a run that was agreed to goes on"
    assert decided(tmp_path, terms("r9"), policy, clock=DAY + 1)
    assert not decided(tmp_path / "x", terms(), Policy({**TINY.rules, "unasked.runs_a_day": 0}))


def test_every_list_of_the_policy_must_cover_a_run() -> None:
    full = {
        "unasked.methods": ["fedsage+subspace"], "unasked.presets": ["best"],
        "unasked.privacy": ["sums"], "unasked.files": ["ab"], "unasked.runs_a_day": 1,
    }  # fmt: skip
    config = load_config({"run": {"method": "fedsage+subspace"}, "privacy": {"level": "sums"}})
    assert not list(must_ask(policy_in(with_rules(full)), config, {"mend.how": "ab"}, 0))
    for key in full:
        less = {**full, key: 0 if key.endswith("day") else ["none"]}
        (why,) = must_ask(policy_in(with_rules(less)), config, {"mend.how": "ab"}, 0)
        assert key in why and "line" in why
    fedsage = load_config({"run": {"method": "fedsage"}, "privacy": {"level": "sums"}})
    assert list(must_ask(policy_in(with_rules(full)), fedsage, {}, 0))


def test_the_owner_sees_what_differs_from_last_time(tmp_path: Path) -> None:
    decided(tmp_path, terms(classifier={"rounds_c": 7}))
    asked = asked_of(tmp_path)
    assert asked and asked.first and any("rounds_c" in one for one in asked.differs)
    decide(tmp_path, asked.terms.sha256, True)
    decided(tmp_path, terms("r2", classifier={"rounds_c": 8}))
    asked = asked_of(tmp_path)
    assert asked and not asked.first and asked.differs == ["classifier.rounds_c: 7 → 8"]


def test_a_damaged_file_is_no_consent(tmp_path: Path) -> None:
    decided(tmp_path, terms(), TINY)
    (tmp_path / CONSENT).write_text('{"asked": null')
    with pytest.raises(ConfigError, match="damaged"):
        decided(tmp_path, terms(), TINY)


def test_a_server_that_skips_the_question_gets_nothing(
    houses: Callable[..., list[Site]], tmp_path: Path
) -> None:
    east = houses("east")[0]
    settings = config_for("fedsage").model_dump_json()
    with pytest.raises(PrivacyError, match="has not consented"):
        east.answer("agree", encode(Agreement("r", 0, "1.0", settings, "{}")))
    assert east.config is None and not (tmp_path / "east" / "runs" / "r").exists()


@pytest.mark.slow
def test_a_run_waits_for_its_owner_and_says_for_whom(
    houses: Callable[..., list[Site]], tmp_path: Path
) -> None:
    config, said = config_for("fedsage"), list[str]()

    def observe(event: Event) -> None:
        if event.what == "waits":
            said.append(event.words)
            asked = asked_of(tmp_path / "north")
            assert asked is not None
            decide(tmp_path / "north", asked.terms.sha256, True)

    asked = serve(
        config, SiteEngine(houses("north")), NAMES, "r", "1.0", tmp_path / "s", observe
    )
    assert said and all("the consent of north," in words for words in said)
    unasked = serve(
        config, SiteEngine(houses()), NAMES, "q", "1.0", tmp_path / "q", ignore_event
    )
    assert asked.record.model_sha256 == unasked.record.model_sha256


@pytest.mark.slow
def test_a_refusal_is_told_in_the_owner_s_words_and_the_run_may_go_on(
    houses: Callable[..., list[Site]], tmp_path: Path
) -> None:
    config = config_for("fedsage")

    def refuse(event: Event) -> None:
        if event.what == "waits":
            asked = asked_of(tmp_path / "west")
            assert asked is not None
            decide(tmp_path / "west", asked.terms.sha256, False, "not before the audit.")

    with pytest.raises(
        ProtocolError, match=r"2 of 3 owners .* 3 are needed. Owner west: .*before the audit\.$"
    ):
        serve(config, SiteEngine(houses("west")), NAMES, "r", "1.0", tmp_path / "s", refuse)
    engine = SiteEngine(houses("west"), least=2)
    served = serve(config, engine, NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    assert len(served.record.per_owner) == 2
    assert {name for i, name in engine.log if i == 2} == {"consent"}


def test_nobody_decides_and_the_run_stops_after_its_wait(
    houses: Callable[..., list[Site]], tmp_path: Path
) -> None:
    config = config_for("fedsage", federation={"wait": 0.1})
    with pytest.raises(ProtocolError, match="Owner east: it has not decided within"):
        serve(
            config, SiteEngine(houses("east")), NAMES, "r", "1.0", tmp_path / "s", ignore_event
        )


def test_a_decision_is_noticed_while_the_server_waits(
    houses: Callable[..., list[Site]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner holds the question, so that a run begins as soon as somebody approves."""
    monkeypatch.setattr(site_module, "HELD", 20.0)
    east = houses("east")[0]
    agreement = encode(
        Agreement("r", 0, "1.0", config_for("fedsage").model_dump_json(), json.dumps({}))
    )

    def approve() -> None:
        while (asked := asked_of(tmp_path / "east")) is None:
            time.sleep(0.01)
        decide(tmp_path / "east", asked.terms.sha256, True)

    thread = threading.Thread(target=approve)
    thread.start()
    begin = time.monotonic()
    found = decode(Consent, east.answer("consent", agreement))
    thread.join()
    assert found.yes and time.monotonic() - begin < 10
