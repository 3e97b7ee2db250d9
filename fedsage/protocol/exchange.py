"""The Exchange: how the server asks owners, with one verb for each use of a reply.

An owner that does not answer, or whose answer is refused, is left out of that exchange and
asked again in the next; with fewer than ``min_owners`` answers the run stops. A request that an
owner must not miss (to mend its graph) is sent again before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from fedsage.errors import Absent, ProtocolError
from fedsage.models.parameters import Parameters
from fedsage.protocol.guard import Guard, unlike_the_others
from fedsage.protocol.messages import OwnerId, added, divided
from fedsage.protocol.plan import (
    FORGET,
    Engine,
    Hidden,
    Journal,
    Miss,
    OnRound,
    Plan,
    Progress,
    RoundRecord,
    ignore,
)
from fedsage.protocol.procedures import Open, Procedure, Reply, Request, Sealed, Summed, Use


@dataclass(frozen=True, slots=True)
class Taken:
    """What one owner has taken part in, and so can continue from after a restart."""

    mending: int = 0  # rounds, up to the last one that it answered
    training: int = 0
    mended: bool = False  # whether its graph was mended


def after(taken: Taken, procedure: Procedure[Any, Any, Any], request: Any) -> Taken:
    """What an owner has taken part in after answering this request."""
    if procedure.owed and procedure.phase == "mending":
        taken = replace(taken, mended=True)
    if not procedure.by_round:
        return taken
    return replace(taken, **{procedure.phase: request.t + 1})


def ignore_sum(procedure: Procedure[Any, Any, Any], total: Any) -> None:
    """For callers that keep no sums."""


def add_up(replies: Sequence[Reply]) -> Reply:
    """The sum of replies, number by number, in the order of their owners."""
    return reduce(added, replies)


class Exchange:
    """How a method or a way of mending talks to owners.

    Args:
        engine: The transport.
        plan: The agreed run; before there is one, no form is checked.
        journal: Where rounds are kept, and where to start.
        on_round: Called after each round.
        hidden: How sums are hidden; None if the server sees every reply.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan | None = None,
        journal: Journal = FORGET,
        on_round: OnRound = ignore,
        hidden: Hidden | None = None,
    ) -> None:
        self.engine, self.agreed, self.journal = engine, plan, journal
        self.on_round, self.hidden = on_round, hidden
        self.guard = Guard()
        self.on_sum: Callable[[Procedure[Any, Any, Any], Any], None] = ignore_sum
        self.stopping = False  # whether the round just done was the last of its phase
        self.misses: list[Miss] = []  # whoever reads them removes them
        self.taken = dict.fromkeys(engine.owners, Taken())
        self.answered: dict[str, list[OwnerId]] = {}  # by procedure: who answered the last time

    @property
    def plan(self) -> Plan:
        """The agreed run."""
        if self.agreed is None:
            raise ProtocolError("No run was agreed yet. Agree on one with the owners first.")
        return self.agreed

    @property
    def owners(self) -> Sequence[OwnerId]:
        """All owners that take part."""
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
        """Ask for what the server needs only the sum of, and return the sum.

        ``combine`` sees single replies; rules that outvote owners need that. If sums are
        hidden, replies can only be added up.
        """
        if self.hidden is not None:
            return self.hidden.sum(procedure, request, combine, least)
        replies = self.ask(procedure, request, Summed, least)
        if not replies:
            raise Absent(
                f"Nobody answered {procedure.name}. Check that the owners are running."
            )
        total = combine(list(replies.values()))
        self.on_sum(procedure, total)
        return total

    def sum_and_each(
        self, procedure: Procedure[Any, Request, Reply], request: Request
    ) -> tuple[Reply, dict[OwnerId, Reply]]:
        """The sum, and each owner's part of it if sums are not hidden."""
        if self.hidden is not None:
            return self.sum(procedure, request), {}
        replies = self.ask(procedure, request, Summed)
        return add_up(list(replies.values())), replies

    def ready(self, sums: int) -> Sequence[OwnerId]:
        """Who can take part in that many sums to come; all owners if no sums are hidden."""
        return self.owners if self.hidden is None else self.hidden.ready(sums)

    def vouchers(self, state: str) -> dict[str, Any]:
        """Signatures under a state, for owners that could not check it; none if all is open."""
        return {} if self.hidden is None else self.hidden.vouchers(state)

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
        """Ask for what is meant for other owners; the server passes it on."""
        return self.ask(procedure, request, Sealed)

    def rounds(self, total: int, start: int | None = None) -> Iterator[int]:
        """The rounds still to be done, from ``start`` or from where mending was stopped.

        Ends early once somebody asked to stop.
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
        """End a round of mending; ``kept`` is what the server needs to continue from here.

        ``losses`` has the ``loss`` and, if there are several, its terms.
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
        lot: int | None = None,
    ) -> dict[OwnerId, Reply]:
        """Ask owners, and return at least ``least`` usable replies.

        With a ``lot`` the replies are masked.
        """
        if procedure.uses is not use:
            raise ProtocolError(
                f"A reply to {procedure.name} is {procedure.uses.name.lower()}: "
                f"{procedure.uses.value}. It cannot be asked for as {use.name.lower()}."
            )
        requests = self.requests_of(procedure, request)
        least = self.engine.min_owners if least is None else least
        ready = self.settle(requests)
        self.guard.spare = len(ready) - least
        answers = self.carried(procedure, ready, lot)
        replies = {i: reply for i, reply in answers.items() if not isinstance(reply, Miss)}
        missed = [reply for reply in answers.values() if isinstance(reply, Miss)]
        wrong = (
            self.guard.refusals(procedure, ready, replies, self.agreed)
            if lot is None
            else unlike_the_others(replies)
        )
        for i, why in wrong.items():
            missed.append(Miss(i, procedure.name, why))
            del replies[i]
        self.misses += missed
        for i in replies:
            self.taken[i] = after(self.taken[i], procedure, requests[i])
        if procedure.binds and self.hidden is not None:
            self.hidden.tell(procedure, next(iter(requests.values())))
        if procedure.owed:
            for i in [i for i in requests if i not in replies]:
                self.engine.owed.setdefault(i, []).append((procedure, requests[i]))
        if len(replies) < min(least, len(requests)):
            who = " ".join(
                f"Owner {self.engine.name_of(miss.owner)}: {miss.why}." for miss in missed
            )
            raise Absent(
                f"{len(replies)} of {len(requests)} owners gave a usable answer to "
                f"{procedure.name}, but {least} are needed. {who}"
            )
        self.answered[procedure.name] = list(replies)
        return replies

    def requests_of(
        self,
        procedure: Procedure[Any, Request, Any],
        request: Request | Mapping[OwnerId, Request],
    ) -> Mapping[OwnerId, Request]:
        """The request to each owner; a single request goes to all that can answer it."""
        if isinstance(request, Mapping):
            return request
        before = [self.answered[name] for name in procedure.after if name in self.answered]
        return dict.fromkeys(before[0] if before else self.owners, request)

    def carried(
        self,
        procedure: Procedure[Any, Request, Reply],
        requests: Mapping[OwnerId, Request],
        lot: int | None = None,
    ) -> dict[OwnerId, Reply | Miss]:
        """What the engine brings back; also counts what full messages would have taken."""
        traffic = self.engine.traffic[procedure.phase]
        up, down = traffic.up, traffic.down
        answers = self.engine.carry(procedure, requests, lot)
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
        """Continue without these owners for good."""
        self.engine.owners = [i for i in self.owners if i not in absent]

    def settle(self, requests: Mapping[OwnerId, Request]) -> dict[OwnerId, Request]:
        """Send again what owners are owed; return the requests to owners now owed nothing."""
        for i in [i for i in requests if i in self.engine.owed]:
            while self.engine.owed.get(i):
                procedure, request = self.engine.owed[i][0]
                answer = self.carried(procedure, {i: request})[i]
                if isinstance(answer, Miss):
                    self.misses.append(answer)
                    break
                self.taken[i] = after(self.taken[i], procedure, request)
                self.engine.owed[i].pop(0)
            else:
                del self.engine.owed[i]
        return {i: request for i, request in requests.items() if i not in self.engine.owed}
