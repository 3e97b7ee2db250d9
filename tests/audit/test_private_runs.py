"""Attacks on private runs: nothing comes out unpaid, and guesses are at chance."""

from __future__ import annotations

from typing import Any

import pytest

from fedsage.audit.attacks.label_distribution import label_distribution
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
from fedsage.config import load_config
from fedsage.privacy.ledger import Ledger
from fedsage.protocol.hidden_sums.memory import Remembered
from fedsage.runs.events import ignore_event
from tests.audit.conftest import SETTINGS


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A recorded private run."""
    folder = tmp_path_factory.mktemp("private") / "run"
    known: dict[str, Any] = {name: SETTINGS[name] for name in ("data", "synthetic")}
    level = {"privacy": {"level": "private"}, "classifier": {"rounds_c": 6}}
    run_for_audit(load_config(known, level), folder, ignore_event, False, "")
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


def test_rows_cannot_be_told_from_noisy_sums_under_masks(case: Case) -> None:
    found = row_span(case)
    assert found.value is not None and found.value < 0.7  # a hundred rows, masks are drawn anew


@pytest.mark.parametrize("attack", [rows_rebuilt, label_distribution])
def test_noisy_sums_under_masks_show_nothing_of_an_owner(attack: Any, case: Case) -> None:
    assert attack(case).verdict == "holds"
