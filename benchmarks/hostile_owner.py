"""An owner that does not keep to the protocol, for ``benchmarks/chaos.py``.

Its filter comes after ours in the owner's own ``privacy.json``, so it sees what would leave and
may send something else. It does so once, whenever ``fedsage/hostile`` in its kit says how.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from pathlib import Path

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable

from fedsage.federation.kits.kit import Kit
from fedsage.federation.nvflare_engine import FRAME
from fedsage.files import write_json

ORDER = "hostile"  # in the kit: replayed, duplicated, cut short, or too large
TOO_MUCH = 80 << 20  # bytes
LATER = 0.05  # seconds after a reply that its copy is sent


def make_hostile(kit: Kit) -> None:
    """Give an owner's kit the filter below."""
    privacy, resources = (
        kit.path / "local" / name for name in ("privacy.json", "resources.json")
    )
    path = "hostile_owner.Otherwise"
    held = json.loads(privacy.read_text())
    held["scopes"][0]["task_result_filters"].append({"path": path, "args": {}})
    write_json(privacy, held)
    about = json.loads(resources.read_text())
    about["class_allow_list"].append(path)
    write_json(resources, about)


class Otherwise(Filter):  # type: ignore[misc]
    """Sends something else than the owner's reply when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Shareable | None = None  # the last reply

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """The reply, or something else."""
        if FRAME not in shareable:
            return shareable
        order = Path(fl_ctx.get_workspace().get_root_dir()) / "fedsage" / ORDER
        how = order.read_text() if order.exists() else ""
        order.unlink(missing_ok=True)
        before, self.before = self.before, copy.deepcopy(shareable)
        if how == "replayed" and before is not None:
            return before
        if how == "duplicated":
            threading.Thread(target=send_again, args=(self.before, fl_ctx)).start()
        if how == "cut short":
            shareable[FRAME] = shareable[FRAME][: len(shareable[FRAME]) // 2]
        if how == "too large":
            shareable[FRAME] = shareable[FRAME] + bytes(TOO_MUCH)
        return shareable


def send_again(reply: Shareable, fl_ctx: FLContext) -> None:
    """Send a copy of a reply right after it."""
    task = fl_ctx.get_prop(FLContextKey.TASK_DATA)
    again = copy.deepcopy(reply)
    again.set_cookie_jar(task.get_cookie_jar())
    again.set_header(ReservedHeaderKey.TASK_NAME, fl_ctx.get_prop(FLContextKey.TASK_NAME))
    again.set_header(ReservedHeaderKey.TASK_ID, fl_ctx.get_prop(FLContextKey.TASK_ID))
    time.sleep(LATER)
    fl_ctx.get_engine().send_task_result(again, fl_ctx)
