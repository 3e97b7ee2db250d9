"""The Exchange: how the server asks owners, with one verb for each thing a reply can be for.

It has a rule for owners that fail: whoever does not answer, or whose answer is refused, is left
out of that exchange and asked again in the next; with fewer than ``min_owners`` answers the run
stops. What an owner must not miss (its graph mended) is sent again before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal, TypeAlias

from fedsage.errors import ProtocolError
from fedsage.models.parameters import Parameters
from fedsage.protocol.engine import Engine, Miss
from fedsage.protocol.guard import Guard
from fedsage.protocol.messages import Classifier, OwnerId, View, added, divided
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Open, Procedure, Reply, Request, Sealed, Summed, Use

NO_CLASSIFIER = Classifier({}, {})


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One finished round, for progress lines and learning curves."""

    phase: Literal["mending", "training"]
    t: int
    loss: float  # mean over owners
    validation: float | None  # accuracy of the averaged classifier on validation nodes
    classifier: Classifier | None = None  # after it, where there is one
    terms: dict[str, float] = field(default_factory=dict)  # of the loss, where it has several


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a method has come: all that the server must remember between two rounds."""

    phase: Literal["mending", "training"]
    t: int  # rounds of that phase that are over
    kept: Parameters = field(default_factory=dict)  # by a way of mending, from round to round
    classifier: Classifier = NO_CLASSIFIER
    best: Classifier = NO_CLASSIFIER  # if another one
    best_round: int = -1
    best_validation: float = -1.0
    best_view: View = "plain"


class Journal:
    """Where a method writes how far it has come, and where it starts. This one forgets."""

    start = Progress("mending", 0)

    def keep(self, progress: Progress) -> None:
        """Called after every round."""


OnRound: TypeAlias = Callable[[RoundRecord], None]
FORGET = Journal()


def ignore(record: RoundRecord) -> None:
    """For callers that want no progress."""


Unmask: TypeAlias = Callable[[Procedure[Any, Any, Any], Any, Sequence[OwnerId]], Any]


@dataclass(frozen=True, slots=True)
class Taken:
    """What one owner has taken part in: from there it can go on after a restart."""

    mending: int = 0  # rounds, counted to the last one that it answered
    training: int = 0
    mended: bool = False  # whether its graph was


def as_it_is(procedure: Procedure[Any, Any, Any], total: Any, of: Sequence[OwnerId]) -> Any:
    """Where replies are not masked, neither is their sum."""
    return total


def ignore_sum(procedure: Procedure[Any, Any, Any], total: Any) -> None:
    """For callers that keep no sums."""


def add_up(replies: Sequence[Reply]) -> Reply:
    """The sum of replies, number by number, in the order of their owners."""
    return reduce(added, replies)


class Exchange:
    """What a method and a way of mending talk to owners by.

    Args:
        engine: The transport.
        plan: The agreed run; before there is one, no form is checked.
        journal: Where rounds are kept, and where to start.
        on_round: Called after each round.
        unmask: Takes off what masks leave on a sum.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan | None = None,
        journal: Journal = FORGET,
        on_round: OnRound = ignore,
        unmask: Unmask = as_it_is,
    ) -> None:
        self.engine, self.agreed, self.journal = engine, plan, journal
        self.on_round, self.unmask = on_round, unmask
        self.guard = Guard()
        self.on_sum: Callable[[Procedure[Any, Any, Any], Any], None] = ignore_sum
        self.stopping = False  # whether the round that is over was the last of its phase
        self.misses: list[Miss] = []  # whoever reads them takes them out
        self.taken = dict.fromkeys(engine.owners, Taken())
        self.answered: dict[str, list[OwnerId]] = {}  # by procedure, the last time
        self._owed: dict[OwnerId, list[tuple[Procedure[Any, Any, Any], Any]]] = {}

    @property
    def plan(self) -> Plan:
        """The agreed run."""
        if self.agreed is None:
            raise ProtocolError("Nothing was agreed on yet. Agree with the owners first.")
        return self.agreed

    @property
    def owners(self) -> Sequence[OwnerId]:
        """All who take part."""
        return self.engine.owners

    def all(
        self,
        procedure: Procedure[Any, Request, Reply],
        request: Request | Mapping[OwnerId, Request],
        least: int | None = None,
    ) -> dict[OwnerId, Reply]:
        """Ask for what the server must see of each owner."""
        return self.ask(procedure, request, Open, least)

    def sum(
        self,
        procedure: Procedure[Any, Request, Reply],
        request: Request | Mapping[OwnerId, Request],
        combine: Callable[[Sequence[Reply]], Reply] = add_up,
        least: int | None = None,
    ) -> Reply:
        """Ask for what the server needs the sum of, and give that alone.

        ``combine`` sees single replies, which rules that outvote owners need. Where replies are
        masked, only their sum will make sense.
        """
        replies = self.ask(procedure, request, Summed, least)
        if not replies:
            raise ProtocolError(
                f"Nobody answered {procedure.name}. Check that the owners are running."
            )
        total: Reply = self.unmask(procedure, combine(list(replies.values())), list(replies))
        self.on_sum(procedure, total)
        return total

    def mean(
        self,
        procedure: Procedure[Any, Request, Reply],
        request: Request | Mapping[OwnerId, Request],
    ) -> Reply:
        """The sum, divided by the number of owners that answered."""
        total = self.sum(procedure, request)
        return divided(total, len(self.answered[procedure.name]))

    def pass_on(
        self,
        procedure: Procedure[Any, Request, Reply],
        request: Request | Mapping[OwnerId, Request],
    ) -> dict[OwnerId, Reply]:
        """Ask for what is for other owners: the server hands it on."""
        return self.ask(procedure, request, Sealed)

    def rounds(self, total: int, start: int | None = None) -> Iterator[int]:
        """The rounds that are still to be done, from ``start`` or where mending was stopped.

        None are left once somebody asked to stop.
        """
        for t in range(self.journal.start.t if start is None else start, total):
            yield t
            if self.stopping:
                break
        self.stopping = False

    @property
    def kept(self) -> Parameters:
        """What the server kept of mending when it was stopped; empty at the start."""
        return self.journal.start.kept

    def end_round(
        self, t: int, losses: Mapping[str, float], kept: Parameters | None = None
    ) -> None:
        """A round of mending is over; ``kept`` is what the server needs to go on from here.

        ``losses`` are the ``loss`` and, where it has several, its terms.
        """
        terms = {name: value for name, value in losses.items() if name != "loss"}
        self.on_round(RoundRecord("mending", t, losses["loss"], None, terms=terms))
        self.journal.keep(Progress("mending", t + 1, kept or {}))

    def ask(
        self,
        procedure: Procedure[Any, Request, Reply],
        request: Request | Mapping[OwnerId, Request],
        use: Use,
        least: int | None = None,
    ) -> dict[OwnerId, Reply]:
        """Ask owners, and return the replies that may be used: ``least`` of them."""
        if procedure.uses is not use:
            raise ProtocolError(
                f"A reply to {procedure.name} is {procedure.uses.name.lower()}: "
                f"{procedure.uses.value}. It cannot be asked for as {use.name.lower()}."
            )
        requests = request if isinstance(request, Mapping) else self.to_all(procedure, request)
        least = self.engine.min_owners if least is None else least
        ready = self.settle(requests)
        answers = self.carried(procedure, ready)
        replies = {i: reply for i, reply in answers.items() if not isinstance(reply, Miss)}
        missed = [reply for reply in answers.values() if isinstance(reply, Miss)]
        for i, why in self.guard.refusals(procedure, ready, replies, self.agreed).items():
            missed.append(Miss(i, procedure.name, why))
            del replies[i]
        self.misses += missed
        for i in replies:
            self.taken[i] = after(self.taken[i], procedure, requests[i])
        if procedure.owed:
            for i in [i for i in requests if i not in replies]:
                self._owed.setdefault(i, []).append((procedure, requests[i]))
        if len(replies) < min(least, len(requests)):
            who = " ".join(
                f"Owner {self.engine.name_of(miss.owner)}: {miss.why}." for miss in missed
            )
            raise ProtocolError(
                f"{len(replies)} of {len(requests)} owners gave an answer to {procedure.name} "
                f"that can be used, but {least} are needed. {who}"
            )
        self.answered[procedure.name] = list(replies)
        return replies

    def to_all(
        self, procedure: Procedure[Any, Request, Any], request: Request
    ) -> dict[OwnerId, Request]:
        """The same request to all owners that can answer it."""
        before = [self.answered[name] for name in procedure.after if name in self.answered]
        return dict.fromkeys(before[0] if before else self.owners, request)

    def carried(
        self, procedure: Procedure[Any, Request, Reply], requests: Mapping[OwnerId, Request]
    ) -> dict[OwnerId, Reply | Miss]:
        """What the engine brings back; what full messages would have been is counted too."""
        traffic = self.engine.traffic[procedure.phase]
        up, down = traffic.up, traffic.down
        answers = self.engine.carry(procedure, requests)
        if procedure.full and self.agreed:
            for i, request in requests.items():
                asked, answered = procedure.full(self.agreed, request)
                traffic.full_down += asked
                traffic.full_up += 0 if isinstance(answers[i], Miss) else answered
        else:
            traffic.full_down += traffic.down - down
            traffic.full_up += traffic.up - up
        return answers

    def leave_out(self, absent: Sequence[OwnerId]) -> None:
        """Go on without these owners altogether."""
        self.engine.owners = [i for i in self.owners if i not in absent]

    def settle(self, requests: Mapping[OwnerId, Request]) -> dict[OwnerId, Request]:
        """The requests to owners that are owed nothing, once what is owed was sent again."""
        for i in [i for i in requests if i in self._owed]:
            while self._owed.get(i):
                procedure, request = self._owed[i][0]
                answer = self.carried(procedure, {i: request})[i]
                if isinstance(answer, Miss):
                    self.misses.append(answer)
                    break
                self.taken[i] = after(self.taken[i], procedure, request)
                self._owed[i].pop(0)
            else:
                del self._owed[i]
        return {i: request for i, request in requests.items() if i not in self._owed}


def after(taken: Taken, procedure: Procedure[Any, Any, Any], request: Any) -> Taken:
    """What an owner has taken part in once it answered."""
    if procedure.owed and procedure.phase == "mending":
        taken = replace(taken, mended=True)
    if not procedure.by_round:
        return taken
    return replace(taken, **{procedure.phase: request.t + 1})
