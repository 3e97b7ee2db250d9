"""NVFlare at an owner: an Executor that answers, and the filter that guards what leaves."""

from __future__ import annotations

import hashlib
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

from fedsage.data.owned import Owned, read_owned
from fedsage.errors import (
    ConfigError,
    DataError,
    FedSageError,
    PrivacyError,
    StorageError,
)
from fedsage.federation.consent.policy import read_policy
from fedsage.federation.kits.certificates import Certified
from fedsage.federation.kits.kit import OURS, OWNER, open_kit
from fedsage.federation.kits.make import own_secret
from fedsage.federation.kits.members import take_members
from fedsage.federation.kits.old_runs import keep_within
from fedsage.federation.nvflare_engine import ASKED, ERROR, FATAL, FRAME, FRESH, LATER, LOT
from fedsage.federation.owner.site import Site
from fedsage.federation.processes.gate import ask_gate
from fedsage.federation.processes.log import note
from fedsage.protocol.door import Door

LONGEST_HEADERS = 4096  # characters
FIRST = (Site.consent.name, Site.agree.name)  # what a part of a run begins with
DOORS: dict[str, Door] = {}  # of this process, by the name of the job


class FedSageExecutor(Executor):  # type: ignore[misc]
    """One owner's job process: every task is a procedure, its reply a message.

    Args:
        members: The signed list of the federation's members, if there was a change.
    """

    def __init__(self, members: str = "") -> None:
        super().__init__()
        self.members = members
        self.site: Site | None = None
        self.owned: Owned | None = None  # read once
        self.part: list[str] = []  # of the run, that this owner has joined

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Run the procedure that is asked for."""
        reply = make_reply(ReturnCode.OK)
        reply[ASKED] = str(shareable.get(ASKED))[:300]
        part = reply[ASKED].split("/")[1:2]
        try:
            if task_name in FIRST and part != self.part:
                self.site, self.part = self.open_site(fl_ctx), part
            if self.site is None or part != self.part:
                reply[ERROR] = FRESH
                return reply
            site, lot = self.site, shareable.get(LOT)
            frame, number = bytes(shareable[FRAME]), None if lot is None else int(lot)
            reply[FRAME] = site.answer(task_name, frame, number)
        except DataError as error:
            self.note(fl_ctx, str(error))
            reply[ERROR] = "its data cannot be used (the owner's log says why)"
        except (StorageError, OSError) as error:
            self.note(fl_ctx, str(error))
            reply[ERROR] = "it cannot write to its disk (the owner's log says why)"
            reply[LATER] = True
        except FedSageError as error:
            self.note(fl_ctx, str(error))
            reply[ERROR] = str(error)[:1000]
            reply[FATAL] = isinstance(error, ConfigError | PrivacyError)
        except Exception as error:
            self.log_error(fl_ctx, traceback.format_exc())
            self.note(fl_ctx, f"{task_name} failed: {type(error).__name__} (see log.txt)")
            reply[ERROR] = f"{type(error).__name__} (the owner's log says more)"
        return reply

    def note(self, fl_ctx: FLContext, words: str) -> None:
        """Tell the owner's people."""
        note(Path(fl_ctx.get_workspace().get_root_dir()) / OURS, words)

    def open_site(self, fl_ctx: FLContext) -> Site:
        """Be ready to agree; the filter uses the same door, and so knows the agreed run."""
        kit = Path(fl_ctx.get_workspace().get_root_dir())
        place = json.loads((kit / OURS / OWNER).read_text())
        name = fl_ctx.get_identity_name()

        def tell(words: str) -> None:
            note(kit / OURS, words)

        runs = kit / OURS / "runs"
        keep_within(open_kit(kit), read_policy(kit).rules["most.disk_mb"])
        members = take_members(kit, self.members)
        identity = Certified(kit / "startup", members.owners)
        self.owned, here = self.owned or read_owned(place["data"]), version("fedsage")
        secret = own_secret(kit / OURS)
        site = Site(
            name, self.owned, runs, here, tell, identity, record=ask_gate, secret=secret
        )
        DOORS[fl_ctx.get_job_id()] = site.door
        return site


class OnlyMessages(Filter):  # type: ignore[misc]
    """Checks everything that leaves: only messages of the agreed run may.

    It is named in the owner's own ``privacy.json``, so that no job can omit it.
    """

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """The reply as it is, or an error instead."""
        task = str(fl_ctx.get_prop(FLContextKey.TASK_NAME, ""))
        door = DOORS.get(fl_ctx.get_job_id())
        try:
            if what := strange_part(shareable):
                return refused(shareable, f"'{what}' may not leave this owner")
            if ERROR in shareable:
                if door is not None:
                    door.log_error(task, shareable[ERROR])
                return shareable
            if door is None:
                return refused(shareable, "no run was agreed")
            if hashlib.sha256(shareable[FRAME]).hexdigest() != door.passed:
                return refused(shareable, "this did not go through the owner's door")
            door.passed = ""  # it may leave only once
        except Exception as error:  # whatever the error, nothing leaves
            words = str(error) if isinstance(error, FedSageError) else type(error).__name__
            return refused(shareable, words, isinstance(error, StorageError))
        return shareable


def strange_part(shareable: Shareable) -> str | None:
    """The first part of a reply that is not of a kind that may leave, or None."""
    headers = shareable.get(ReservedHeaderKey.HEADERS, {})
    kinds: dict[str, tuple[type, int]] = {
        FRAME: (bytes, 1 << 40), ASKED: (str, 300), ERROR: (str, 1000), FATAL: (bool, 1),
        LATER: (bool, 1),
    }  # fmt: skip
    for key, value in shareable.items():
        if key == ReservedHeaderKey.HEADERS:
            continue
        kind, longest = kinds.get(key, (type(None), 0))
        too_long = isinstance(value, bytes | str) and len(value) > longest
        if type(value) is not kind or too_long:
            return str(key)[:40]
    if FRAME in shareable and ERROR in shareable:
        return ERROR
    if len(json.dumps(headers, default=str)) > LONGEST_HEADERS:
        return str(ReservedHeaderKey.HEADERS)
    return None


def refused(shareable: Shareable, why: str, later: bool = False) -> Shareable:
    """An error instead of what must not leave; ``later`` it may."""
    reply = make_reply(ReturnCode.OK)
    reply[ASKED] = str(shareable.get(ASKED))[:300]
    reply[ERROR] = f"refused by this owner's filter: {why}"[:1000]
    if later:
        reply[LATER] = True
    return reply
