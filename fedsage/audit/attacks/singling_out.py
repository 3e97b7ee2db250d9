"""Singling out: a server that asks owners in such a way that a hidden sum is one owner's reply.

Every trick is tried on owners of its own. It succeeds if the server gets numbers that are the
victim's alone, or counts of right answers for a classifier that it made up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.engines.inprocess import InProcessEngine
from fedsage.engines.simulated import hide_sums
from fedsage.errors import FedSageError
from fedsage.protocol.changes.follow import Turn, follower
from fedsage.protocol.changes.owner import local_change_c, no_change, receive_change
from fedsage.protocol.changes.server import ByChanges, everything, news_of
from fedsage.protocol.changes.state import Change, Common, checksum_of
from fedsage.protocol.changes.step import guide_of, next_state
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.hidden_sums.messages import answered
from fedsage.protocol.hidden_sums.owner import give_shares
from fedsage.protocol.hidden_sums.server import HiddenSums
from fedsage.protocol.messages import Ask, Classifier, OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Miss
from fedsage.protocol.procedures import Procedure, Summed, in_private
from fedsage.protocol.server import average
from fedsage.runs.setup import Setup, data_owners

VICTIM = 0
FEW = 1e-9  # so small a step that nothing of it is left after rounding


class Forgetful(InProcessEngine):
    """Owners in this process; some can be cut off, and what the victim adds is noted."""

    def __init__(self, setup: Setup) -> None:
        (owners,) = data_owners(setup)
        self.noted: Any = None
        self.away: Sequence[OwnerId] = ()
        super().__init__(owners, links=lambda i: [self.note] if i == VICTIM else [])

    def note(self, procedure: Procedure[Any, Any, Any], reply: Any) -> Any:
        """A link of the victim's door: the truth, to compare with."""
        if procedure.uses is Summed:
            self.noted = reply
        return reply

    def carry(
        self,
        procedure: Procedure[Any, Any, Any],
        requests: Mapping[OwnerId, Any],
        lot: int | None = None,
    ) -> dict[OwnerId, Any]:
        """As usual, but those who are cut off do not answer."""
        away = self.away if procedure.uses is Summed else ()
        here = {i: one for i, one in requests.items() if i not in away}
        return super().carry(procedure, here, lot) | {
            i: Miss(i, procedure.name, "cut off") for i in requests if i in away
        }


class Hostile:
    """A server after an honest round, with everything that it knows."""

    def __init__(self, setup: Setup) -> None:
        self.engine = Forgetful(setup)
        self.engine.min_owners = 1
        self.exchange = Exchange(self.engine, setup.plan)
        hide_sums(self.exchange, self.engine)
        honest = ByChanges(self.exchange, average)
        honest.begin(Classifier({}, {}))
        honest.round(0, keep=True)
        self.common: Common = honest.common
        self.others = [i for i in self.exchange.owners if i != VICTIM]

    def turn(self, common: Common) -> Turn:
        """Train from there."""
        return Turn(common.t, False, checksum_of(common))

    def stepped(self) -> tuple[Common, Any]:
        """The honest next round, and the news that would end it."""
        total = self.exchange.sum(local_change_c, self.turn(self.common))
        guide = guide_of(self.common, total)
        after = next_state(self.common, total, guide)
        return after, news_of(after, total, guide)


def is_the_victim_s(server: Hostile, total: Change) -> bool:
    """Whether the numbers that move φ are the victim's alone."""
    noted = server.engine.noted
    return any(part.any() for part in noted.parts.values()) and all(
        torch.equal(part, total.parts[name])
        for name, part in noted.parts.items()
        if name not in ("roots", "squares")
    )


def others_are_numbed(server: Hostile) -> bool:
    """The others are handed a state in which they may move φ by next to nothing."""
    numb = everything(replace(server.common, usual=FEW, weight=server.common.weight / FEW))
    server.exchange.sum(receive_change, dict.fromkeys(server.others, numb))
    turns = {i: server.turn(server.common) for i in server.exchange.owners}
    return is_the_victim_s(server, server.exchange.sum(local_change_c, turns))


def others_start_from_elsewhere(server: Hostile) -> bool:
    """The same at the start, where no owner can tell that it was not always so."""
    far = replace(news_of(server.common), t=0)
    numb = replace(far, weight=far.weight / FEW)
    news = {i: far if i == VICTIM else numb for i in server.exchange.owners}
    server.exchange.sum(receive_change, news)
    states = {i: follower_state(server, i) for i in server.exchange.owners}
    turns = {i: Turn(0, False, state) for i, state in states.items()}
    return is_the_victim_s(server, server.exchange.sum(local_change_c, turns))


def follower_state(server: Hostile, owner: OwnerId) -> str:
    """What an owner holds, which its server can compute."""
    held = follower(server.engine.data_owners[owner]).common
    return "" if held is None else checksum_of(held)


def others_have_nothing_to_say(server: Hostile) -> bool:
    """Only the victim is asked about a new φ; the others are handed one, and add zeros."""
    after, step = server.stepped()
    news = {i: step if i == VICTIM else everything(after) for i in server.exchange.owners}
    return bool(server.exchange.sum(receive_change, news) == server.engine.noted)


def others_have_answered_before(server: Hostile) -> bool:
    """What is answered once is asked of the others first, and then of all."""
    server.engine.away = [VICTIM]
    try:
        server.exchange.sum(DataOwner.test_classifier, Ask(0))
    except FedSageError:
        pass  # they have answered
    server.engine.away = []
    found = server.exchange.sum(DataOwner.test_classifier, Ask(0))
    return bool(found == server.engine.noted)


def the_sum_without_the_victim(server: Hostile) -> bool:
    """The same sum again without one owner: the difference is what that owner added."""
    turn = server.turn(server.common)
    with_all = server.exchange.sum(local_change_c, turn)
    server.engine.away = [VICTIM]
    without = server.exchange.sum(local_change_c, {i: turn for i in server.exchange.owners})
    return with_all.count - without.count == 1


def hits_asked_again(server: Hostile) -> bool:
    """The hits of the last round once more, as if for the best φ, without one owner."""
    again = replace(news_of(server.common), weight=0.0, owners=0)
    server.engine.away = [VICTIM]
    found = server.exchange.sum(receive_change, {i: again for i in server.exchange.owners})
    return found.total > 0


def an_owner_named_twice(server: Hostile) -> bool:
    """To each its own list of who answered: enough names, but the same one twice."""
    exchange, hidden = server.exchange, server.exchange.hidden
    assert isinstance(hidden, HiddenSums)
    lot = hidden.lot_for(exchange.owners)
    turn = server.turn(server.common)
    exchange.ask(local_change_c, dict.fromkeys(exchange.owners, turn), Summed, lot=lot)
    honest = answered(lot, [VICTIM], hidden.signed.get(VICTIM, {}))
    spelled = " ".join(f"{'0' * k}{VICTIM}" for k in range(len(exchange.owners)))
    masks = server.engine.doors[VICTIM].masks
    assert masks is not None
    return len(give_shares(masks, replace(honest, owners=spelled)).shares) > 1


def all_are_handed_a_made_up_classifier(server: Hostile) -> bool:
    """A made-up φ for all, with steps too small to change it: hits are then of that φ."""
    phi = {name: torch.zeros_like(one) for name, one in server.common.phi.items()}
    made_up = replace(server.common, phi=phi, usual=FEW)
    server.exchange.sum(receive_change, everything(made_up))
    total = server.exchange.sum(local_change_c, server.turn(made_up))
    guide = guide_of(made_up, total)
    return bool(
        server.exchange.sum(
            receive_change, news_of(next_state(made_up, total, guide), total, guide)
        ).total
    )


def all_get_a_sum_that_nobody_added_to(server: Hostile) -> bool:
    """A sum that the server made up, for a round in which nobody was asked."""
    nothing, count = no_change(server.common), len(server.exchange.owners)
    parts = {name: torch.ones_like(one) for name, one in nothing.parts.items()}
    forged = replace(nothing, parts=parts, weight=count, steps=count, count=count)
    guide = guide_of(server.common, forged)
    news = news_of(next_state(server.common, forged, guide), forged, guide)
    server.exchange.sum(receive_change, news)
    return True


def the_round_again_without_cause(server: Hostile) -> bool:
    """The round once more, as if its sum could not be right, without one owner."""
    turn = server.turn(server.common)
    with_all = server.exchange.sum(local_change_c, turn)
    return is_had_again(server, replace(turn, again=1, cause=with_all))


def the_round_again_for_a_made_up_cause(server: Hostile) -> bool:
    """The same, with a sum that cannot be right because the server altered it."""
    turn = server.turn(server.common)
    total = server.exchange.sum(local_change_c, turn)
    cause = replace(total, parts={name: -one for name, one in total.parts.items()})
    return is_had_again(server, replace(turn, again=1, cause=cause))


def is_had_again(server: Hostile, turn: Turn) -> bool:
    """Whether the others add up their changes once more."""
    found = server.exchange.sum(local_change_c, dict.fromkeys(server.others, turn))
    return found.count == len(server.others)


def training_begun_again(server: Hostile) -> bool:
    """All begin anew with a step of another size: hits of one classifier after the other."""
    first = replace(news_of(server.common), t=0, weight=2 * server.common.weight)
    server.exchange.sum(receive_change, first)
    held = follower(server.engine.data_owners[VICTIM]).held(0)
    total = server.exchange.sum(local_change_c, server.turn(held))
    guide = guide_of(held, total)
    news = news_of(next_state(held, total, guide), total, guide)
    return bool(server.exchange.sum(receive_change, news).total)


Trick: TypeAlias = Callable[[Hostile], bool]
TRICKS: tuple[Trick, ...] = (
    others_are_numbed,
    others_start_from_elsewhere,
    others_have_nothing_to_say,
    others_have_answered_before,
    the_sum_without_the_victim,
    hits_asked_again,
    an_owner_named_twice,
    all_are_handed_a_made_up_classifier,
    all_get_a_sum_that_nobody_added_to,
    the_round_again_without_cause,
    the_round_again_for_a_made_up_cause,
    training_begun_again,
)
ATTEMPT = Attempt(
    "singling-out",
    "hostile server",
    "replies to questions that it puts to each owner as it likes",
    f"tricks of {len(TRICKS)} that show one owner's reply",
)


@attack("singling-out")
def singling_out(case: Case) -> Finding:
    """Can a server make a sum show what one owner added?"""
    if not case.masked:
        return ATTEMPT.not_run("at this level the server sees every owner's reply anyway")
    if in_private(case.plan.config):
        return ATTEMPT.not_run("see unpaid-answers, the same for noisy sums")
    found = [words_of(trick) for trick in TRICKS if succeeds(trick, case.setup)]
    return ATTEMPT.found(len(found), 0, bool(found), note=", ".join(found))


def succeeds(trick: Trick, setup: Setup) -> bool:
    """Whether owners let themselves be tricked."""
    server = Hostile(setup)
    try:
        return trick(server)
    except FedSageError:
        return False


def words_of(trick: Trick) -> str:
    """Its name, in words."""
    return trick.__name__.replace("_", " ")
