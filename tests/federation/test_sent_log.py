"""What was done to a log of what left, and how it is found."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedsage.cli.main import app
from fedsage.errors import ConfigError, StorageError
from fedsage.federation.kits.kit import Kit
from fedsage.federation.owner.verify import verified
from fedsage.protocol import sent_log
from fedsage.protocol.sent_log import Ledger, read_chain

LINES = 5


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The runs of an owner's kit: two with five lines each."""
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "fed_client.json").write_text("{}")
    ledger, folder = Ledger(), tmp_path / "fedsage" / "runs"
    for run in ("first", "second"):
        (folder / run).mkdir(parents=True)
        (folder / run / "agreed.json").write_text(json.dumps({"settings": "s", "data": "d"}))
        for k in range(LINES):
            ledger.append(folder / run, {"procedure": "count", "type": "Hits", "bytes": 10 + k})
    return folder


def lines_of(folder: Path) -> list[str]:
    return (folder / "sent.jsonl").read_text().splitlines(keepends=True)


def with_lines(folder: Path, lines: list[str]) -> None:
    (folder / "sent.jsonl").write_text("".join(lines))


def edit(number: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        lines = lines_of(folder)
        lines[number] = lines[number].replace("Hits", "Hots")
        with_lines(folder, lines)

    return change


def keep(*numbers: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        lines = lines_of(folder)
        with_lines(folder, [lines[k] for k in numbers])

    return change


def other_run(folder: Path) -> None:
    with_lines(folder, lines_of(folder.parent / "second"))


def other_run_and_its_head(folder: Path) -> None:
    for name in ("sent.jsonl", "sent.head"):
        (folder / name).write_bytes((folder.parent / "second" / name).read_bytes())


def one_of_another_run(folder: Path) -> None:
    lines, others = lines_of(folder), lines_of(folder.parent / "second")
    with_lines(folder, [*lines[:2], others[2], *lines[3:]])


def two_more(folder: Path) -> None:
    """By somebody who chains lines as the gate does, but leaves the head as it is."""
    head = (folder / "sent.head").read_text()
    ledger = Ledger()
    for _ in range(2):
        ledger.append(folder, {"procedure": "count", "type": "Hits", "bytes": 1})
    (folder / "sent.head").write_text(head)


def without_head(folder: Path) -> None:
    (folder / "sent.head").unlink()


def spoiled_head(folder: Path) -> None:
    (folder / "sent.head").write_text("{}")


def no_log(folder: Path) -> None:
    (folder / "sent.jsonl").unlink()


def neither(folder: Path) -> None:
    (folder / "checkpoint").mkdir()
    (folder / "sent.jsonl").unlink()
    (folder / "sent.head").unlink()


def other_agreement(folder: Path) -> None:
    (folder / "agreed.json").write_text(json.dumps({"settings": "others", "data": "d"}))


def as_before_the_chain(folder: Path) -> None:
    with_lines(folder, ['{"time": "2026-01-01T00:00:00Z", "type": "Hits", "bytes": 3}\n'])


def no_json(folder: Path) -> None:
    with_lines(folder, [*lines_of(folder)[:2], "what is this\n"])


DONE: dict[str, tuple[Callable[[Path], None], str]] = {
    "the first line edited": (edit(0), "line 2 does not follow line 1"),
    "a middle line edited": (edit(2), "line 4 does not follow line 3"),
    "the last line edited": (edit(4), "line 5 is not the one in sent.head"),
    "the first line removed": (keep(1, 2, 3, 4), "line 1 is not the start of this run"),
    "a middle line removed": (keep(0, 1, 3, 4), "line 3 does not follow line 2"),
    "the last line removed": (keep(0, 1, 2, 3), "the last 1 of 5 lines is gone"),
    "all lines removed": (keep(), "the last 5 of 5 lines are gone"),
    "two lines swapped": (keep(0, 2, 1, 3, 4), "line 2 does not follow line 1"),
    "a line twice": (keep(0, 1, 1, 2, 3, 4), "line 3 does not follow line 2"),
    "another run's log": (other_run, "line 1 is not the start of this run"),
    "another run's log and head": (
        other_run_and_its_head,
        "line 1 is not the start of this run",
    ),
    "a line of another run": (one_of_another_run, "line 3 does not follow line 2"),
    "lines that the head does not know": (
        two_more,
        "line 6 and those after it are not recorded",
    ),
    "the head removed": (without_head, "sent.head is missing"),
    "the head spoiled": (spoiled_head, "line 1 and those after it are not recorded"),
    "the log removed": (no_log, "the last 5 of 5 lines are gone"),
    "log and head removed": (neither, "there is no sent.jsonl, but messages were sent"),
    "another agreement": (other_agreement, "line 1 is not the start of this run"),
    "lines without a chain": (as_before_the_chain, "line 1 has no checksum"),
    "a line that is none": (no_json, "line 3 has no checksum"),
}


@pytest.mark.parametrize("case", DONE)
def test_what_was_done_to_a_log_is_found_and_nothing_leaves_after_it(
    case: str, runs: Path
) -> None:
    change, words = DONE[case]
    change(runs / "first")
    found = CliRunner().invoke(app, ["federation", "verify", str(runs.parents[1])])
    assert found.exit_code == 1
    first, second = found.stdout.splitlines()
    assert "first: " in first and f"BROKEN: {words}" in first
    assert second == "second: 5 lines, 60 bytes sent, intact"
    told = CliRunner().invoke(app, ["federation", "verify", str(runs.parents[1]), "--json"])
    assert told.exit_code == 1
    assert [one["wrong"] is None for one in json.loads(told.stdout)] == [False, True]
    if case != "log and head removed":  # to the gate, that is a new run
        with pytest.raises(StorageError, match=r"is broken .* nothing was sent"):
            Ledger().append(runs / "first", {"type": "Hits", "bytes": 1})


def test_logs_as_they_were_written_are_whole(runs: Path) -> None:
    kit = str(runs.parents[1])
    found = CliRunner().invoke(app, ["federation", "verify", kit])
    assert found.exit_code == 0 and found.stdout.count("5 lines, 60 bytes sent, intact") == 2
    one = CliRunner().invoke(app, ["federation", "verify", kit, "second", "--json"])
    (told,) = json.loads(one.stdout)
    assert told == {"run": "second", "lines": 5, "bytes": 60, "wrong": None, "note": None}
    owner = Kit(runs.parents[1], "owner", "east")
    with pytest.raises(ConfigError, match=r"no run 'secnd'.*Did you mean 'second'"):
        verified(owner, "secnd")
    with pytest.raises(ConfigError, match="is the kit of the server"):
        verified(Kit(runs.parents[1], "server", "server"))


def test_a_chain_goes_on_after_a_restart(runs: Path) -> None:
    Ledger().append(runs / "first", {"type": "Hits", "bytes": 1})
    found = read_chain(runs / "first")
    assert (found.head.lines, found.num_bytes, found.wrong) == (6, 61, None)


def test_a_kill_while_a_line_is_written_is_no_harm(runs: Path) -> None:
    """Half a line, or a line without its head: neither was acknowledged."""
    folder = runs / "first"
    with (folder / "sent.jsonl").open("a") as file:
        file.write('{"before": "12')
    assert "half a line" in str(read_chain(folder).note) and not read_chain(folder).wrong
    head = (folder / "sent.head").read_text()
    Ledger().append(folder, {"type": "Hits", "bytes": 1})
    assert len(lines_of(folder)) == 6 and not read_chain(folder).wrong
    (folder / "sent.head").write_text(head)
    assert "was not sent" in str(read_chain(folder).note) and not read_chain(folder).wrong
    Ledger().append(folder, {"type": "Hits", "bytes": 1})
    assert read_chain(folder).head.lines == 7 and read_chain(folder).note is None


@pytest.mark.parametrize("case", ["edited", "cut", "chained by somebody else"])
def test_who_writes_to_a_log_meanwhile_is_noticed_at_the_next_line(
    case: str, runs: Path
) -> None:
    """Also where chain and head were made anew: the ledger remembers the end."""
    folder, ledger = runs / "first", Ledger()
    ledger.append(folder, {"type": "Hits", "bytes": 1})
    if case == "edited":
        edit(1)(folder)
    elif case == "cut":
        keep(0, 1, 2)(folder)
    else:
        Ledger().append(folder, {"type": "Hits", "bytes": 99})
        assert read_chain(folder).wrong is None
    with pytest.raises(StorageError, match="is broken"):
        ledger.append(folder, {"type": "Hits", "bytes": 1})


@pytest.mark.parametrize("times", [1, 3])
def test_a_full_disk_lets_nothing_leave_and_the_chain_goes_on_when_there_is_room(
    times: int, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line finds room, its head does not: the message has no line and must not leave."""
    folder, ledger = runs / "first", Ledger()
    ledger.append(folder, {"type": "Hits", "bytes": 1})

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(sent_log, "write_json", full)
        for _ in range(times):
            with pytest.raises(OSError, match="No space left"):
                ledger.append(folder, {"type": "Hits", "bytes": 100})
    assert read_chain(folder).wrong is None and read_chain(folder).note is None
    ledger.append(folder, {"type": "Hits", "bytes": 1})
    found = read_chain(folder)
    assert (found.head.lines, found.num_bytes, found.wrong) == (7, 62, None)


def test_a_line_of_a_million_brackets_is_no_line(runs: Path) -> None:
    with_lines(runs / "first", ["[" * 1_000_000 + "\n"])
    assert read_chain(runs / "first").wrong == "line 1 has no checksum of the line before it"
