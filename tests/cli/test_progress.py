from __future__ import annotations

import re
import time

import pytest

from fedsage.cli import progress
from fedsage.cli.output import print_table, traffic_rows
from fedsage.readable import size
from fedsage.runs.events import Event, HistoryLine

SHORT, FULL = {"up": 700_000, "down": 1_100_000}, {"up": 110_000_000, "down": 120_000_000}


@pytest.mark.slow
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


def line_of(sent: dict[str, int], full: dict[str, int]) -> HistoryLine:
    return HistoryLine("training", 4, 0.5, 0.75, sent, 1.0, bytes_full=full)


def test_a_line_says_traffic_beside_full_messages_only_where_these_differ() -> None:
    words = "traffic ↑ 700 kB ↓ 1.1 MB"
    assert progress.carried(line_of(SHORT, FULL)) == f"{words} (full messages: 230 MB)"
    assert progress.carried(line_of(SHORT, SHORT)) == words
    assert progress.carried(line_of(SHORT, {})) == words  # of a run from before they were told
    assert progress.carried(line_of({"up": 0, "down": 0}, {})) == ""


def test_the_time_left_counts_all_owners_that_train_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    with progress.plain_lines("locsage", 6) as on_line:
        for owner in range(2):  # two rounds each, 10 s a round; the clock starts anew
            for t in range(2):
                sent = {"up": 0, "down": 0}
                on_line(HistoryLine("training", t, 0.5, 0.7, sent, 10.0 * (t + 1), owner))
    left = re.findall(r"(\d+) s left", capsys.readouterr().err)
    assert left == ["50", "40", "30", "20"]


@pytest.mark.parametrize("terminal", [True, False])
def test_bar_and_plain_lines_say_phase_and_traffic(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.rounds("fedsage, seed 0", 1) as on_line:
        on_line(line_of(SHORT, FULL))
    shown = capsys.readouterr().err
    assert "seed 0: training" in shown if terminal else "1/1 round, training, loss" in shown
    assert "loss 0.500, validation 0.750" in shown
    assert "traffic ↑ 700 kB ↓ 1.1 MB (full messages: 230 MB)" in shown


def test_the_bar_cuts_nothing_on_a_terminal_of_60_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.rounds("fedsage+neighgen, seed 12", 120) as on_line:
        on_line(line_of(SHORT, FULL))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    for words in (
        "fedsage+neighgen, seed 12: training",
        "1/120 rounds",
        "full messages: 230 MB)",
    ):
        assert words in shown
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 60


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.rounds("fedsage, seed 0", 1) as on_line:
        on_line(line_of(SHORT, FULL))
    assert capsys.readouterr().err.startswith("fedsage, seed 0: 1/1 round, training, loss")


def test_the_table_says_traffic_by_phase_and_how_much_less_it_is() -> None:
    nothing = {"up": 0, "down": 0}
    sent = {"mending": SHORT, "training": SHORT, "evaluation": nothing}
    assert traffic_rows(sent, sent | {"training": FULL}) == [
        ("traffic, mending", "↑ 700 kB ↓ 1.1 MB"),
        ("traffic, training", "↑ 700 kB ↓ 1.1 MB, 128× less than full messages"),
        ("traffic, whole run", "↑ 1.4 MB ↓ 2.2 MB, 64× less than full messages"),
    ]
    alone = {"training": nothing}
    assert traffic_rows(alone, alone) == [("traffic", "none: nothing left an owner")]


def test_sizes_have_three_digits_and_no_powers_of_ten() -> None:
    sizes = [0, 999, 999_499, 999_500, 1e6, 2.345e9, 4e14]
    words = ["0 B", "999 B", "999 kB", "1 MB", "1 MB", "2.35 GB", "400 TB"]
    assert [size(one) for one in sizes] == words


def test_a_table_cuts_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("title", ("figure", "ratio"), [("a long name " * 15, "1,234,567 MB")])
    shown = capsys.readouterr().out
    assert "1,234,567 MB" in shown and "…" not in shown
