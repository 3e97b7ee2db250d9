"""The Engine interface: one method for each owner-side procedure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from fedsage.protocol.messages import (
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

Phase: TypeAlias = Literal["neighgen", "classifier", "evaluate"]


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

    def local_request(self, t: int) -> dict[OwnerId, GenOffer]:
        """Procedure C."""

    def feed_forward(self, offers: Mapping[OwnerId, GenOffers]) -> dict[OwnerId, GenGradients]:
        """Procedure D."""

    def update_neighgen(self, sums: Mapping[OwnerId, GenGradient]) -> dict[OwnerId, GenDone]:
        """Procedure E."""

    def update_shared_neighgen(self, shared: SharedNeighGen) -> dict[OwnerId, NeighGenUpdate]:
        """Local training of the one NeighGen that all owners share."""

    def receive_shared_neighgen(self, shared: SharedNeighGen) -> dict[OwnerId, Mended]:
        """The last shared NeighGen, with which every owner mends its graph."""

    def mend_graph(self) -> dict[OwnerId, Mended]:
        """Algorithm 1, line 3: every owner mends its graph by its NeighGen."""

    def mend_by_copies(self) -> dict[OwnerId, Mended]:
        """Every owner mends its graph by copies of its nodes."""

    def count_class_links(self) -> dict[OwnerId, ClassLinks]:
        """Links from class to class between training nodes."""

    def mend_by_classes(self, links: ClassLinks) -> dict[OwnerId, Mended]:
        """Every owner mends its graph by what all owners' links say of classes."""

    def sketch_features(self, subspace: Subspace) -> dict[OwnerId, Sketch]:
        """One step towards the subspace of all owners' features."""

    def mend_by_subspace(self, subspace: Subspace) -> dict[OwnerId, Mended]:
        """Every owner mends its graph by projections on that subspace."""

    def broadcast_classifier(self, classifier: Classifier) -> dict[OwnerId, Hits]:
        """Procedure B's broadcast of φ; owners answer with hits on validation nodes."""

    def local_update_c(self, t: int) -> dict[OwnerId, ClassifierUpdate]:
        """Procedure F, on the φ that was broadcast last."""

    def test_classifier(self) -> dict[OwnerId, Hits]:
        """Hits on every owner's test nodes, queried on what that owner holds."""
