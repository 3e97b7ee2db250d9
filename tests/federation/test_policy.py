"""What an owner's policy refuses, and the line that it names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsage.audit.attacks.hostile_settings import HOSTILE, WITHIN, agreed_to
from fedsage.config import Config, load_config
from fedsage.data.load import load
from fedsage.data.npz import save_graph
from fedsage.data.owned import read_owned
from fedsage.errors import ConfigError, PrivacyError
from fedsage.federation.consent.decide import asked_of, decide
from fedsage.federation.consent.how_often import DAY, LEDGER, enter
from fedsage.federation.consent.policy import (
    DEFAULT,
    OPEN_TO_ALL,
    POLICY,
    RULES,
    check,
    numbers_in,
    permitting,
    policy_in,
    read_policy,
    refusal,
    with_rules,
    words_of,
)
from fedsage.federation.consent.policy_text import TEXT
from fedsage.federation.owner.site import Site
from fedsage.mending.way import WAYS
from fedsage.methods import METHODS
from fedsage.models.backbone import BACKBONES
from fedsage.presets import Settings, overlaid
from fedsage.protocol.agreement import Agreement
from fedsage.protocol.server import RULES as AGGREGATION
from fedsage.protocol.wire import encode
from fedsage.registry import Registry

MakeSite = Callable[[], Site]
UNASKED = {"unasked.methods": ["any"], "unasked.privacy": ["any"], "unasked.runs_a_day": 99}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An owner's graph, without a split: the settings say who is trained on."""
    folder = tmp_path_factory.mktemp("data")
    save_graph(load("synthetic", nodes=300, classes=3, features=40), folder / "graph.npz")
    return folder


@pytest.fixture
def site(data: Path, tmp_path: Path) -> MakeSite:
    """A genuine owner in a kit, as a new process each time."""

    def make() -> Site:
        runs = tmp_path / "kit" / "fedsage" / "runs"
        return Site("east", read_owned(data), runs, "1.0", lambda words: None)

    return make


def write(tmp_path: Path, **changed: object) -> Path:
    """A kit with a policy in which some rules are others."""
    file = tmp_path / "kit" / "local" / POLICY
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(with_rules(changed))
    return file


def ask(site: Site, settings: Settings, run: str = "r") -> None:
    """As a hostile server would: with whatever settings, checked by nobody."""
    text = json.dumps(overlaid(load_config().model_dump(), settings))
    site.answer("agree", encode(Agreement(run, 0, "1.0", text, "{}")))


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_server_s_settings_are_refused_in_words(case: str, site: MakeSite) -> None:
    one = site()
    with pytest.raises((ConfigError, PrivacyError)) as caught:
        ask(one, HOSTILE[case])
    (section, settings) = list(HOSTILE[case].items())[-1]
    assert any(f"{section}.{key}" in str(caught.value) for key in settings)
    assert not one.runs.exists()  # nothing was done with them


@pytest.mark.parametrize("case", WITHIN)
def test_settings_that_others_may_use_are_refused_by_a_line(
    case: str, site: MakeSite, tmp_path: Path
) -> None:
    file = write(tmp_path)
    with pytest.raises(PrivacyError, match=rf"policy of owner east .*{POLICY}, line") as caught:
        ask(site(), WITHIN[case])
    (section, settings) = list(WITHIN[case].items())[-1]
    key = next(key for key in settings if f"{section}.{key}" in str(caught.value))
    number = int(str(caught.value).split("line ")[1].split(":")[0])
    line = file.read_text().splitlines()[number - 1]
    assert line.startswith((f"{section}.{key} = ", f"{key} = ["))  # a range, or words


def test_none_of_thirteen_is_agreed_to_and_presets_are() -> None:
    assert len(HOSTILE) == 13
    assert agreed_to(DEFAULT, HOSTILE) == agreed_to(DEFAULT, WITHIN) == []
    assert agreed_to(DEFAULT, {"best": {}, "two owners": {"data": {"owners": 2}}}) != []
    for preset in ("paper", "best"):
        check(DEFAULT, load_config(preset=preset), "east", lambda: enough(50, 30))


def enough(train: int, val: int):  # type: ignore[no-untyped-def]
    """A split with so many nodes."""
    import numpy as np

    from fedsage.graph.split import Split

    return Split(np.arange(train), np.arange(val), np.arange(3))


def test_an_honest_run_is_agreed_to_once_the_owner_approves(site: MakeSite) -> None:
    with pytest.raises(PrivacyError, match="has not consented"):
        ask(site(), {})
    asked = asked_of(site().runs.parent)
    assert asked is not None and "What leaves this site" in asked.terms.leaves
    decide(site().runs.parent, asked.terms.sha256, True)
    ask(site(), {})
    assert json.loads((site().runs.parent / LEDGER).read_text())["runs"][0]["rounds"] == 70


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"data": {"train": 0.15}}, "training_nodes"),
        ({"data": {"train": 0.8, "val": 0.08}}, "validation_nodes"),
    ],
)
def test_too_few_nodes_are_refused_and_not_counted_out(
    settings: Settings, key: str, site: MakeSite
) -> None:
    with pytest.raises(PrivacyError, match=rf"too few .*{key}") as caught:
        ask(site(), settings)
    assert "45" not in str(caught.value) and "24" not in str(caught.value)


def test_lists_and_owners_are_the_owner_s_to_change(site: MakeSite, tmp_path: Path) -> None:
    write(tmp_path, privacy=["sums"], methods=["fedsage"], **{"fewest.owners": 3})
    asked = {"data": {"owners": 2}}
    with pytest.raises(PrivacyError) as caught:
        ask(site(), asked)
    said = str(caught.value)
    assert "run.method is 'fedsage+'" in said and 'methods = ["fedsage"]' in said
    assert "privacy.level is 'open'" in said and "continue with only 2 owners" in said
    least = {"federation": {"min_owners": 2}, "run": {"method": "fedsage"}}
    with pytest.raises(PrivacyError, match="continue with only 2 owners"):
        ask(site(), overlaid(least, {"privacy": {"level": "sums"}}))


def test_a_way_of_mending_is_refused_however_it_is_named() -> None:
    policy = policy_in(with_rules({"mending": ["copy"]}))
    for settings in (
        {"run": {"method": "fedsage+subspace"}},
        {"run": {"method": "fedsage+"}, "mend": {"how": "subspace"}},
    ):
        assert "mend.how is 'subspace'" in (refusal(policy, settings) or "")
    assert refusal(policy, {"run": {"method": "fedsage+copy"}}) is None
    assert refusal(policy, {"run": {"method": "fedsage"}}) is None  # does not mend


def shipped(registry: Registry[Any]) -> set[str]:
    """Names of what comes with the package, whatever else was handed over in this process."""
    return {name for name, one in registry.ours().items() if one.module.startswith("fedsage.")}


def test_every_number_in_the_settings_has_a_range_and_every_name_is_known() -> None:
    ranged = {key.removeprefix("ranges.") for key in RULES if key.startswith("ranges.")}
    assert ranged == {setting for setting, _ in numbers_in(Config())} - {*OPEN_TO_ALL}
    assert set(RULES["mending"]) == shipped(WAYS) - {"oracle", "links"}
    of_private_runs_and_feddep_alone = {"linear", "fusing"}
    assert set(RULES["backbones"]) == shipped(BACKBONES) - of_private_runs_and_feddep_alone
    assert set(RULES["rules"]) == shipped(AGGREGATION)
    assert set(RULES["methods"]) <= shipped(METHODS)
    assert set(words_of(Config())) <= set(RULES)


def test_stress_and_settings_of_a_method_s_own_are_refused_unless_a_line_allows_them() -> None:
    assert "data.noisy_labels" in (refusal(DEFAULT, {"data": {"noisy_labels": 0.5}}) or "")
    assert "run.method is 'fedprox'" in (refusal(DEFAULT, {"run": {"method": "fedprox"}}) or "")
    assert "method.mu" in (refusal(DEFAULT, {"method": {"mu": 0.5}}) or "")


def test_a_setting_that_no_line_speaks_of_must_be_as_usual() -> None:
    less = {key: rule for key, rule in RULES.items() if key != "ranges.mend.leaves"}
    policy = type(DEFAULT)(less)
    assert "no line" in (refusal(policy, {"mend": {"leaves": 2}}) or "")
    assert refusal(policy, {}) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[fewest]\ntraining_node = 3", "line 2: unknown key 'fewest.training_node'. Did you"),
        ("methods = 3", "line 1: methods is 3"),
        ("[ranges]\n\nmend.rank = [1]", "line 3"),
        ("methods = [", "is not valid TOML"),
    ],
)
def test_a_policy_that_makes_no_sense_allows_nothing(
    text: str, says: str, site: MakeSite, tmp_path: Path
) -> None:
    write(tmp_path).write_text(text)
    with pytest.raises(ConfigError) as caught:
        ask(site(), {})
    assert says in str(caught.value) and POLICY in str(caught.value)


def test_a_missing_line_stands_for_the_default(tmp_path: Path) -> None:
    write(tmp_path).write_text("[fewest]\ntraining_nodes = 9\n")
    policy = read_policy(tmp_path / "kit")
    assert policy.rules == {**RULES, "fewest.training_nodes": 9}
    assert "the default: ranges" in (refusal(policy, {"run": {"threads": 65}}) or "")
    assert policy_in(TEXT).rules == DEFAULT.rules == read_policy(tmp_path / "none").rules


def test_a_rehearsal_permits_itself_whatever_its_settings_are() -> None:
    config = load_config(
        {"data": {"owners": 1, "train": 0.9, "val": 0.05}, "neighgen": {"min_batch": 2}},
        {"classifier": {"batch_size": 1}, "run": {"threads": 100}},
    )
    check(policy_in(permitting(config)), config, "owner-0", lambda: enough(1, 0))


def test_runs_and_rounds_are_counted_and_a_resumed_run_is_none(
    site: MakeSite, tmp_path: Path
) -> None:
    write(tmp_path, **UNASKED, **{"most.runs_a_day": 2, "most.starts_of_a_run": 3})
    for run in ("a", "b", "a", "a"):
        ask(site(), {}, run)
    with pytest.raises(PrivacyError, match=r"3 runs in 24 hours .*most.runs_a_day = 2"):
        ask(site(), {}, "c")
    with pytest.raises(PrivacyError, match="4 starts of this run"):
        ask(site(), {}, "a")


def test_rounds_of_a_month_run_out_and_come_back(tmp_path: Path) -> None:
    policy = policy_in(with_rules({"most.rounds_a_month": 100}))
    enter(policy, tmp_path, "a", 60, False, lambda: 0.0)
    with pytest.raises(PrivacyError, match=r"120 rounds in 30 days"):
        enter(policy, tmp_path, "b", 60, False, lambda: 29 * DAY)
    enter(policy, tmp_path, "b", 60, False, lambda: 31 * DAY)
    (tmp_path / LEDGER).write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        enter(policy, tmp_path, "c", 1, False, lambda: 32 * DAY)
