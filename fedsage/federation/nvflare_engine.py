"""NVFlare carries messages between the server's job and those of the owners."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedsage.errors import ConfigError, ProtocolError
from fedsage.federation.owner.site import JOINING
from fedsage.federation.status.current_run import Now
from fedsage.federation.status.status import OwnerStatus
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.plan import Engine, Miss
from fedsage.protocol.procedures import Procedure, Reply, Request
from fedsage.protocol.wire import decode, encoder

FRAME, ASKED, ERROR, FATAL = "frame", "asked", "error", "fatal"  # parts of a reply
LATER = "later"  # with an error: the owner's people can put it right, so ask again
LOT = "lot"  # the number of a hidden sum, in a request: its masks hide the reply
FRESH = "it has just been started, and joins after this round"
GRACE = 1.0  # seconds to wait for an owner that was absent once all others have answered
TICK = 0.01
LOOK = 0.5  # seconds between two looks at who is there
STUCK = 5.0  # seconds until an owner that cannot answer is asked again
SILENT = 15.0  # seconds without a sign of life, after which nobody waits for an answer
TO_START = 120.0  # seconds at least, before and after training: processes start, data is read


class Returned(Exception):
    """An owner that was started again is ready to join, and a round has just been kept."""


class NVFlareEngine(Engine):
    """Carries messages to owners' machines; leaves out owners that miss the deadline.

    An owner that was left out is asked again in every exchange but, until it answers, not
    waited for longer than the others take.

    Args:
        controller: NVFlare's, which sends and receives.
        fl_ctx: Its context.
        abort: Set when the run is to end.
        names: Of the owners, in the order of their numbers.
        run: The name of the run.
        deadline: Seconds that an owner has to answer.
        min_owners: With fewer answers an exchange fails.
        now: Where it tells what it does.
        there: What the server's main process knows of the owners, by name.
    """

    def __init__(
        self,
        controller: Controller,
        fl_ctx: FLContext,
        abort: Signal,
        names: list[str],
        run: str,
        deadline: float,
        min_owners: int,
        now: Now,
        there: Callable[[], Mapping[str, OwnerStatus]],
    ) -> None:
        super().__init__(range(len(names)), min_owners)
        self.controller, self.fl_ctx, self.abort = controller, fl_ctx, abort
        self.names, self.run, self.deadline = names, run, deadline
        self.now, self.there = now, there
        self.count = 0  # of exchanges: a reply must name the one it answers
        self.part = 0  # of the run: owners join every one anew
        self.away: set[OwnerId] = set()
        self.fresh: set[OwnerId] = set()  # started again, not yet in this part of the run
        self.stuck: dict[OwnerId, str] = {}  # there, but unable to answer for now, and why
        self.round_over = False  # since the last exchange
        self.took: dict[str, float] = {}  # seconds, by procedure, the last time it was answered
        self.working: set[OwnerId] = set()  # when last looked
        self.worked: set[OwnerId] = set()  # at any time

    def name_of(self, owner: OwnerId) -> str:
        """The name in the owner's certificate."""
        return self.names[owner]

    def begin(self) -> None:
        """Begin a part of the run: all owners join, from the last round that was kept.

        Who was started again between two looks has a new token, too.
        """
        self.fl_ctx.get_engine().sync_clients_from_main_process()
        self.part += 1
        self.round_over = False
        self.fresh.clear()
        self.stuck.clear()
        self.away.clear()
        self.owners = list(range(len(self.names)))

    def carry(
        self,
        procedure: Procedure[Any, Request, Reply],
        requests: Mapping[OwnerId, Request],
        lot: int | None = None,
    ) -> dict[OwnerId, Reply | Miss]:
        """Send one task to every owner, each with its own payload."""
        if self.round_over and self.fresh:
            raise Returned
        self.round_over = False
        self.count += 1
        asked = f"{self.run}/{self.part}/{self.count}/{procedure.name}"
        frame_for, found = encoder(requests), dict[OwnerId, Shareable]()
        arrived = threading.Condition()

        def receiver(i: OwnerId) -> Any:
            def receive(client_task: ClientTask, fl_ctx: FLContext) -> None:
                with arrived:
                    found[i] = client_task.result
                    arrived.notify_all()
                self.now.answered(self.names[i])
                client_task.result = None

            return receive

        tasks = {}
        asked_owners = [self.names[i] for i in requests]
        self.now.asks(procedure.name, asked_owners, self.longest(procedure))
        self.look()
        for i in requests:
            payload = Shareable()
            frame = frame_for(i)
            payload[FRAME], payload[ASKED], payload[LOT] = frame, asked, lot
            self.traffic[procedure.phase].down += len(frame)
            tasks[i] = Task(procedure.name, payload, timeout=0, result_received_cb=receiver(i))
            self.controller.broadcast(
                tasks[i], self.fl_ctx, targets=[self.names[i]], min_responses=1,
                wait_time_after_min_received=0,
            )  # fmt: skip
        self.wait(procedure, set(requests), found, arrived)
        for i, task in tasks.items():
            if i not in found:
                self.controller.cancel_task(task, fl_ctx=self.fl_ctx)
                self.now.missed(self.names[i])
        self.away = (self.away | set(requests)) - set(found)
        return {i: self.opened(procedure, i, asked, found.get(i)) for i in requests}

    def longest(self, procedure: Procedure[Any, Any, Any]) -> float:
        """How many seconds an owner has for a procedure."""
        outside = procedure.name in JOINING
        return max(self.deadline, TO_START) if outside else self.deadline

    def wait(
        self,
        procedure: Procedure[Any, Any, Any],
        asked: set[OwnerId],
        found: Mapping[OwnerId, Shareable],
        arrived: threading.Condition,
    ) -> None:
        """Wait until all have answered, or the deadline; little longer for absent owners.

        That is twice as long as the others take, or took the last time, plus a second. Who is
        gone is not waited for.
        """
        start, others, name = time.monotonic(), None, procedure.name
        deadline, looked, gone = self.longest(procedure), start, set[OwnerId]()
        with arrived:
            while not asked - gone <= set(found):
                if self.abort.triggered:
                    raise ProtocolError("the run was aborted")
                now = time.monotonic()
                taken = now - start
                if now - looked > LOOK:
                    looked, gone = now, self.look()
                if asked - self.away - gone <= set(found):
                    usual = self.took.get(name, 0.0)
                    if others is None and asked - self.away - gone:
                        others = taken
                    if taken > 2 * max(usual, others or 0.0) + GRACE:
                        return
                if taken > deadline:
                    return
                arrived.wait(TICK)
            self.took[name] = time.monotonic() - start

    def look(self) -> set[OwnerId]:
        """Who is gone: silent for long, or without the process that did the run's work.

        A process that was started again has another token, which this one must learn.
        """
        seen = self.there()
        known = {i: seen[name] for i, name in enumerate(self.names) if name in seen}
        working = {i for i, one in known.items() if one.connected and one.working}
        if working - self.working:
            self.fl_ctx.get_engine().sync_clients_from_main_process()
        self.working = working
        gone = {i for i, one in known.items() if one.connected and i in self.worked - working}
        self.worked |= working
        return gone | {
            i
            for i, one in known.items()
            if not one.connected and (one.seconds is None or one.seconds > SILENT)
        }

    def await_owners(self, members: set[OwnerId], until: float) -> bool:
        """Wait until enough members are there; false when time is up."""
        self.look()
        missing = [self.names[i] for i in sorted(members - self.working | set(self.stuck))]
        if missing:
            self.now.waits(missing, until - time.monotonic())
        needed = min(self.min_owners, len(members))
        while True:
            time.sleep(STUCK if self.stuck else LOOK)
            self.look()
            if len(members & self.working) >= needed:
                return True
            if self.abort.triggered:
                raise ProtocolError("the run was aborted")
            if time.monotonic() > until:
                return False

    def opened(
        self,
        procedure: Procedure[Any, Any, Any],
        i: OwnerId,
        asked: str,
        reply: Shareable | None,
    ) -> Any | Miss:
        """The message in a reply, or what is wrong with it."""
        if reply is None:
            return Miss(i, procedure.name, f"no answer within {self.deadline:g} s")
        if error := reply.get(ERROR):
            if reply.get(FATAL):
                raise ConfigError(f"Owner {self.names[i]}: {error}")
            if error == FRESH:
                self.fresh.add(i)
                self.now.missed(self.names[i])
            if reply.get(LATER):
                self.stuck[i] = str(error)
                self.now.missed(self.names[i])
            return Miss(i, procedure.name, str(error))
        frame, code = reply.get(FRAME), reply.get_return_code()
        if code != ReturnCode.OK:  # something around our own code: a full disk, for example
            self.stuck[i] = f"failed ({code})"
            self.now.missed(self.names[i])
        if code != ReturnCode.OK or not isinstance(frame, bytes):
            return Miss(i, procedure.name, f"failed ({code})")
        if reply.get(ASKED) != asked:
            return Miss(i, procedure.name, f"an answer to {reply.get(ASKED)}, not to {asked}")
        self.traffic[procedure.phase].up += len(frame)
        try:
            return decode(procedure.reply, frame)
        except Exception as error:  # whatever is wrong with it, it is not used
            return Miss(i, procedure.name, str(error))
