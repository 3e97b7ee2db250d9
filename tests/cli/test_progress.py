from __future__ import annotations

import time

import pytest

from fedsage.cli import progress
from fedsage.runs.events import Event


def test_a_slow_phase_is_named_and_a_quick_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.3)
    shown = progress.Shown(lambda line: None, owners=3)
    for name, seconds in (("load", 0.0), ("partition", 0.6), ("training", 0.6)):
        shown(Event("begins", name))
        time.sleep(seconds)
        shown(Event("ends", name))
    assert capsys.readouterr().err == "cutting the graph …\n"


def test_a_large_exchange_is_announced_with_a_way_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress.announce_exchange(10**8, 5)
    progress.announce_exchange(3 * 10**9, 100)
    (line,) = capsys.readouterr().err.splitlines()
    assert "3.0 GB" in line or "3 GB" in line
    assert "neighgen.partners" in line
