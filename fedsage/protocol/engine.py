"""The Engine interface: one method for each owner-side procedure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from fedsage.protocol.messages import Classifier, ClassifierUpdate, Hits, OwnerId

Phase: TypeAlias = Literal["classifier", "evaluate"]


@dataclass(slots=True)
class Traffic:
    """Serialized bytes carried so far."""

    up: int = 0  # owners → server
    down: int = 0  # server → owners


@runtime_checkable
class Engine(Protocol):
    """Runs an owner-side procedure on every owner and returns the replies by owner.

    In what order, and where, is up to the engine. A missing or misfitting reply raises
    ``ProtocolError``.
    """

    owners: Sequence[OwnerId]
    traffic: dict[Phase, Traffic]

    def broadcast_classifier(self, classifier: Classifier) -> dict[OwnerId, Hits]:
        """Procedure B's broadcast of φ; owners answer with hits on validation nodes."""

    def local_update_c(self, t: int) -> dict[OwnerId, ClassifierUpdate]:
        """Procedure F, on the φ that was broadcast last."""

    def test_classifier(self) -> dict[OwnerId, Hits]:
        """Hits on every owner's test nodes, queried on what that owner holds."""
