"""The Engine: one method for each owner-side procedure, and a rule for owners that fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedsage.errors import ProtocolError
from fedsage.protocol import procedures
from fedsage.protocol.guard import Guard
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
from fedsage.protocol.procedures import Phase, Procedure, Reply, Request


@dataclass(slots=True)
class Traffic:
    """Serialized bytes carried so far."""

    up: int = 0  # owners → server
    down: int = 0  # server → owners


@dataclass(frozen=True, slots=True)
class Miss:
    """An owner was left out of one exchange."""

    owner: OwnerId
    procedure: str
    why: str  # it did not answer in time, or what was wrong with its answer


@dataclass(frozen=True, slots=True)
class Taken:
    """What one owner has taken part in: from there it can go on after a restart."""

    neighgen: int = 0  # rounds, counted to the last one that it answered
    classifier: int = 0
    mended: bool = False  # whether its graph was


class Engine(ABC):
    """Runs an owner-side procedure on every owner and returns the replies by owner.

    In what order, and where, is up to the engine. An owner that does not answer, or whose
    answer is refused, is left out of that exchange and asked again in the next one; with
    fewer than ``min_owners`` answers the run stops. What an owner must not miss (its graph
    mended) is sent again before anything else is asked of it.
    """

    def __init__(self, owners: Sequence[OwnerId], min_owners: int | None = None) -> None:
        self.owners = list(owners)
        self.min_owners = len(self.owners) if min_owners is None else min_owners
        self.traffic: dict[Phase, Traffic] = {
            "neighgen": Traffic(),
            "classifier": Traffic(),
            "evaluate": Traffic(),
        }
        self.guard = Guard()
        self.misses: list[Miss] = []  # whoever reads them takes them out
        self.taken = dict.fromkeys(self.owners, Taken())
        self._owed: dict[OwnerId, list[tuple[Procedure[Any, Any, Any], Any]]] = {}
        self._holding = list(self.owners)  # have the classifier that was broadcast last

    @abstractmethod
    def carry(
        self, procedure: Procedure[Any, Request, Reply], requests: Mapping[OwnerId, Request]
    ) -> dict[OwnerId, Reply | Miss]:
        """Requests there and replies back."""

    def name_of(self, owner: OwnerId) -> str:
        """What to call an owner."""
        return str(owner)

    def exchange(
        self,
        procedure: Procedure[Any, Request, Reply],
        requests: Mapping[OwnerId, Request],
        least: int | None = None,
    ) -> dict[OwnerId, Reply]:
        """Ask those owners, and return the replies that may be used: ``least`` of them."""
        least = self.min_owners if least is None else least
        ready = self._settle(requests)
        answers = self.carry(procedure, ready)
        replies = {i: reply for i, reply in answers.items() if not isinstance(reply, Miss)}
        missed = [reply for reply in answers.values() if isinstance(reply, Miss)]
        for i, why in self.guard.refusals(procedure, ready, replies).items():
            missed.append(Miss(i, procedure.name, why))
            del replies[i]
        self.misses += missed
        for i in replies:
            self.taken[i] = after(self.taken[i], procedure, requests[i])
        if procedure.owed:
            for i in [i for i in requests if i not in replies]:
                self._owed.setdefault(i, []).append((procedure, requests[i]))
        if len(replies) < min(least, len(requests)):
            who = " ".join(f"Owner {self.name_of(miss.owner)}: {miss.why}." for miss in missed)
            raise ProtocolError(
                f"{len(replies)} of {len(requests)} owners gave an answer to {procedure.name} "
                f"that can be used, but {least} are needed. {who}"
            )
        return replies

    def leave_out(self, absent: Sequence[OwnerId]) -> None:
        """Go on without these owners altogether."""
        self.owners = [i for i in self.owners if i not in absent]
        self._holding = [i for i in self._holding if i not in absent]

    @property
    def holding(self) -> Sequence[OwnerId]:
        """Who has the classifier that was broadcast last."""
        return self._holding

    def _settle(self, requests: Mapping[OwnerId, Request]) -> dict[OwnerId, Request]:
        """The requests to owners that are owed nothing, once what is owed was sent again."""
        for i in [i for i in requests if i in self._owed]:
            while self._owed.get(i):
                procedure, request = self._owed[i][0]
                answer = self.carry(procedure, {i: request})[i]
                if isinstance(answer, Miss):
                    self.misses.append(answer)
                    break
                self.taken[i] = after(self.taken[i], procedure, request)
                self._owed[i].pop(0)
            else:
                del self._owed[i]
        return {i: request for i, request in requests.items() if i not in self._owed}

    def _ask_all(
        self, procedure: Procedure[Any, Request, Reply], request: Request
    ) -> dict[OwnerId, Reply]:
        return self.exchange(procedure, dict.fromkeys(self.owners, request))

    def local_request(self, t: int) -> dict[OwnerId, GenOffer]:
        """Procedure C."""
        return self._ask_all(procedures.LOCAL_REQUEST, Ask(t))

    def feed_forward(self, offers: Mapping[OwnerId, GenOffers]) -> dict[OwnerId, GenGradients]:
        """Procedure D."""
        return self.exchange(procedures.FEED_FORWARD, offers)

    def update_neighgen(self, sums: Mapping[OwnerId, GenGradient]) -> dict[OwnerId, GenDone]:
        """Procedure E."""
        return self.exchange(procedures.UPDATE_NEIGHGEN, sums)

    def update_shared_neighgen(self, shared: SharedNeighGen) -> dict[OwnerId, NeighGenUpdate]:
        """Local training of the one NeighGen that all owners share."""
        return self._ask_all(procedures.UPDATE_SHARED_NEIGHGEN, shared)

    def receive_shared_neighgen(self, shared: SharedNeighGen) -> dict[OwnerId, Mended]:
        """The last shared NeighGen, with which every owner mends its graph."""
        return self._ask_all(procedures.RECEIVE_SHARED_NEIGHGEN, shared)

    def mend_graph(self) -> dict[OwnerId, Mended]:
        """Algorithm 1, line 3: every owner mends its graph by its NeighGen."""
        return self._ask_all(procedures.MEND_GRAPH, Ask(0))

    def mend_by_copies(self) -> dict[OwnerId, Mended]:
        """Every owner mends its graph by copies of its nodes."""
        return self._ask_all(procedures.MEND_BY_COPIES, Ask(0))

    def count_class_links(self) -> dict[OwnerId, ClassLinks]:
        """Links from class to class between training nodes."""
        return self._ask_all(procedures.COUNT_CLASS_LINKS, Ask(0))

    def mend_by_classes(self, links: ClassLinks) -> dict[OwnerId, Mended]:
        """Every owner mends its graph by what all owners' links say of classes."""
        return self._ask_all(procedures.MEND_BY_CLASSES, links)

    def sketch_features(self, subspace: Subspace) -> dict[OwnerId, Sketch]:
        """One step towards the subspace of all owners' features."""
        return self._ask_all(procedures.SKETCH_FEATURES, subspace)

    def mend_by_subspace(self, subspace: Subspace) -> dict[OwnerId, Mended]:
        """Every owner mends its graph by projections on that subspace."""
        return self._ask_all(procedures.MEND_BY_SUBSPACE, subspace)

    def broadcast_classifier(self, classifier: Classifier) -> dict[OwnerId, Hits]:
        """Procedure B's broadcast of φ; owners answer with hits on validation nodes."""
        hits = self._ask_all(procedures.RECEIVE_CLASSIFIER, classifier)
        self._holding = list(hits)
        return hits

    def local_update_c(self, t: int) -> dict[OwnerId, ClassifierUpdate]:
        """Procedure F, by those who have the φ that was broadcast last."""
        asked = dict.fromkeys(self._holding, Ask(t))
        return self.exchange(procedures.LOCAL_UPDATE_C, asked)

    def test_classifier(self) -> dict[OwnerId, Hits]:
        """Hits on every owner's test nodes, queried on what that owner holds."""
        asked = dict.fromkeys(self._holding, Ask(0))
        return self.exchange(procedures.TEST_CLASSIFIER, asked)


def after(taken: Taken, procedure: Procedure[Any, Any, Any], request: Any) -> Taken:
    """What an owner has taken part in once it answered."""
    if procedure.name in (
        procedures.UPDATE_NEIGHGEN.name,
        procedures.UPDATE_SHARED_NEIGHGEN.name,
    ):
        return replace(taken, neighgen=request.t + 1)
    if procedure.name == procedures.LOCAL_UPDATE_C.name:
        return replace(taken, classifier=request.t + 1)
    mends = procedure.owed and procedure.name in procedures.PROCEDURES
    return replace(taken, mended=True) if mends else taken
