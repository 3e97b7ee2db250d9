"""The coordinator's side: submit a run, follow it, fetch its result."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsage.config import Config
from fedsage.errors import FedSageError, ProtocolError
from fedsage.federation.coordinator.session import Unreachable, session
from fedsage.federation.coordinator.submission import write_job
from fedsage.federation.kits.kit import Kit, federation_of
from fedsage.federation.kits.members import MEMBERS
from fedsage.federation.nvflare_server import GROUP, STATUS
from fedsage.federation.status.status import Status
from fedsage.readable import listed
from fedsage.runs.events import HistoryLine

POLL = 1.0  # seconds between two looks at a run
RESUME = (
    "All parties keep what they have: check that they are running ('fedsage federation "
    "status'), then use the same command with --resume."
)
LONGEST_PAUSE = 5.0  # seconds between two attempts to reach a lost server
PATIENCE = 5.0  # seconds after which it is said for whom a run waits
AGAIN = 30.0  # seconds between two such lines
LOST = 3  # polls in a row without an answer, or without a process for the run
ENDED = ("FINISHED", "FAILED", "ABORTED", "ABANDONED", "REJECTED")


class Lost(FedSageError):
    """The server, or its process of the run, is gone."""


@dataclass
class Followed:
    """A run that the coordinator follows: the names of run and job, and what was reported."""

    kit: Kit
    config: Config
    run: str
    job: str | None
    command: str
    on_line: Callable[[HistoryLine], None]
    say: Callable[[str], None]
    submitted: Callable[[str], None]
    reported: int = 0  # rounds


@contextmanager
def follow_job(
    kit: Kit,
    config: Config,
    known: dict[str, Any],
    command: str,
    on_line: Callable[[HistoryLine], None],
    say: Callable[[str], None],
    submitted: Callable[[str], None],
) -> Iterator[Path]:
    """Submit a run, or find the one still running; yields the folder with its result.

    If the server is lost on the way, it waits for it, and continues the run as a new job.

    Args:
        kit: The coordinator's.
        config: All settings of the run.
        known: The ``run``'s name, and its latest ``job``.
        command: The coordinator's command line.
        on_line: Called for each round.
        say: Called with messages on the way.
        submitted: Called with the name of the job.

    Raises:
        ProtocolError: The run stopped; all parties keep what they have.
    """
    one = Followed(kit, config, known["run"], known["job"], command, on_line, say, submitted)
    wait, pause, met = config.federation.wait, POLL, False
    until = time.monotonic() + wait
    with tempfile.TemporaryDirectory() as scratch:
        while True:
            before = one.reported
            try:
                with session(kit) as talk, in_our_words():
                    met = True
                    follow(talk, one, Path(scratch))
                    yield fetched(talk, str(one.job), Path(scratch), one)
                    return
            except (Unreachable, Lost) as error:
                if one.reported > before:
                    until, pause = time.monotonic() + wait, POLL
                if not met:
                    raise
                if time.monotonic() > until:
                    raise stopped(str(error)) from None
                left = until - time.monotonic()
                say(f"{str(error).split(' (')[0]}; waiting for it for up to {left:.0f} s")
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)


@contextmanager
def in_our_words() -> Iterator[None]:
    """Turn NVFlare's exceptions into an error that says how to continue."""
    try:
        yield
    except FedSageError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise stopped(f"{type(error).__name__} {first}".strip()) from None


def follow(talk: Any, one: Followed, scratch: Path) -> None:
    """Submit the run unless it is running; report every round once, until it is over."""
    if one.job is None or not goes_on(talk, one):
        place = Path(tempfile.mkdtemp(dir=scratch)) / GROUP
        owners = list(federation_of(one.kit)["owners"])
        members = str(federation_of(one.kit).get(MEMBERS, ""))
        write_job(place, one.config, owners, one.run, one.command, members)
        one.job = str(talk.submit_job(str(place)))
        one.submitted(one.job)
        one.say(f"run {one.run} is submitted")
    silent, idle, told = 0, 0, Waits(one.say)
    while True:
        try:
            state = str(talk.get_job_meta(one.job).get("status", ""))
            silent = 0
        except Exception:
            silent += 1
            if silent > LOST:
                raise Lost("The server no longer answers") from None
            time.sleep(POLL)
            continue
        if any(word in state for word in ENDED):
            return
        seen = look_at(talk)
        if seen is not None and seen.run == one.run:
            told.tell(seen, report_new(talk, one))
            idle = 0
        elif state == "RUNNING" and seen is not None and one.job not in seen.jobs:
            idle += 1
            if idle > LOST:
                raise Lost("The server has no process for the run any more")
        elif seen is not None and seen.run:
            told.tell_once(f"run {seen.run} is in progress; this one begins when it is over")
        time.sleep(POLL)


@dataclass
class Waits:
    """Says for whom a run waits when that changes, and every half minute."""

    say: Callable[[str], None]
    names: list[str] = field(default_factory=list)
    about: str = ""
    last: float = 0.0
    said: set[str] = field(default_factory=set)

    def tell_once(self, words: str) -> None:
        """Say something, unless it was said before."""
        if words not in self.said:
            self.say(words)
            self.said.add(words)

    def tell(self, seen: Status, consent: str) -> None:
        """Say it, if it is time; ``consent`` are the words while owners have to decide."""
        since, left = seen.waiting_seconds or 0.0, seen.deadline_seconds
        names = seen.waiting_for if since > PATIENCE and not consent else []
        more = "" if left is None else f", for {left:.0f} s more"
        who = f"waiting for {listed(names)}, for {since:.0f} s now{more}" if names else ""
        about = consent.split(", for ")[0] or listed(names)
        now = time.monotonic()
        changed = about != self.about or now - self.last > AGAIN
        if changed and (words := consent or who):
            self.say(words)
            self.last = now
        elif self.names and not names:
            self.say(f"{listed(self.names)}: no longer waited for")
        self.names, self.about = names, about


def look_at(talk: Any) -> Status | None:
    """What the server sees; None if it does not answer."""
    from fedsage.federation.presence import LOOK, ask

    return ask(talk.api.cell, LOOK)


def goes_on(talk: Any, one: Followed) -> bool:
    """Whether a job is done or still running; one that lost its server is aborted."""
    status = str(talk.get_job_meta(one.job).get("status", ""))
    if status == "RUNNING" and not is_at_work(talk, str(one.job)):
        with suppress(Exception):  # its server was killed, but NVFlare still lists it
            talk.abort_job(one.job)
            time.sleep(POLL)
        return False
    return status in ("RUNNING", "SUBMITTED", "DISPATCHED", "FINISHED:COMPLETED")


def is_at_work(talk: Any, job: str) -> bool:
    """Whether the server has a process for a job."""
    for _ in range(LOST):
        seen = look_at(talk)
        if seen is not None:
            return job in seen.jobs
        time.sleep(POLL)
    return False


def fetched(talk: Any, job: str, scratch: Path, one: Followed) -> Path:
    """What the server left of a job that is over; rounds since the last look are reported."""
    place = Path(talk.download_job_result(job, tempfile.mkdtemp(dir=scratch)))
    found = next(place.rglob(STATUS), None)
    if found is None:
        status = talk.get_job_meta(job).get("status", "unknown")
        raise Lost(f"The server's process of the run ended without a result ({status})")
    state = json.loads(found.read_text())
    if state["state"] != "done":
        raise stopped(str(state["error"]))
    for line in (found.parent / "history.jsonl").read_text().splitlines()[one.reported :]:
        one.on_line(HistoryLine(**json.loads(line)))
    return found.parent


def stopped(why: str) -> ProtocolError:
    """The error for a run that did not finish, with how to continue."""
    return ProtocolError(f"The run stopped: {why.rstrip('.')}. {RESUME}")


def report_new(talk: Any, one: Followed) -> str:
    """Report the server's new lines; returns for whose consent the run waits."""
    try:
        found = dict(talk.show_stats(one.job, "server")["server"][GROUP])
    except Exception:  # whatever NVFlare raises between two states of a job
        return ""
    lines = json.loads(found["lines"])
    for line in lines[one.reported :]:
        one.on_line(HistoryLine(**line))
    one.reported = max(one.reported, len(lines))
    return str(found["waits"])


def abort(kit: Kit, job: str) -> None:
    """End a job, whatever it is doing."""
    with session(kit) as talk, in_our_words():
        talk.abort_job(job)
