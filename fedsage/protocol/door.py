"""An owner's door: what may be asked, and the one chain through which everything leaves.

A reply passes the links of the run, is compared with the agreed form, is masked if sums are
hidden, becomes bytes, and gets a line in ``sent.jsonl``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fedsage.errors import PrivacyError, StorageError
from fedsage.protocol.messages import misfit, tensors_in
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Procedure, Summed, in_private, in_sums
from fedsage.protocol.sent_log import SENT
from fedsage.protocol.wire import encode

if TYPE_CHECKING:
    from fedsage.protocol.hidden_sums.masks import Masks

Link: TypeAlias = Callable[[Procedure[Any, Any, Any], Any], Any]  # a message to a message
Record: TypeAlias = Callable[[Path, Mapping[str, Any]], str]  # a line of a folder's log
ABOUT_MASKS = "fedsage.protocol.hidden_sums.owner"  # procedures on an owner's masks


@dataclass(slots=True)
class Door:
    """The only way out for an owner's data.

    Args:
        asks: What may be asked for before a run is agreed on.
        plan: The agreed run, once there is one.
        links: Functions that a reply passes through before it is checked.
        folder: Where ``sent.jsonl`` is; None if nothing is logged, as in simulations.
        record: Writes a line of the log, if there is one; between machines, the gate does.
    """

    asks: Mapping[str, Procedure[Any, Any, Any]] = field(default_factory=dict)
    plan: Plan | None = None
    links: Sequence[Link] = ()
    folder: Path | None = None
    record: Record | None = None
    masks: Masks | None = None  # if sums are hidden
    receipt: Callable[[], bool] = bool  # whether a noisy sum was paid for; not by default
    passed: str = ""  # checksum of the last message that left

    def asked(self, name: str) -> Procedure[Any, Any, Any]:
        """The procedure of that name; refuses what the agreed run does not need."""
        allowed = {**(self.plan.asks if self.plan else {}), **self.asks}
        closed = self.private and name in allowed and allowed[name].private == "never"
        if name not in allowed or closed:
            raise PrivacyError(
                f"'{name}' was asked for, but is not part of the agreed run. Nothing was sent."
            )
        return allowed[name]

    def let_out(
        self,
        procedure: Procedure[Any, Any, Any],
        message: Any,
        lot: int | None = None,
        request: Any = None,
    ) -> bytes:
        """The reply as bytes; refuses what is not an answer or does not fit the agreed run.

        If sums are hidden, a reply to be summed leaves only under the masks of a ``lot``, which
        cancel only among owners that got the same ``request``. A reply that adds nothing needs
        no masks, and is not counted in the sum.
        """
        self.asked(procedure.name)
        for link in self.links:
            message = link(procedure, message)
        why = self.misfit(procedure, message)
        if why:
            theirs = not procedure.module.startswith("fedsage.")
            hint = " Give the shapes of its tensors in @procedure(shapes=…)." * theirs
            raise PrivacyError(
                f"A {type(message).__name__} must not leave: {why}. It does not fit the agreed "
                f"run; nothing was sent.{hint}"
            )
        if self.private and procedure.private == "charged" and not self.receipt():
            raise PrivacyError(
                f"Nothing was paid for {procedure.name}, a reply of a private run. Nothing was "
                "sent."
            )
        if self.plan and in_sums(self.plan.config):
            if procedure.binds:
                self.bind(procedure, request)
            if procedure.uses is Summed and not procedure.silent(message):
                message = self.masked(procedure, request, message, lot)
        frame = encode(message)
        if self.folder is not None:
            self.log(procedure.name, message, frame)
        return frame

    @property
    def private(self) -> bool:
        """Whether only noisy sums that were paid for may leave."""
        return self.plan is not None and in_private(self.plan.config)

    def about_masks(self, procedure: Procedure[Any, Any, Any]) -> bool:
        """Whether a procedure is about masks rather than the owner's data."""
        return self.masks is not None and procedure.module == ABOUT_MASKS

    def bind(self, procedure: Procedure[Any, Any, Any], request: Any) -> None:
        """From here on, masks cancel only among owners that got the same request."""
        from fedsage.protocol.hidden_sums.masks import (
            checksum_of,  # cryptography takes time to load
        )

        if self.masks is not None:
            self.masks.bound[procedure.name] = checksum_of(request)

    def masked(
        self, procedure: Procedure[Any, Any, Any], request: Any, message: Any, lot: int | None
    ) -> Any:
        """A message to be summed, under its masks."""
        if self.masks is None or lot is None or request is None:
            raise PrivacyError(
                f"A {type(message).__name__} was asked for without masks, but hidden sums were "
                "agreed. Nothing was sent."
            )
        return self.masks.masked(procedure, request, message, lot)

    def misfit(self, procedure: Procedure[Any, Any, Any], message: Any) -> str | None:
        """Why a message may not leave in answer to ``procedure``, or None."""
        if type(message) is not procedure.reply:
            return f"{procedure.name} must be answered with a {procedure.reply.__name__}"
        return misfit(message, procedure.shapes(self.plan)) if self.plan else None

    def log(self, procedure: str, message: Any, frame: bytes) -> None:
        """Write one line of ``sent.jsonl``."""
        tensors, sha256 = tensors_in(message), hashlib.sha256(frame).hexdigest()
        self.write({
            "procedure": procedure,
            "type": type(message).__name__,
            "tensors": len(tensors),
            "shapes": sorted({tuple(tensor.shape) for tensor in tensors}),
            "bytes": len(frame),
            "sha256": sha256,
        })  # fmt: skip
        self.passed = sha256

    def log_error(self, procedure: str, words: str) -> None:
        """Write one line for an error that leaves instead of an answer."""
        self.write({"procedure": procedure, "type": "error", "words": words})

    def write(self, line: Mapping[str, Any]) -> None:
        """Add a line; what cannot be logged must not leave."""
        assert self.folder is not None and self.record is not None
        try:
            self.record(self.folder, line)
        except OSError as error:
            raise StorageError(
                f"{SENT} cannot be written ({error.strerror}), so nothing was sent."
            ) from None
