"""NVFlare at the server: a Controller that runs Algorithm 1, part by part."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal
from nvflare.widgets.info_collector import InfoCollector

from fedsage.config import Config
from fedsage.errors import Absent, FedSageError
from fedsage.federation.consent.own_files import with_own_copies
from fedsage.federation.consent.policy import read_policy
from fedsage.federation.kits.kit import open_kit
from fedsage.federation.kits.members import take_members
from fedsage.federation.kits.old_runs import keep_within
from fedsage.federation.nvflare_engine import TICK, NVFlareEngine, Returned
from fedsage.federation.processes.log import note
from fedsage.federation.server.serve import Served, serve
from fedsage.federation.status import status
from fedsage.federation.status.current_run import NOW, Now
from fedsage.files import write_json
from fedsage.models.classifier import save_models
from fedsage.readable import counted, listed
from fedsage.runs.events import Event
from fedsage.runs.folder import Provenance, write_result

STATUS, GROUP = "status.json", "fedsage"


class FedSageController(Controller):  # type: ignore[misc]
    """Runs one federated training in the server's job process.

    Args:
        settings: All settings of the run, as JSON.
        run: Its name; a job of the same name continues where the last one stopped.
        owners: Names of the sites, in the order of their numbers.
        deadline: Seconds that an owner has to answer.
        min_owners: With fewer answers the run waits.
        wait: So many seconds, then it stops.
        command: The coordinator's command line.
        files: Checksums of the user's own files that the settings name, by setting.
        members: The signed list of the federation's members, if there was a change.
    """

    def __init__(
        self,
        settings: str,
        run: str,
        owners: list[str],
        deadline: float,
        min_owners: int,
        wait: float,
        command: str,
        files: dict[str, str],
        members: str = "",
    ) -> None:
        super().__init__(task_check_period=TICK)
        self.settings, self.run_name, self.names = settings, run, owners
        self.deadline, self.min_owners, self.command = deadline, min_owners, command
        self.files, self.wait, self.members = files, wait, members
        self.lines: list[dict[str, Any]] = []
        self.waits = ""  # for whose consent the run waits

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
            note(kept.parent.parent, f"Run {self.run_name} begins.")
            self.train(fl_ctx, abort_signal, kept, results)
            write_json(results / STATUS, {"state": "done"})
            note(kept.parent.parent, f"Run {self.run_name} is over.")
        except FedSageError as error:
            write_json(results / STATUS, {"state": "stopped", "error": str(error)})
            note(kept.parent.parent, f"Run {self.run_name} stopped: {error}")
            self.system_panic(str(error), fl_ctx)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            write_json(results / STATUS, {"state": "failed", "error": said})
            self.log_error(fl_ctx, traceback.format_exc())
            self.system_panic(said, fl_ctx)

    def train(self, fl_ctx: FLContext, abort: Signal, kept: Path, results: Path) -> None:
        """Algorithm 1 over the network."""
        config = Config.model_validate(json.loads(self.settings))
        own = kept.parent.parent
        take_members(own.parent, self.members)
        most = read_policy(own.parent).rules["most.disk_mb"]
        keep_within(open_kit(own.parent), most, but=self.run_name)
        now = Now(own / NOW, self.run_name, fl_ctx.get_job_id(), self.names).start()

        def there() -> Mapping[str, status.OwnerStatus]:
            found, age = status.stored(own)
            return found.owners if age < status.GONE else {}

        engine = NVFlareEngine(
            self, fl_ctx, abort, self.names, self.run_name, self.deadline, self.min_owners,
            now, there,
        )  # fmt: skip
        served = self.parts(config, engine, now, kept)
        save_models([served.model], results)
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        (results / "history.jsonl").write_text(text)
        provenance = Provenance(config.model_dump(mode="json"), self.command)
        write_result(results, served.record, provenance)

    def parts(self, config: Config, engine: NVFlareEngine, now: Now, kept: Path) -> Served:
        """The run, part by part: a new one begins when owners come back.

        A part continues after the last round that was kept. If too few owners are there, the
        run waits for them, but not longer than ``wait`` since the last round. If an answer was
        refused, all are asked once more.
        """
        here, own = version("fedsage"), kept.parent.parent
        done, until, again = 0, time.monotonic() + self.wait, False
        rounds = {"training": config.classifier.rounds_c}

        def observe(event: Event) -> None:
            nonlocal until
            if self.waits and event.what != "waits" and not done:  # owners have decided
                until = time.monotonic() + self.wait
            self.waits = event.words if event.what == "waits" else ""
            now.tell(decisions=self.waits)
            if event.line is not None:
                lines.append(asdict(event.line))
                now.tell(phase=event.phase, round=event.round + 1)
                engine.round_over = True
            elif event.what == "begins" and event.phase != "load":
                now.tell(phase=event.phase, round=0, rounds=rounds.get(event.phase))

        while True:
            lines = self.lines = list[dict[str, Any]]()
            engine.begin()
            try:
                return serve(
                    with_own_copies(config, self.files, own), engine, self.names, self.run_name,
                    here, kept, observe, self.settings, self.files,
                )  # fmt: skip
            except Returned:
                names = listed([engine.names[i] for i in sorted(engine.fresh)])
                after = counted(len(lines), "round")
                note(own, f"{names} rejoins run {self.run_name} after {after}.")
            except Absent:
                if len(lines) > done:
                    done, until, again = len(lines), time.monotonic() + self.wait, False
                lost = engine.away | engine.fresh | set(engine.stuck)
                if again and not lost:
                    raise
                again = not lost
                names = listed([engine.names[i] for i in sorted(lost)])
                if lost and (lines or engine.part == 1):
                    note(own, f"Run {self.run_name} waits for {names}.")
                if engine.stuck:
                    why = [f"{engine.names[i]}: {why}" for i, why in engine.stuck.items()]
                    self.waits = f"waiting for {'; '.join(why)}"
                late = time.monotonic() > until
                if late or not engine.await_owners(set(engine.owners), until):
                    raise
