"""The coordinator's side: submit a run, follow it, fetch its result."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedsage.config import Config
from fedsage.errors import FedSageError, ProtocolError
from fedsage.federation.allowed import checksums_of
from fedsage.federation.kit import Kit, federation_of
from fedsage.federation.nvflare_server import GROUP, STATUS
from fedsage.federation.session import session
from fedsage.files import write_json
from fedsage.runs.events import HistoryLine

POLL = 1.0  # seconds between two looks at a run
RESUME = (
    "All parties keep what they have: check that they are running ('fedsage federation "
    "status'), then use the same command with --resume."
)
WAITING = 30  # polls between two lines about missing owners
LOST = 3  # polls in a row without an answer
ENDED = ("FINISHED", "FAILED", "ABORTED", "ABANDONED", "REJECTED")


def write_job(folder: Path, config: Config, owners: list[str], run: str, command: str) -> None:
    """Write what NVFlare needs: JSON files, and no code."""
    fed = config.federation
    least = fed.min_owners or len(owners)
    controller = {
        "settings": config.model_dump_json(), "run": run, "owners": owners,
        "deadline": fed.deadline, "min_owners": least, "command": command,
        "files": checksums_of(config),
    }  # fmt: skip
    server = {
        "format_version": 2,
        "server": {"heart_beat_timeout": 600, "task_request_interval": 0.02},
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [],
        "workflows": [
            {
                "id": GROUP,
                "path": "fedsage.federation.nvflare_server.FedSageController",
                "args": controller,
            }
        ],
    }
    executor = {"path": "fedsage.federation.nvflare_owner.FedSageExecutor", "args": {}}
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": executor}],
        "task_result_filters": [],
        "task_data_filters": [],
        "components": [],
    }
    config_folder = folder / "app" / "config"
    write_json(config_folder / "config_fed_server.json", server)
    write_json(config_folder / "config_fed_client.json", client)
    write_json(folder / "meta.json", {
        "name": GROUP, "resource_spec": {}, "min_clients": least,
        "deploy_map": {"app": ["server", *owners]},
    })  # fmt: skip


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
    owners = list(federation_of(kit)["owners"])
    with tempfile.TemporaryDirectory() as scratch, session(kit) as talk:
        with in_our_words():
            job = known["job"]
            if job is None or not goes_on(talk, job):
                write_job(Path(scratch) / GROUP, config, owners, known["run"], command)
                job = talk.submit_job(str(Path(scratch) / GROUP))
                submitted(job)
                say(f"run {known['run']} is submitted; it starts when the owners are connected")
            reported = follow(talk, job, on_line, say)
            found = fetched(talk, job, Path(scratch))
            for line in (found / "history.jsonl").read_text().splitlines()[reported:]:
                on_line(HistoryLine(**json.loads(line)))  # rounds since our last look
        yield found


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


def goes_on(talk: Any, job: str) -> bool:
    """Whether a job is done or still running; one that lost its server is aborted."""
    status = str(talk.get_job_meta(job).get("status", ""))
    if status == "RUNNING" and not is_at_work(talk, job):
        with suppress(Exception):  # its server was killed, but NVFlare still lists it
            talk.abort_job(job)
            time.sleep(POLL)
        return False
    return status in ("RUNNING", "SUBMITTED", "DISPATCHED", "FINISHED:COMPLETED")


def is_at_work(talk: Any, job: str) -> bool:
    """Whether a process works on a job; one that is just starting needs a few polls."""
    for _ in range(LOST):
        if statistics(talk, job) is not None:
            return True
        time.sleep(2 * POLL)
    return False


def fetched(talk: Any, job: str, scratch: Path) -> Path:
    """What the server left of a job that is over."""
    place = Path(talk.download_job_result(job, str(scratch / "result")))
    found = next(place.rglob(STATUS), None)
    if found is None:
        status = talk.get_job_meta(job).get("status", "unknown")
        raise stopped(f"it ended without a result ({status})")
    state = json.loads(found.read_text())
    if state["state"] != "done":
        raise stopped(str(state["error"]))
    return found.parent


def stopped(why: str) -> ProtocolError:
    """The error for a run that did not finish, with how to continue."""
    return ProtocolError(f"The run stopped: {why.rstrip('.')}. {RESUME}")


def follow(
    talk: Any,
    job: str,
    on_line: Callable[[HistoryLine], None],
    say: Callable[[str], None],
) -> int:
    """Report every round once, until the job is over; returns how many were reported."""
    reported, silent, looks, told = 0, 0, 0, -WAITING
    while True:
        try:
            status = str(talk.get_job_meta(job).get("status", ""))
            silent = 0
        except Exception:
            silent += 1
            if silent > LOST:
                raise stopped("the server no longer answers") from None
            time.sleep(POLL)
            continue
        if any(word in status for word in ENDED):
            return reported
        looks += 1
        if status == "RUNNING":
            reported, waits = report_new(talk, job, reported, on_line)
            if waits and looks - told >= WAITING:
                say(waits)
                told = looks
        elif looks % WAITING == 0:
            say(f"waiting to start; connected: {', '.join(connected(talk)) or 'nobody'}")
        time.sleep(POLL)


def report_new(
    talk: Any, job: str, reported: int, on_line: Callable[[HistoryLine], None]
) -> tuple[int, str]:
    """Report the server's new lines; returns how many, and for whom the run waits."""
    found = statistics(talk, job)
    lines = json.loads(found["lines"]) if found else []
    for line in lines[reported:]:
        on_line(HistoryLine(**line))
    return max(reported, len(lines)), found["waits"] if found else ""


def statistics(talk: Any, job: str) -> dict[str, str] | None:
    """What the controller of a job tells; None if no process works on it."""
    try:
        return dict(talk.show_stats(job, "server")["server"][GROUP])
    except Exception:  # whatever NVFlare raises between two states of a job
        return None


def connected(talk: Any) -> list[str]:
    """Names of the owners that the server is connected to."""
    return [client.name for client in talk.get_system_info().client_info]


def abort(kit: Kit, job: str) -> None:
    """End a job, whatever it is doing."""
    with session(kit) as talk, in_our_words():
        talk.abort_job(job)
