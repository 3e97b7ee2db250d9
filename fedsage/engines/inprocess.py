"""Owners as objects in this process. What passes between them and the server is bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from fedsage.engines.wire import M, Message, Reply, decode, encode
from fedsage.protocol.engine import Phase, Traffic
from fedsage.protocol.messages import Ask, Classifier, ClassifierUpdate, Hits, OwnerId
from fedsage.protocol.owner import DataOwner

OnMessage: TypeAlias = Callable[[OwnerId, Message], None]


def ignore_message(owner: OwnerId, message: Message) -> None:
    """For callers that record nothing."""


class InProcessEngine:
    """Runs every procedure on every owner, ``workers`` owners at a time.

    Every message is encoded, counted and decoded again, so that no owner ever shares an
    object with the server or with another owner. The result does not depend on ``workers``.
    """

    def __init__(
        self,
        owners: Sequence[DataOwner],
        workers: int = 1,
        on_message: OnMessage = ignore_message,
    ) -> None:
        self.owners: Sequence[OwnerId] = [owner.id for owner in owners]
        self.traffic: dict[Phase, Traffic] = {
            "classifier": Traffic(),
            "evaluate": Traffic(),
        }
        self._owners = {owner.id: owner for owner in owners}
        self._workers = workers
        self._on_message = on_message

    def broadcast_classifier(self, classifier: Classifier) -> dict[OwnerId, Hits]:
        """Procedure B's broadcast."""
        return self._ask("classifier", classifier, DataOwner.receive_classifier, Hits)

    def local_update_c(self, t: int) -> dict[OwnerId, ClassifierUpdate]:
        """Procedure F."""
        return self._ask("classifier", Ask(t), DataOwner.local_update_c, ClassifierUpdate)

    def test_classifier(self) -> dict[OwnerId, Hits]:
        """Hits on test nodes."""
        return self._ask("evaluate", Ask(0), DataOwner.test_classifier, Hits)

    def _ask(
        self,
        phase: Phase,
        request: M,
        procedure: Callable[[DataOwner, M], Reply],
        reply: type[Reply],
    ) -> dict[OwnerId, Reply]:
        """Send ``request`` to every owner, run ``procedure`` there, return the replies."""
        frame = encode(request)

        def one(i: OwnerId) -> bytes:
            return encode(procedure(self._owners[i], decode(type(request), frame)))

        replies = {}
        with ThreadPoolExecutor(self._workers) as pool:
            frames = map(one, self.owners) if self._workers == 1 else pool.map(one, self.owners)
            for i, answer in zip(self.owners, frames, strict=True):
                self.traffic[phase].down += len(frame)
                self.traffic[phase].up += len(answer)
                replies[i] = decode(reply, answer)
        for i, message in replies.items():
            self._on_message(i, request)
            self._on_message(i, message)
        return replies
