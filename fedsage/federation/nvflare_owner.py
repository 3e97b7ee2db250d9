"""NVFlare at an owner: an Executor that answers, and the filter that guards what leaves."""

from __future__ import annotations

import json
import traceback
from importlib.metadata import version
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.apis.signal import Signal

from fedsage.errors import DataError, FedSageError
from fedsage.federation.gate import Gate
from fedsage.federation.nvflare_server import ASKED, ERROR, FRAME, GROUP
from fedsage.federation.site import Site
from fedsage.graph.owned import read_owned

PLACE = "owner.json"  # in the kit's ``fedsage`` folder: where the data is
ALLOWED = {FRAME, ASKED, ERROR, ReservedHeaderKey.HEADERS}  # parts of a reply that may leave
LONGEST_HEADERS = 4096  # characters
GATES: dict[str, Gate] = {}  # of this process, by the name of the job


class FedSageExecutor(Executor):  # type: ignore[misc]
    """One owner's job process: every task is a procedure, its reply a message."""

    def __init__(self) -> None:
        super().__init__()
        self.site: Site | None = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Do what is asked."""
        reply = make_reply(ReturnCode.OK)
        reply[ASKED] = shareable.get(ASKED)
        try:
            site = self.site or self.open_house(fl_ctx)
            reply[FRAME] = site.answer(task_name, bytes(shareable[FRAME]))
        except DataError as error:
            self.log_error(fl_ctx, str(error))
            reply[ERROR] = "its data cannot be used (the owner's log says why)"
        except FedSageError as error:
            reply[ERROR] = str(error)
        except Exception as error:
            self.log_error(fl_ctx, traceback.format_exc())
            reply[ERROR] = f"{type(error).__name__} (the owner's log says more)"
        return reply

    def open_house(self, fl_ctx: FLContext) -> Site:
        """Read the data; what the gate knows of the run is shared with the filter."""
        kit = Path(fl_ctx.get_workspace().get_root_dir())
        place = json.loads((kit / GROUP / PLACE).read_text())
        name = fl_ctx.get_identity_name()

        def tell(words: str) -> None:
            self.log_info(fl_ctx, words)

        runs = kit / GROUP / "runs"
        self.site = Site(name, read_owned(place["data"]), runs, version("fedsage"), tell)
        GATES[fl_ctx.get_job_id()] = self.site.gate
        return self.site


class OnlyMessages(Filter):  # type: ignore[misc]
    """Looks at everything that leaves: messages of the agreed run, and nothing else.

    It is named in the owner's own ``privacy.json``, so that no job can leave it out.
    """

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """The reply as it is, or an error in its place."""
        task = str(fl_ctx.get_prop(FLContextKey.TASK_NAME, ""))
        gate = GATES.get(fl_ctx.get_job_id())
        headers = shareable.get(ReservedHeaderKey.HEADERS, {})
        strange = [key for key in shareable if key not in ALLOWED]
        if strange or len(json.dumps(headers, default=str)) > LONGEST_HEADERS:
            what = strange[0] if strange else ReservedHeaderKey.HEADERS
            return refused(shareable, f"'{what}' is nothing that may leave this owner.")
        if ERROR in shareable:
            return shareable
        try:
            if gate is None:
                return refused(shareable, "no run was agreed on.")
            gate.check(task, bytes(shareable[FRAME]))
        except (FedSageError, KeyError) as error:
            return refused(shareable, str(error))
        return shareable


def refused(shareable: Shareable, why: str) -> Shareable:
    """An error in place of what must not leave."""
    reply = make_reply(ReturnCode.OK)
    reply[ASKED] = shareable.get(ASKED)
    reply[ERROR] = f"refused by this owner's filter: {why}"
    return reply
