"""NVFlare at the server: a Controller that runs Algorithm 1, and the Engine it uses."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.widgets.info_collector import InfoCollector

from fedsage.config import Config
from fedsage.engines.inprocess import encoder
from fedsage.errors import ConfigError, FedSageError, ProtocolError
from fedsage.federation.allowed import with_own_copies
from fedsage.federation.now import NOW, Now
from fedsage.federation.serve import serve
from fedsage.federation.site import JOINING
from fedsage.files import write_json
from fedsage.models.classifier import save_models
from fedsage.protocol.engine import Engine, Miss
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.procedures import Procedure, Reply, Request
from fedsage.protocol.wire import decode
from fedsage.runs.events import Event
from fedsage.runs.folder import Provenance, write_result

FRAME, ASKED, ERROR, FATAL = "frame", "asked", "error", "fatal"  # parts of a reply
LOT = "lot"  # the number of a hidden sum, in a request: its masks hide the reply
STATUS, GROUP = "status.json", "fedsage"
GRACE = 1.0  # seconds to wait for an owner that was absent once all others have answered
TICK = 0.01
TO_START = 120.0  # seconds at least, before and after training: processes start, data is read


class NVFlareEngine(Engine):
    """Carries messages to owners' machines; leaves out owners that miss the deadline.

    An owner that was left out is asked again in every exchange but, until it answers, not
    waited for longer than the others take.
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
    ) -> None:
        super().__init__(range(len(names)), min_owners)
        self.now = now
        self.controller, self.fl_ctx, self.abort = controller, fl_ctx, abort
        self.names, self.run, self.deadline = names, run, deadline
        self.count = 0  # of exchanges: a reply must name the one it answers
        self.away: set[OwnerId] = set()
        self.took: dict[str, float] = {}  # seconds, by procedure, the last time it was answered

    def name_of(self, owner: OwnerId) -> str:
        """The name in the owner's certificate."""
        return self.names[owner]

    def carry(
        self,
        procedure: Procedure[Any, Request, Reply],
        requests: Mapping[OwnerId, Request],
        lot: int | None = None,
    ) -> dict[OwnerId, Reply | Miss]:
        """Send one task to every owner, each with its own payload."""
        self.count += 1
        asked = f"{self.run}/{self.count}/{procedure.name}"
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

        That is twice as long as the others take, or took the last time, plus a second.
        """
        start, others, name = time.monotonic(), None, procedure.name
        deadline = self.longest(procedure)
        with arrived:
            while not asked <= set(found):
                if self.abort.triggered:
                    raise ProtocolError("the run was aborted")
                taken = time.monotonic() - start
                if asked - self.away <= set(found):
                    usual = self.took.get(name, 0.0)
                    if others is None and asked - self.away:
                        others = taken
                    if taken > 2 * max(usual, others or 0.0) + GRACE:
                        return
                if taken > deadline:
                    return
                arrived.wait(TICK)
            self.took[name] = time.monotonic() - start

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
            return Miss(i, procedure.name, str(error))
        frame = reply.get(FRAME)
        if reply.get_return_code() != ReturnCode.OK or not isinstance(frame, bytes):
            return Miss(i, procedure.name, f"failed ({reply.get_return_code()})")
        if reply.get(ASKED) != asked:
            return Miss(i, procedure.name, f"an answer to {reply.get(ASKED)}, not to {asked}")
        self.traffic[procedure.phase].up += len(frame)
        try:
            return decode(procedure.reply, frame)
        except Exception as error:  # whatever is wrong with it, it is not used
            return Miss(i, procedure.name, str(error))


class FedSageController(Controller):  # type: ignore[misc]
    """Runs one federated training in the server's job process.

    Args:
        settings: All settings of the run, as JSON.
        run: Its name; a job of the same name continues where the last one stopped.
        owners: Names of the sites, in the order of their numbers.
        deadline: Seconds that an owner has to answer.
        min_owners: With fewer answers the run stops.
        command: The coordinator's command line.
        files: Checksums of the user's own files that the settings name, by setting.
    """

    def __init__(
        self,
        settings: str,
        run: str,
        owners: list[str],
        deadline: float,
        min_owners: int,
        command: str,
        files: dict[str, str],
    ) -> None:
        super().__init__(task_check_period=TICK)
        self.settings, self.run_name, self.names = settings, run, owners
        self.deadline, self.min_owners, self.command = deadline, min_owners, command
        self.files = files
        self.lines: list[dict[str, Any]] = []
        self.waits = ""  # for whom the run waits

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to prepare."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to clean up."""

    def process_result_of_unknown_task(self, *arguments: Any, **more: Any) -> None:
        """Ignore an answer that came too late."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Report the progress of the run when the coordinator asks."""
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            collector = fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR)
            if collector:
                told = {"lines": json.dumps(self.lines), "waits": self.waits}
                collector.set_info(GROUP, told)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """The whole run; its result is left where the coordinator can fetch it."""
        workspace = fl_ctx.get_workspace()
        results = Path(workspace.get_run_dir(fl_ctx.get_job_id())) / GROUP
        kept = Path(workspace.get_root_dir()) / GROUP / "runs" / self.run_name
        results.mkdir(parents=True, exist_ok=True)
        try:
            self.train(fl_ctx, abort_signal, kept, results)
            write_json(results / STATUS, {"state": "done"})
        except FedSageError as error:
            write_json(results / STATUS, {"state": "stopped", "error": str(error)})
            self.system_panic(str(error), fl_ctx)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            write_json(results / STATUS, {"state": "failed", "error": said})
            self.log_error(fl_ctx, traceback.format_exc())
            self.system_panic(said, fl_ctx)

    def train(self, fl_ctx: FLContext, abort: Signal, kept: Path, results: Path) -> None:
        """Algorithm 1 over the network."""
        config = Config.model_validate(json.loads(self.settings))
        here, own = version("fedsage"), kept.parent.parent
        now = Now(own / NOW, self.run_name, self.names).start()
        engine = NVFlareEngine(
            self, fl_ctx, abort, self.names, self.run_name, self.deadline, self.min_owners, now
        )
        rounds = {"training": config.classifier.rounds_c}

        def observe(event: Event) -> None:
            self.waits = event.words if event.what == "waits" else ""
            if event.line is not None:
                self.lines.append(asdict(event.line))
                now.tell(round=event.round + 1)
            elif event.what == "begins" and event.phase != "load":
                now.tell(phase=event.phase, round=0, rounds=rounds.get(event.phase))

        served = serve(
            with_own_copies(config, self.files, own), engine, self.names, self.run_name, here,
            kept, observe, self.settings, self.files,
        )  # fmt: skip
        save_models([served.model], results)
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        (results / "history.jsonl").write_text(text)
        provenance = Provenance(config.model_dump(mode="json"), self.command)
        write_result(results, served.record, provenance)
