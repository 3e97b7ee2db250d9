"""Owners as objects in this process. What passes between them and the server is bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from fedsage.engines.wire import M, Message, Reply, decode, encode
from fedsage.protocol.engine import Phase, Traffic
from fedsage.protocol.messages import (
    Ask,
    Classifier,
    ClassifierUpdate,
    ClassLinks,
    GenDone,
    GenGradient,
    GenGradients,
    GenOffer,
    GenOffers,
    Hits,
    Mended,
    NeighGenUpdate,
    OwnerId,
    SharedNeighGen,
    Sketch,
    Subspace,
)
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
            "neighgen": Traffic(),
            "classifier": Traffic(),
            "evaluate": Traffic(),
        }
        self._owners = {owner.id: owner for owner in owners}
        self._workers = workers
        self._on_message = on_message

    def local_request(self, t: int) -> dict[OwnerId, GenOffer]:
        """Procedure C."""
        return self._ask(
            "neighgen", Ask(t), lambda owner, ask: owner.local_request(ask), GenOffer
        )

    def feed_forward(self, offers: Mapping[OwnerId, GenOffers]) -> dict[OwnerId, GenGradients]:
        """Procedure D."""
        return self._ask_each(
            "neighgen", offers, lambda owner, ask: owner.feed_forward(ask), GenGradients
        )

    def update_neighgen(self, sums: Mapping[OwnerId, GenGradient]) -> dict[OwnerId, GenDone]:
        """Procedure E."""
        return self._ask_each(
            "neighgen", sums, lambda owner, ask: owner.update_neighgen(ask), GenDone
        )

    def update_shared_neighgen(self, shared: SharedNeighGen) -> dict[OwnerId, NeighGenUpdate]:
        """Local training of the shared NeighGen."""
        return self._ask(
            "neighgen",
            shared,
            lambda owner, ask: owner.update_shared_neighgen(ask),
            NeighGenUpdate,
        )

    def receive_shared_neighgen(self, shared: SharedNeighGen) -> dict[OwnerId, Mended]:
        """The last shared NeighGen."""
        return self._ask(
            "neighgen", shared, lambda owner, ask: owner.receive_shared_neighgen(ask), Mended
        )

    def mend_graph(self) -> dict[OwnerId, Mended]:
        """Algorithm 1, line 3."""
        return self._ask("neighgen", Ask(0), lambda owner, ask: owner.mend_graph(ask), Mended)

    def mend_by_copies(self) -> dict[OwnerId, Mended]:
        """Copies of own nodes."""
        return self._ask(
            "neighgen", Ask(0), lambda owner, ask: owner.mend_by_copies(ask), Mended
        )

    def count_class_links(self) -> dict[OwnerId, ClassLinks]:
        """Links from class to class."""
        return self._ask(
            "neighgen", Ask(0), lambda owner, ask: owner.count_class_links(ask), ClassLinks
        )

    def mend_by_classes(self, links: ClassLinks) -> dict[OwnerId, Mended]:
        """Neighbors drawn by class."""
        return self._ask(
            "neighgen", links, lambda owner, ask: owner.mend_by_classes(ask), Mended
        )

    def sketch_features(self, subspace: Subspace) -> dict[OwnerId, Sketch]:
        """One step towards the common subspace."""
        return self._ask(
            "neighgen", subspace, lambda owner, ask: owner.sketch_features(ask), Sketch
        )

    def mend_by_subspace(self, subspace: Subspace) -> dict[OwnerId, Mended]:
        """Projections on the common subspace."""
        return self._ask(
            "neighgen", subspace, lambda owner, ask: owner.mend_by_subspace(ask), Mended
        )

    def broadcast_classifier(self, classifier: Classifier) -> dict[OwnerId, Hits]:
        """Procedure B's broadcast."""
        return self._ask(
            "classifier", classifier, lambda owner, ask: owner.receive_classifier(ask), Hits
        )

    def local_update_c(self, t: int) -> dict[OwnerId, ClassifierUpdate]:
        """Procedure F."""
        return self._ask(
            "classifier", Ask(t), lambda owner, ask: owner.local_update_c(ask), ClassifierUpdate
        )

    def test_classifier(self) -> dict[OwnerId, Hits]:
        """Hits on test nodes."""
        return self._ask(
            "evaluate", Ask(0), lambda owner, ask: owner.test_classifier(ask), Hits
        )

    def _ask(
        self,
        phase: Phase,
        request: M,
        procedure: Callable[[DataOwner, M], Reply],
        reply: type[Reply],
    ) -> dict[OwnerId, Reply]:
        """Send one ``request`` to every owner, run its ``procedure``, return the replies."""
        frame = encode(request)
        frames = dict.fromkeys(self.owners, frame)
        answers = self._carry(phase, frames.__getitem__, type(request), procedure, reply)
        self._tell(dict.fromkeys(self.owners, request), answers)
        return answers

    def _ask_each(
        self,
        phase: Phase,
        requests: Mapping[OwnerId, M],
        procedure: Callable[[DataOwner, M], Reply],
        reply: type[Reply],
    ) -> dict[OwnerId, Reply]:
        """The same with a request of its own for every owner, encoded when its turn comes."""
        (kind,) = {type(request) for request in requests.values()}
        answers = self._carry(phase, lambda i: encode(requests[i]), kind, procedure, reply)
        self._tell(requests, answers)
        return answers

    def _carry(
        self,
        phase: Phase,
        frame_for: Callable[[OwnerId], bytes],
        kind: type[M],
        procedure: Callable[[DataOwner, M], Reply],
        reply: type[Reply],
    ) -> dict[OwnerId, Reply]:
        """Requests there and replies back, as bytes, which are counted."""

        def one(i: OwnerId) -> tuple[int, bytes]:
            frame = frame_for(i)
            return len(frame), encode(procedure(self._owners[i], decode(kind, frame)))

        replies = {}
        with ThreadPoolExecutor(self._workers) as pool:
            done = map(one, self.owners) if self._workers == 1 else pool.map(one, self.owners)
            for i, (asked, answer) in zip(self.owners, done, strict=True):
                self.traffic[phase].down += asked
                self.traffic[phase].up += len(answer)
                replies[i] = decode(reply, answer)
        return replies

    def _tell(self, requests: Mapping[OwnerId, M], replies: Mapping[OwnerId, Reply]) -> None:
        """Show every message that was carried to whoever records them."""
        for i in self.owners:
            self._on_message(i, requests[i])
            self._on_message(i, replies[i])
