"""Attacks on private runs: nothing comes out unpaid, and guesses are at chance."""

from __future__ import annotations

from typing import Any

import pytest

from fedsage.audit.attacks.label_distribution import label_distribution
from fedsage.audit.attacks.membership import chosen, sureness
from fedsage.audit.attacks.row_span import row_span
from fedsage.audit.attacks.rows_rebuilt import rows_rebuilt
from fedsage.audit.attacks.unpaid_answers import (
    TRICKS,
    Asking,
    other_weights,
    succeeds,
    unpaid_answers,
    without_one,
)
from fedsage.audit.case import Case
from fedsage.audit.prepare import recorded_case, run_for_audit
from fedsage.audit.scores import auc
from fedsage.config import load_config
from fedsage.models.parameters import Parameters
from fedsage.privacy.ledger import Ledger
from fedsage.protocol.hidden_sums.memory import Remembered
from fedsage.runs.events import Stopwatch, ignore_event
from fedsage.runs.setup import prepare
from fedsage.runs.train import train
from tests.audit.conftest import SETTINGS, same_masks

pytestmark = pytest.mark.slow  # seconds each

DATA: dict[str, Any] = {name: SETTINGS[name] for name in ("data", "synthetic")}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A recorded private run."""
    folder = tmp_path_factory.mktemp("private") / "run"
    level = {"privacy": {"level": "private"}, "classifier": {"rounds_c": 6}}
    with same_masks():
        run_for_audit(load_config(DATA, level), folder, ignore_event, False, "")
    return recorded_case(folder, quick=True)


def test_no_trick_gets_an_answer_that_was_not_paid_for(case: Case) -> None:
    found = unpaid_answers(case)
    assert found.verdict == "holds" and found.value == 0, found.note
    assert all(Asking(case.setup).ask(t) for t in (0, 5))  # an honest server gets its sums


def test_without_a_ledger_or_a_memory_the_tricks_succeed(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", lambda *about: None)
        assert succeeds(other_weights, case.setup)
    with monkeypatch.context() as patch:
        patch.setattr(Remembered, "check_sum", lambda *about: None)
        assert succeeds(without_one, case.setup)
    assert not any(succeeds(trick, case.setup) for trick in TRICKS)


@pytest.mark.parametrize("attack", [row_span, rows_rebuilt, label_distribution])
def test_noisy_sums_under_masks_show_nothing_of_an_owner(attack: Any, case: Case) -> None:
    assert attack(case).verdict == "holds"


def test_noise_is_what_hides_who_was_trained_on(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = by_loss(case, shared_model(case, epsilon=0.5))
    with monkeypatch.context() as patch:
        patch.setattr("fedsage.protocol.private.noisy", lambda total, variance, bits: total)
        bare = by_loss(case, shared_model(case, epsilon=0.5))
    error = 0.05  # of an AUC with 180 training and 60 test nodes
    assert abs(hidden - 0.5) < 2 * error < bare - 0.5


def by_loss(case: Case, phi: Parameters) -> float:
    """How well training nodes are told from test nodes by how sure a classifier is of them."""
    sure = sureness(case.setup, phi)
    return auc(sure[chosen(case.setup, "train")], sure[chosen(case.setup, "test")])


def shared_model(case: Case, epsilon: float) -> Parameters:
    """The classifier of a whole run on the same nodes."""
    config = load_config(DATA, {"privacy": {"level": "private", "epsilon": epsilon}})
    setup = prepare(config, case.setup.owners, case.setup.graph)
    trained = train(setup, Stopwatch(ignore_event), ignore_event, None)
    return trained.outcomes[0].classifier.phi
