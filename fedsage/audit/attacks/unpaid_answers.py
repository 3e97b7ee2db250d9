"""Unpaid answers: a server that asks owners of a private run for more than ε pays for.

Every trick is tried on owners of its own. It succeeds if a reply or a sum comes out that was
not paid for, or one in which there is less noise than was agreed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import torch

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.engines.inprocess import InProcessEngine
from fedsage.engines.simulated import hide_sums
from fedsage.errors import FedSageError
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, OwnerId
from fedsage.protocol.plan import Miss
from fedsage.protocol.private import Weights, noisy_count, noisy_gradient, size_of, terms_of
from fedsage.protocol.procedures import PROCEDURES, Procedure, in_private
from fedsage.runs.setup import Setup, data_owners

Trick: TypeAlias = "Callable[[Asking], bool]"
NODES = 1000  # as the server says; owners choose how finely they count by it
ATTEMPT = Attempt(
    "unpaid-answers",
    "hostile server",
    "answers to questions that it made up",
    "tricks that get an answer",
)


class Leaving(InProcessEngine):
    """Owners in this process, some of whom can be cut off."""

    away: Collection[OwnerId] = ()

    def carry(
        self,
        procedure: Procedure[Any, Any, Any],
        requests: Mapping[OwnerId, Any],
        lot: int | None = None,
    ) -> dict[OwnerId, Any]:
        """Ask all who are there."""
        here = {i: one for i, one in requests.items() if i not in self.away}
        lost = {i: Miss(i, procedure.name, "gone") for i in requests if i in self.away}
        return super().carry(procedure, here, lot) | lost


class Asking:
    """A server with owners of its own, who have agreed to a private run."""

    def __init__(self, setup: Setup) -> None:
        (owners,) = data_owners(setup)
        self.engine = Leaving(owners)
        self.engine.min_owners = 1
        self.exchange = Exchange(self.engine, setup.plan)
        hide_sums(self.exchange, self.engine)

    def ask(self, t: int, height: float = 0.0, nodes: int = NODES) -> bool:
        """Ask for the sum of a round, all weights alike."""
        weights = torch.full(size_of(self.exchange.plan), height)
        self.exchange.sum(noisy_gradient, Weights(t, nodes, weights))
        return True


def everything_else(server: Asking) -> bool:
    """Ask for whatever other runs answer."""
    door, told = server.engine.doors[0], False
    for one in [one for one in PROCEDURES.values() if one.private == "never"]:
        try:
            told |= door.asked(one.name) is one
        except FedSageError:
            continue
    return told


def other_weights(server: Asking) -> bool:
    """Ask for a round again, at other weights."""
    return server.ask(0) and server.ask(0, 1.0)


def other_rounding(server: Asking) -> bool:
    """Ask for a round again, with another number of nodes: the same noise, scaled."""
    return server.ask(0) and server.ask(0, 0.0, 2**20 * NODES)


def one_round_more(server: Asking) -> bool:
    """Ask for all rounds, and one more."""
    rounds = terms_of(server.exchange.plan).rounds.times
    return all(server.ask(t) for t in range(rounds + 1))


def a_round_before_the_first(server: Asking) -> bool:
    """Ask for a round that is not among those agreed."""
    return server.ask(-1)


def without_one(server: Asking) -> bool:
    """Ask for a round twice, the second time without one owner: what it added is left."""
    server.ask(0)
    server.engine.away = (0,)
    return server.ask(0)


def of_too_few(server: Asking) -> bool:
    """Ask for a sum with the noise of one owner alone."""
    server.exchange.sum(noisy_count, Ask(0))
    server.engine.away = server.exchange.owners[1:]
    return server.ask(0)


def without_masks(server: Asking) -> bool:
    """Ask one owner for its noisy gradient as it is."""
    asked = Weights(0, NODES, torch.zeros(size_of(server.exchange.plan)))
    return bool(server.engine.carry(noisy_gradient, {0: asked}))


def the_last_answer(server: Asking) -> bool:
    """Let an owner send a reply that it paid for once more."""
    plan, door = server.exchange.plan, server.engine.doors[0]
    server.ask(0)
    asked = Weights(0, NODES, torch.zeros(size_of(plan)))
    reply = noisy_gradient.reply(torch.zeros(size_of(plan), dtype=torch.int32))
    return bool(door.let_out(noisy_gradient, reply, 1, asked))


TRICKS: tuple[Trick, ...] = (
    everything_else,
    other_weights,
    other_rounding,
    one_round_more,
    a_round_before_the_first,
    without_one,
    of_too_few,
    without_masks,
    the_last_answer,
)


@attack("unpaid-answers")
def unpaid_answers(case: Case) -> Finding:
    """Can a server get an answer that was not paid for?"""
    if not in_private(case.plan.config):
        return ATTEMPT.not_run("only in private runs are answers paid for")
    if len(case.graphs) < 3:
        return ATTEMPT.not_run("with fewer than three owners, one owner's noise is enough")
    found = [words_of(trick) for trick in TRICKS if succeeds(trick, case.setup)]
    return ATTEMPT.found(len(found), 0, bool(found), note=", ".join(found))


def succeeds(trick: Trick, setup: Setup) -> bool:
    """Whether owners answer."""
    try:
        return trick(Asking(setup))
    except FedSageError:
        return False


def words_of(trick: Trick) -> str:
    """A trick in words."""
    return trick.__name__.replace("_", " ")
