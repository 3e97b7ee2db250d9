from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedsage.errors import ConfigError, PrivacyError
from fedsage.privacy.accountant import Charge, spent
from fedsage.privacy.ledger import SPENT, Budget, Ledger

ONE = Charge(10.0)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / SPENT


def test_charges_of_all_runs_add_up_and_outlive_the_process(path):
    for run in ("monday", "tuesday"):
        for t in range(3):
            Ledger(path).charge(run, f"round {t}", "asked", ONE)
    found = Ledger(path)
    assert found.spent(1e-5) == pytest.approx(spent([Charge(10.0, times=6)], 1e-5))
    assert found.spent(1e-5, "monday") == pytest.approx(spent([Charge(10.0, times=3)], 1e-5))


def test_a_sum_is_paid_for_once_and_another_question_in_its_place_is_refused(path):
    for _ in range(3):
        Ledger(path).charge("run", "round 1", "asked", ONE)
    assert len(Ledger(path).entries()) == 1
    with pytest.raises(PrivacyError, match="another question"):
        Ledger(path).charge("run", "round 1", "asked otherwise", ONE)
    Ledger(path).charge("another run", "round 1", "asked otherwise", ONE)
    assert len(Ledger(path).entries()) == 2


def test_nothing_is_charged_beyond_the_owner_s_budget(path):
    budget = Budget(spent([Charge(10.0, times=5)], 1e-5), 1e-5)
    for t in range(5):
        Ledger(path, budget).charge("run", f"round {t}", "", ONE)
    before = path.read_bytes()
    with pytest.raises(PrivacyError, match="owner's budget"):
        Ledger(path, budget).charge("another run", "round 0", "", ONE)
    assert path.read_bytes() == before
    with pytest.raises(PrivacyError, match="owner's budget"):
        Ledger(path, budget).afford("another run", [ONE])
    Ledger(path, budget).afford("run", [replace(ONE, times=5)])  # itself, when it continues


def test_a_run_costs_no_more_than_its_own_epsilon(path):
    limit, ledger = Budget(spent([Charge(10.0, times=2)], 1e-5), 1e-5), Ledger(path)
    ledger.charge("other", "round 0", "", Charge(1.0))
    for t in range(2):
        ledger.charge("run", f"round {t}", "", ONE, limit)
    with pytest.raises(PrivacyError, match="the run's ε"):
        ledger.charge("run", "round 2", "", ONE, limit)


def test_a_line_cut_off_by_a_kill_is_dropped_and_a_damaged_one_stops_everything(path):
    for t in range(2):
        Ledger(path).charge("run", f"round {t}", "", ONE)
    with path.open("a") as file:
        file.write('{"run": "run", "wh')  # killed while writing: nothing left for it
    assert len(Ledger(path).entries()) == 2
    Ledger(path).charge("run", "round 2", "", ONE)
    assert [json.loads(line)["run"] for line in path.read_text().splitlines()] == ["run"] * 3
    path.write_text(path.read_text().replace("noise", "noisy", 1))
    with pytest.raises(ConfigError, match="damaged"):
        Ledger(path).charge("run", "round 3", "", ONE)


def pay_for_ever(path: Path, paid: Path) -> None:
    for k in range(len(Ledger(path).entries()), 10**6):
        Ledger(path).charge("run", f"round {k}", "", ONE)
        with paid.open("a") as file:  # what left
            file.write(f"{k}\n")


def test_what_left_was_charged_whenever_the_process_is_killed(path, tmp_path):
    paid = tmp_path / "left"
    for _ in range(3):
        child = multiprocessing.get_context("fork").Process(
            target=pay_for_ever, args=(path, paid)
        )
        child.start()
        before = paid.stat().st_size if paid.exists() else 0
        while not paid.exists() or paid.stat().st_size < before + 20:
            time.sleep(0.005)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    left = len(paid.read_text().split())
    assert left <= len(Ledger(path).entries()) <= left + 3
