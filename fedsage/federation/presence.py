"""Signs of life: owners tell the server that they are there, and learn who else is.

Both components live in NVFlare's long-running processes, and import little.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import CellMessageHeaderKeys, new_cell_message

from fedsage.federation.kits.kit import FEDERATION, OURS
from fedsage.federation.processes.log import note
from fedsage.federation.server.rejoin import bring_back, free_of_outcomes, runs
from fedsage.federation.status.current_run import NOW, read_now
from fedsage.federation.status.status import (
    BEAT,
    GONE,
    SLOW,
    OwnerStatus,
    Status,
    status_in,
    store,
)

CHANNEL, SIGN, LOOK = "fedsage", "sign", "look"
ANSWER = 2.0  # seconds for the server to answer
AGAIN = 2.0  # seconds between two attempts to start an owner's process
MOST = 100  # jobs that an owner may name


@dataclass(slots=True)
class Seen:
    """When an owner was heard of, on the server's steady clock."""

    last: float
    since: float  # it has been connected, or gone, since then
    there: bool = True
    jobs: list[str] = field(default_factory=list)  # that it has processes for
    asked: float = 0.0  # to start one, the last time


def picture(
    now: float, owners: list[str], seen: Mapping[str, Seen], run: Mapping[str, Any] | None
) -> Status:
    """The state of the federation at the server.

    Args:
        now: The server's steady clock.
        owners: Names of all owners.
        seen: When each of them was heard of.
        run: What the job in progress wrote last.
    """
    run = run or {"members": [], "answers": {}, "missing": {}, "expected": []}
    there = {name for name, one in seen.items() if one.there}
    asked, answers, missing = run.get("asked"), run["answers"], dict(run["missing"])
    done = [name for name in run["expected"] if answers.get(name, -1.0) >= (asked or 0.0)]
    if asked is not None and now - asked > SLOW:
        missing |= {name: asked for name in run["expected"] if name not in (*done, *missing)}
    found = {
        name: OwnerStatus(
            connected=name in there,
            in_run=name in run["members"] and name in there and name not in run["missing"],
            last_answer_seconds=round(now - answers[name], 1) if name in answers else None,
            working=name in there and run.get("job") in seen[name].jobs,
            seconds=round(now - seen[name].since, 1) if name in seen else None,
        )
        for name in owners
    }
    deadline = run.get("deadline")
    return Status(
        server="up",
        run=run.get("run"),
        phase=run.get("phase"),
        round=run.get("round"),
        rounds=run.get("rounds"),
        exchange=run.get("exchange"),
        answered=done,
        exchange_seconds=None if asked is None else round(now - asked, 1),
        owners=found,
        waiting_for=sorted(missing),
        decisions=run.get("decisions", ""),
        waiting_seconds=round(now - min(missing.values()), 1) if missing else None,
        deadline_seconds=max(0.0, round(deadline - now, 1)) if missing and deadline else None,
    )


class ServerPresence(FLComponent):  # type: ignore[misc]
    """Hears owners' signs of life, and tells everyone what the server sees."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Any = None
        self.seen: dict[str, Seen] = {}
        self.lock = threading.Lock()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin when the server is up; a run does not depend on owners' processes."""
        if event_type == EventType.JOB_STARTED:
            job = fl_ctx.get_prop(FLContextKey.EVENT_DATA)[JobMetaKey.JOB_ID.value]
            free_of_outcomes(self.engine, job, self.owners)
        if event_type != EventType.SYSTEM_START:
            return
        self.engine = fl_ctx.get_engine()
        self.ours = Path(self.engine.args.workspace) / OURS
        (self.ours / NOW).unlink(missing_ok=True)
        cell = self.engine.get_cell().core_cell  # small messages need no streams
        cell.register_request_cb(channel=CHANNEL, topic="*", cb=self.answer)
        threading.Thread(target=self.keep_up, daemon=True).start()

    @property
    def owners(self) -> list[str]:
        """The members of the federation, as of now."""
        return list(json.loads((self.ours / FEDERATION).read_text())["owners"])

    def answer(self, request: Message) -> Message:
        """Note who is there; the answer is what the server sees."""
        name = str(request.get_header(CellMessageHeaderKeys.CLIENT_NAME))
        if request.get_header(MessageHeaderKey.TOPIC) == SIGN and name in self.owners:
            now = time.monotonic()
            with self.lock:
                if name not in self.seen:
                    note(self.ours, f"{name} is connected.")
                one = self.seen.setdefault(name, Seen(now, now))
                one.last, one.jobs = now, jobs_in(request.payload)
        told = json.dumps(asdict(self.look()))
        return make_reply(ReturnCode.OK, "", told)

    def look(self) -> Status:
        """What the server sees now."""
        now, run = time.monotonic(), read_now(self.ours / NOW)
        if run is not None and not psutil.pid_exists(run["process"]):
            run = None
        changed: list[str] = []
        with self.lock:
            for name, one in self.seen.items():
                there = now - one.last < GONE
                if there != one.there:
                    one.there, one.since = there, one.last
                    changed.append(f"{name} is {'back' if there else 'gone'}.")
            found = picture(now, self.owners, self.seen, run)
        for words in changed:
            note(self.ours, words)
        return replace(found, jobs=list(self.engine.run_processes))

    def keep_up(self) -> None:
        """Store what the server sees, for its own people."""
        while True:
            try:
                store(self.ours, self.look())
            except OSError:  # a full disk: the next look may succeed
                pass
            self.bring_back()
            time.sleep(BEAT)

    def bring_back(self) -> None:
        """Give owners that are there without a process for the run a new one."""
        run = read_now(self.ours / NOW)
        if run is None or not runs(self.engine, run["job"]):
            return
        now = time.monotonic()
        for name, one in list(self.seen.items()):
            idle = one.there and run["job"] not in one.jobs and name in run["members"]
            if idle and now - max(one.asked, one.since) > AGAIN:
                one.asked = now
                about = self.engine, run["job"], name
                threading.Thread(target=bring_back, args=about, daemon=True).start()


class OwnerPresence(FLComponent):  # type: ignore[misc]
    """Tells the server that this owner is there, and keeps what the server answers."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin when this owner has registered."""
        if event_type == EventType.SYSTEM_START:
            self.ours = Path(fl_ctx.get_engine().args.workspace) / OURS
            self.engine = fl_ctx.get_engine()
            threading.Thread(target=self.keep_up, daemon=True).start()

    def keep_up(self) -> None:
        """Send a sign of life twice a second."""
        heard, there = time.monotonic(), False
        while True:
            begin = time.monotonic()
            jobs = self.engine.client_executor.get_run_processes_keys()
            if (told := ask(self.engine.get_cell(), SIGN, json.dumps(jobs))) is not None:
                try:
                    store(self.ours, told)
                except OSError:  # a full disk: the next one may fit
                    pass
                heard = time.monotonic()
            if there != (begin <= heard or (there and time.monotonic() - heard < GONE)):
                there = not there
                note(self.ours, f"The server {'is there' if there else 'does not answer'}.")
            time.sleep(max(0.0, BEAT - (time.monotonic() - begin)))


def jobs_in(told: Any) -> list[str]:
    """The jobs that an owner names in a sign of life; none if it is not well formed."""
    try:
        return [str(job) for job in json.loads(told)][:MOST]
    except (ValueError, TypeError):
        return []


def ask(cell: Any, topic: str, said: str = "") -> Status | None:
    """Ask the server what it sees; None if it does not answer."""
    reply = cell.core_cell.send_request(
        channel=CHANNEL, topic=topic, target="server", request=new_cell_message({}, said),
        timeout=ANSWER, optional=True,
    )  # fmt: skip
    if reply.get_header(MessageHeaderKey.RETURN_CODE) != ReturnCode.OK:
        return None
    try:
        return status_in(json.loads(reply.payload))
    except (ValueError, TypeError, AttributeError):
        return None
