"""Private runs between parties: the model of one process, a ledger in every kit, no way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsage.config import Config
from fedsage.data.owned import load_owners, read_owned
from fedsage.engines.simulated import known_keys
from fedsage.errors import ConfigError, PrivacyError
from fedsage.federation.consent.policy import Policy
from fedsage.federation.owner.site import JOINING, Site
from fedsage.federation.server.serve import serve
from fedsage.models.classifier import load_models
from fedsage.privacy.ledger import SPENT, Ledger
from fedsage.protocol.agreement import Agreement, ColumnMeans, ColumnScale, Step
from fedsage.protocol.messages import Ask, Classifier
from fedsage.protocol.private import Weights, noisy_gradient, size_of, terms_of
from fedsage.protocol.procedures import PROCEDURES
from fedsage.protocol.wire import encode
from fedsage.runs.events import HistoryLine, Stopwatch, ignore_event
from fedsage.runs.execute import Given, execute
from fedsage.runs.predictions import csv_of, predictions
from fedsage.runs.stored_graph import load_answering
from tests.federation.conftest import (
    NAMES,
    TINY,
    SiteEngine,
    Stop,
    config_for,
    into,
    stop_after,
)

pytestmark = pytest.mark.slow  # seconds each

Make = Callable[..., list[Site]]
SECRETS = ("of east", "of north", "of west")
ROUNDS = 4


def private_for(epsilon: float = 3.0, **more: Any) -> Config:
    level = {"level": "private", "epsilon": epsilon}
    data = {"owners": 3, "features": "raw", **more.pop("data", {})}
    model = {"widths": [2048]}
    return config_for("fedsage", privacy=level, data=data, model=model, **more)


@pytest.fixture(scope="session")
def ranged(hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same hospitals, with ranges in their schemas that everybody may know."""
    root = tmp_path_factory.mktemp("ranged")
    for name in NAMES:
        (root / name).mkdir()
        for file in ("nodes.csv", "edges.csv", "schema.toml"):
            text = (hospitals / name / file).read_text()
            limits = 'kind = "number"\nrange = [0, 160]'
            (root / name / file).write_text(text.replace('kind = "number"', limits))
    return root


@pytest.fixture
def private(ranged: Path, tmp_path: Path) -> Make:
    """Fresh processes of owners with secrets; what they keep is on disk, ledgers in kits."""

    def make(policy: Policy = TINY, secrets: tuple[str, ...] = SECRETS) -> list[Site]:
        keys = known_keys(range(len(NAMES)))
        return [
            Site(
                n, read_owned(ranged / n), tmp_path / n / "runs", "1.0", print, keys[i], policy,
                secret=secrets[i],
            )
            for i, n in enumerate(NAMES)
        ]  # fmt: skip

    return make


def ledger(tmp_path: Path, name: str) -> Ledger:
    return Ledger(tmp_path / name / SPENT)


def with_budget(epsilon: float) -> Policy:
    return Policy({**TINY.rules, "budget.epsilon": epsilon})


def ready(site: Site, index: int = 0, run: str = "r", config: Config | None = None) -> Site:
    """An owner that has agreed to a private run."""
    settings = (config or private_for()).model_dump_json()
    site.answer("agree", encode(Agreement(run, index, "1.0", settings, "{}")))
    nothing = torch.zeros(0).double()
    site.answer("receive_scale", encode(ColumnScale(nothing, nothing)))
    return site


def test_the_model_is_the_one_of_one_process_with_the_same_secrets(
    private: Make, ranged: Path, tmp_path: Path
) -> None:
    config = private_for()
    there = serve(
        config, SiteEngine(private()), NAMES, "simulation", "1.0", tmp_path / "s", ignore_event
    )
    here = execute(
        config, load_owners(ranged), None, Stopwatch(ignore_event),
        given=Given(secrets=SECRETS),
    )  # fmt: skip
    assert there.record.model_sha256 == here.record.model_sha256
    other = serve(
        config, SiteEngine(private()), NAMES, "r2", "1.0", tmp_path / "s2", ignore_event
    )
    assert other.record.model_sha256 != here.record.model_sha256  # no noise is used twice


def test_all_that_left_is_charged_or_holds_no_data(private: Make, tmp_path: Path) -> None:
    engine = SiteEngine(private())
    lines: list[HistoryLine] = []
    found = serve(private_for(), engine, NAMES, "r", "1.0", tmp_path / "s", into(lines)).record
    asked = {name for _, name in engine.log}
    ours = [one for one in PROCEDURES.values() if one.module.startswith("fedsage.")]
    known = {one.name: one for one in ours if one.name in asked}
    charged = {name for name in asked if known[name].private == "charged"}
    assert charged == {"noisy_count", "noisy_gradient"}
    assert all(known[name].private == "no data" for name in asked - charged)
    assert found.validation is None and found.accuracy == {"global": None, "local": None}
    assert "nodes" not in found.graph and all(line.loss is None for line in lines)
    for name in NAMES:
        entries = ledger(tmp_path, name).entries()
        assert [one.what for one in entries] == ["count", *(f"round {t + 1}" for t in range(4))]
        assert 0 < ledger(tmp_path, name).spent(1e-5) <= 3.0
        words = (tmp_path / name / "runs" / "r" / "what-leaves.txt").read_text()
        assert "ε = 3 at δ = 1e-05" in words and "how many nodes you have" not in words


def test_nobody_s_size_is_in_what_owners_say_when_they_agree(private: Make) -> None:
    east, north, _ = private()
    settings = private_for().model_dump_json()
    answers = [
        site.answer("agree", encode(Agreement("r", 0, "1.0", settings, "{}")))
        for site in (east, north)
    ]
    assert answers[0] == answers[1] and east.owned.num_nodes != north.owned.num_nodes


def test_an_uncharged_question_is_not_answered(private: Make) -> None:
    """Everything that other runs answer, asked by a server that drew an owner into this one."""
    site = ready(private()[0])
    numbers = site.owned.num_numbers
    asked: dict[str, Any] = {
        "count_nodes": Ask(0), "column_sums": Ask(0), "test_classifier": Ask(0),
        "column_squares": ColumnMeans(torch.zeros(numbers).double()),
        "receive_classifier": Classifier({}, {}), "count_answers": Ask(0), "test_start": Ask(0),
    }  # fmt: skip
    others = {name for _, name in PROCEDURES} - {
        one.name for one in PROCEDURES.values() if one.private != "never"
    }
    for name in {*asked, *others}:
        with pytest.raises(PrivacyError, match="not part of the agreed run"):
            site.answer(name, encode(asked.get(name, Ask(0))))
    allowed = {name for name, one in JOINING.items() if one.private != "never"}
    assert allowed == {"consent", "agree", "receive_scale", "able", "restore", "finish"}


def test_a_round_is_answered_once_and_another_question_is_refused(
    private: Make, tmp_path: Path
) -> None:
    owner = ready(private()[0]).keeper.owner
    zero = torch.zeros(size_of(owner.plan))
    first = noisy_gradient(owner, Weights(0, 60, zero)).total
    paid = ledger(tmp_path, "east").entries()
    assert torch.equal(noisy_gradient(owner, Weights(0, 60, zero)).total, first)
    assert ledger(tmp_path, "east").entries() == paid
    for other in (Weights(0, 60, zero + 1), Weights(0, 61, zero)):
        with pytest.raises(PrivacyError, match="another question"):
            noisy_gradient(owner, other)
    for t in (-1, ROUNDS, ROUNDS + 7):
        with pytest.raises(PrivacyError, match=f"{ROUNDS} were agreed"):
            noisy_gradient(owner, Weights(t, 60, zero))
    assert ledger(tmp_path, "east").entries() == paid


def test_after_a_restart_the_same_question_gets_the_same_answer_for_nothing(
    private: Make, tmp_path: Path
) -> None:
    answers = []
    for _ in range(2):
        owner = ready(private()[0]).keeper.owner
        answers.append(noisy_gradient(owner, Weights(0, 60, torch.zeros(size_of(owner.plan)))))
    assert torch.equal(answers[0].total, answers[1].total)
    assert len(ledger(tmp_path, "east").entries()) == 1


def test_no_noise_is_used_for_other_data_or_another_run(private: Make, tmp_path: Path) -> None:
    owner = ready(private()[0]).keeper.owner
    asked = Weights(0, 60, torch.zeros(size_of(owner.plan)))
    first = noisy_gradient(owner, asked).total
    changed = ready(private()[0]).keeper.owner
    changed.split = changed.split.__class__(
        changed.split.train[1:], changed.split.val, changed.split.test
    )
    with pytest.raises(PrivacyError, match="another question"):
        noisy_gradient(changed, asked)
    again = ready(private()[0], run="r2").keeper.owner
    difference = (noisy_gradient(again, asked).total - first).double()
    terms = terms_of(owner.plan)
    a, b = terms.bits(60)
    wanted = (2 * terms.variance(terms.noise, 2 ** (a + b))) ** 0.5  # of two independent ones
    assert float(difference.std()) == pytest.approx(wanted, rel=0.4)


def test_the_lifetime_budget_adds_up_over_runs_and_refuses_in_words(
    private: Make, tmp_path: Path
) -> None:
    config = private_for(4.0)
    for run in ("r1", "r2"):
        sites = private(with_budget(6.5))
        serve(config, SiteEngine(sites), NAMES, run, "1.0", tmp_path / run, ignore_event)
    assert 4.0 < ledger(tmp_path, "east").spent(1e-5) <= 6.5
    before = (tmp_path / "east" / SPENT).read_bytes()
    with pytest.raises(PrivacyError, match=r"together would cost ε = .*budget is ε = 6.5"):
        serve(
            config, SiteEngine(private(with_budget(6.5))), NAMES, "r3", "1.0", tmp_path / "r3",
            ignore_event,
        )  # fmt: skip
    assert (tmp_path / "east" / SPENT).read_bytes() == before


def test_a_run_that_was_stopped_goes_on_and_pays_nothing_twice(
    private: Make, tmp_path: Path
) -> None:
    config = private_for()
    none = ("", "", "")  # without secrets, the name of a run changes nothing
    whole = serve(
        config, SiteEngine(private(secrets=none)), NAMES, "w", "1.0", tmp_path / "w",
        ignore_event,
    )  # fmt: skip
    with pytest.raises(Stop):
        serve(
            config, SiteEngine(private(secrets=none)), NAMES, "r", "1.0", tmp_path / "s",
            stop_after(2),
        )  # fmt: skip
    again = serve(
        config, SiteEngine(private(secrets=none)), NAMES, "r", "1.0", tmp_path / "s",
        ignore_event,
    )  # fmt: skip
    assert again.record.model_sha256 == whole.record.model_sha256
    for name in NAMES:
        runs = [one.run for one in ledger(tmp_path, name).entries()]
        assert runs.count("r") == runs.count("w") == ROUNDS + 1


def test_an_owner_that_vanishes_and_comes_back(private: Make, tmp_path: Path) -> None:
    engine = SiteEngine(private(), least=2)
    carry, away = engine.carry, {1: range(2, 3)}

    def gone(procedure: Any, requests: Any, lot: int | None = None) -> Any:
        from fedsage.protocol.plan import Miss

        t = getattr(next(iter(requests.values())), "t", None)
        left = {
            i for i in requests if procedure.name == "noisy_gradient" and t in away.get(i, ())
        }
        found = carry(procedure, {i: one for i, one in requests.items() if i not in left}, lot)
        return found | {i: Miss(i, procedure.name, "gone") for i in left}

    engine.carry = gone  # type: ignore[method-assign]
    serve(private_for(), engine, NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    assert len(ledger(tmp_path, "east").entries()) == ROUNDS + 1
    assert len(ledger(tmp_path, "north").entries()) == ROUNDS
    assert (tmp_path / "north" / "runs" / "r" / "predictions.csv").exists()


def test_shares_of_noise_fit_the_owners_that_there_are(private: Make) -> None:
    """With more owners on paper than there are, each would add too little noise."""
    config = private_for(data={"owners": 30})
    with pytest.raises(PrivacyError, match="for 30 owners, but this federation has 3"):
        ready(private()[0], config=config)


def test_a_run_whose_folder_is_gone_is_not_answered_again(
    private: Make, tmp_path: Path
) -> None:
    """Its owners might add up the same noise over others than before."""
    owner = ready(private()[0]).keeper.owner
    noisy_gradient(owner, Weights(0, 60, torch.zeros(size_of(owner.plan))))
    (tmp_path / "east" / "runs" / "r" / "agreed.json").unlink()
    with pytest.raises(PrivacyError, match="its folder is gone"):
        ready(private()[0])


def test_columns_without_a_range_are_refused_by_name(sites: Callable[[], list[Site]]) -> None:
    with pytest.raises(ConfigError, match=r"age, pulse.*range = \[0, 120\]"):
        ready(sites()[0])


def test_nodes_that_two_owners_hold_are_refused(private: Make) -> None:
    site = private()[0]
    tables = site.owned.tables
    assert tables is not None
    same = replace(tables, schema=replace(tables.schema, shared="same"))
    site.owned = replace(site.owned, tables=same)
    with pytest.raises(ConfigError, match="hides what is summed once"):
        ready(site)


def test_owners_answer_by_their_second_stage(private: Make, tmp_path: Path) -> None:
    sites = private()
    serve(private_for(), SiteEngine(sites), NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    folder = tmp_path / "east" / "runs" / "r"
    assert load_answering(folder).home is not None
    lines = (folder / "predictions.csv").read_text().splitlines()
    assert len(lines) == sites[0].owned.num_nodes + 1
    (model,) = load_models(folder)
    found = csv_of(predictions(model, load_answering(folder)))
    assert found.splitlines() == lines
    assert json.loads((folder / "start.json").read_text())["from_sums"] is False


def test_a_server_cannot_go_back_in_time(private: Make, tmp_path: Path) -> None:
    site = ready(private()[0])
    owner = site.keeper.owner
    zero = torch.zeros(size_of(owner.plan))
    noisy_gradient(owner, Weights(0, 60, zero))
    site.answer("restore", encode(Step("training", 0, False)))
    with pytest.raises(PrivacyError, match="another question"):
        noisy_gradient(owner, Weights(0, 60, zero + 1))


def test_an_owner_that_is_asked_sees_what_its_nodes_have_cost(
    private: Make, tmp_path: Path
) -> None:
    from fedsage.federation.kits.kit import Kit
    from fedsage.federation.owner.prepare import cost_so_far

    serve(private_for(), SiteEngine(private()), NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    kit = Kit(tmp_path, "owner", "east")
    (tmp_path / "fedsage").symlink_to(tmp_path / "east")
    words = cost_so_far(kit)
    assert "so far (1) have cost ε = " in words and "your budget of 10" in words
