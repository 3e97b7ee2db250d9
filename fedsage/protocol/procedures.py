"""What a server can ask of an owner: every procedure, its request and its reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

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
    SharedNeighGen,
    Sketch,
    Subspace,
)
from fedsage.protocol.owner import DataOwner

Phase: TypeAlias = Literal["neighgen", "classifier", "evaluate"]
Party = TypeVar("Party")  # who runs it
Request = TypeVar("Request")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Procedure(Generic[Party, Request, Reply]):
    """One procedure of an owner."""

    name: str
    phase: Phase
    request: type[Request]
    reply: type[Reply]
    run: Callable[[Party, Request], Reply]
    owed: bool = False  # an owner that missed it gets it before anything else


LOCAL_REQUEST: Procedure[DataOwner, Ask, GenOffer] = Procedure(
    "local_request",
    "neighgen",
    Ask,
    GenOffer,
    lambda owner, ask: owner.local_request(ask),
)
FEED_FORWARD: Procedure[DataOwner, GenOffers, GenGradients] = Procedure(
    "feed_forward", "neighgen", GenOffers, GenGradients,
    lambda owner, offers: owner.feed_forward(offers),
)  # fmt: skip
UPDATE_NEIGHGEN: Procedure[DataOwner, GenGradient, GenDone] = Procedure(
    "update_neighgen", "neighgen", GenGradient, GenDone,
    lambda owner, gradient: owner.update_neighgen(gradient),
)  # fmt: skip
UPDATE_SHARED_NEIGHGEN: Procedure[DataOwner, SharedNeighGen, NeighGenUpdate] = Procedure(
    "update_shared_neighgen", "neighgen", SharedNeighGen, NeighGenUpdate,
    lambda owner, shared: owner.update_shared_neighgen(shared),
)  # fmt: skip
RECEIVE_SHARED_NEIGHGEN: Procedure[DataOwner, SharedNeighGen, Mended] = Procedure(
    "receive_shared_neighgen", "neighgen", SharedNeighGen, Mended,
    lambda owner, shared: owner.receive_shared_neighgen(shared), owed=True,
)  # fmt: skip
MEND_GRAPH: Procedure[DataOwner, Ask, Mended] = Procedure(
    "mend_graph",
    "neighgen",
    Ask,
    Mended,
    lambda owner, ask: owner.mend_graph(ask),
    owed=True,
)
MEND_BY_COPIES: Procedure[DataOwner, Ask, Mended] = Procedure(
    "mend_by_copies", "neighgen", Ask, Mended,
    lambda owner, ask: owner.mend_by_copies(ask), owed=True,
)  # fmt: skip
COUNT_CLASS_LINKS: Procedure[DataOwner, Ask, ClassLinks] = Procedure(
    "count_class_links", "neighgen", Ask, ClassLinks,
    lambda owner, ask: owner.count_class_links(ask),
)  # fmt: skip
MEND_BY_CLASSES: Procedure[DataOwner, ClassLinks, Mended] = Procedure(
    "mend_by_classes", "neighgen", ClassLinks, Mended,
    lambda owner, links: owner.mend_by_classes(links), owed=True,
)  # fmt: skip
SKETCH_FEATURES: Procedure[DataOwner, Subspace, Sketch] = Procedure(
    "sketch_features", "neighgen", Subspace, Sketch,
    lambda owner, subspace: owner.sketch_features(subspace),
)  # fmt: skip
MEND_BY_SUBSPACE: Procedure[DataOwner, Subspace, Mended] = Procedure(
    "mend_by_subspace", "neighgen", Subspace, Mended,
    lambda owner, subspace: owner.mend_by_subspace(subspace), owed=True,
)  # fmt: skip
RECEIVE_CLASSIFIER: Procedure[DataOwner, Classifier, Hits] = Procedure(
    "receive_classifier", "classifier", Classifier, Hits,
    lambda owner, classifier: owner.receive_classifier(classifier),
)  # fmt: skip
LOCAL_UPDATE_C: Procedure[DataOwner, Ask, ClassifierUpdate] = Procedure(
    "local_update_c", "classifier", Ask, ClassifierUpdate,
    lambda owner, ask: owner.local_update_c(ask),
)  # fmt: skip
TEST_CLASSIFIER: Procedure[DataOwner, Ask, Hits] = Procedure(
    "test_classifier",
    "evaluate",
    Ask,
    Hits,
    lambda owner, ask: owner.test_classifier(ask),
)

PROCEDURES: dict[str, Procedure[DataOwner, Any, Any]] = {
    procedure.name: procedure
    for procedure in (
        LOCAL_REQUEST, FEED_FORWARD, UPDATE_NEIGHGEN, UPDATE_SHARED_NEIGHGEN,
        RECEIVE_SHARED_NEIGHGEN, MEND_GRAPH, MEND_BY_COPIES, COUNT_CLASS_LINKS,
        MEND_BY_CLASSES, SKETCH_FEATURES, MEND_BY_SUBSPACE, RECEIVE_CLASSIFIER,
        LOCAL_UPDATE_C, TEST_CLASSIFIER,
    )
}  # fmt: skip
