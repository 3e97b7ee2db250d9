"""One NeighGen for all owners in few bytes: a round is sent as how far it moves θ.

The common state, and how a sum of changes moves it, are as for the classifier's φ. The
optimizer's moments stay with each owner, so that no part of the change of θ is predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache

from fedsage.errors import ProtocolError
from fedsage.mending.generator import common_theta, learner, local_steps, mend_with
from fedsage.models.gen_learner import GenState
from fedsage.models.parameters import Parameters, load_parameters, parameters_of, under
from fedsage.protocol.agreement import Ready
from fedsage.protocol.changes.follow import News, Trust, Turn
from fedsage.protocol.changes.owner import sizes_of_change, sizes_of_parts, strange_parts
from fedsage.protocol.changes.server import (
    everything,
    for_everyone,
    for_owners,
    news_of,
    state_of,
    vouched,
)
from fedsage.protocol.changes.state import FIXED, Change, Common, new_common, packed, unpacked
from fedsage.protocol.changes.step import change_of, guide_of, next_state
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.guard import all_finite
from fedsage.protocol.messages import (
    Classifier,
    ClassifierUpdate,
    Form,
    Ints,
    Mended,
    OwnerId,
    message,
)
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Summed, in_whole_numbers, procedure
from fedsage.protocol.wire import encode as to_frame
from fedsage.rng import generator

NEIGHGEN = "NeighGen"  # what owners follow here, as they call it


@message
class NeighGenChange:
    """D_i → S: how far local training moves NeighGen, in whole numbers."""

    change: Change
    losses: dict[str, int]  # by term, in multiples of 2⁻²⁰


@lru_cache(maxsize=4)
def plan_for_theta(plan: Plan) -> Plan:
    """The same run for weights whose moments are not shared."""
    own = plan.config.classifier.model_copy(update={"moments": "own"})
    return replace(plan, config=plan.config.model_copy(update={"classifier": own}))


@lru_cache(maxsize=4)
def first_theta(plan: Plan, owners: int) -> Common:
    """The state before the first round: follows from the plan and the number of owners."""
    how = plan.config.neighgen
    size = how.eta * how.local_steps * 4  # Adam's steps are at most η long
    return new_common(plan_for_theta(plan), common_theta(plan), owners, 1.0, size)


@dataclass(frozen=True, slots=True)
class SharedState:
    """What a round leaves with an owner alone."""

    gen: GenState
    feedback: Parameters


@dataclass(slots=True)
class SharedFollower:
    """How an owner follows θ: the common state, and what it could not send so far."""

    owner: DataOwner
    feedback: Parameters = field(default_factory=dict)
    common: Common | None = None
    trust: Trust = field(init=False)

    def __post_init__(self) -> None:
        self.trust = Trust(self.owner, NEIGHGEN)

    def state(self) -> SharedState:
        """What the server cannot give back after a restart."""
        return SharedState(learner(self.owner).state(), self.feedback)

    def restore(self, state: SharedState) -> None:
        """Continue from that state."""
        learner(self.owner).restore(state.gen)
        self.feedback = dict(state.feedback)

    def take(self, news: News) -> Common:
        """Bring this owner to the state that the others hold."""
        plan = self.owner.plan
        if news.total.count:
            self.common, _ = self.trust.step(self.held(news.t - 1), news)
        elif news.memory:
            whole = Classifier(news.phi, news.memory)
            common = unpacked(plan_for_theta(plan).config, whole)
            self.trust.accept(common, news)
            self.common = common
        else:
            self.trust.check_first()
            self.common = first_theta(plan, news.owners)
        return self.common

    def held(self, t: int) -> Common:
        """The state that this owner holds at the start of round ``t``."""
        if self.common is None or self.common.t != t:
            raise ProtocolError(f"it does not hold the NeighGen that round {t} starts from")
        return self.common


def shared_follower(owner: DataOwner) -> SharedFollower:
    """The follower of this owner."""
    learner(owner)  # must exist from now on, to be restored
    return owner.part("shared changes", lambda: SharedFollower(owner))


def form_of_change(plan: Plan) -> dict[str, Form]:
    """Integers, in parts that the plan knows."""
    sizes = sizes_of_parts(first_theta(plan, 1))
    return {"change": {"parts": {part: Ints(size) for part, size in sizes.items()}}}


def strange_change(plan: Plan, owner: OwnerId, turn: Turn, reply: NeighGenChange) -> str | None:
    """Refuse a change of more than one owner, or numbers beyond an owner's share."""
    if reply.change.count != 1 or reply.change.weight != 2**FIXED:
        return "a change that counts for more or less than one owner"
    return strange_parts(plan, turn.t, reply.change.parts)


@lru_cache(maxsize=4)
def full_size(plan: Plan) -> int:
    """The bytes of NeighGen in a full message."""
    return len(to_frame(Classifier(first_theta(plan, 1).phi, {})))


@procedure(phase="mending", full=lambda plan, news: (full_size(plan), 0), when=in_whole_numbers)
def receive_theta(owner: DataOwner, news: News) -> Ready:
    """Take the step that all take; refuse a sum that is not what the owners added up."""
    shared_follower(owner).take(news)
    return Ready()


@procedure(
    phase="mending",
    uses=Summed,
    after=("receive_theta",),
    shapes=form_of_change,
    check=strange_change,
    rounds=True,
    sizes=lambda common, turn, reply: sizes_of_change(common, turn, reply.change),
    keeps=shared_follower,
    leaves="In each of {config.neighgen.rounds_gen} rounds before training: how far training "
    "on your nodes moves the weights of the generator, in integers of a few bits, and its "
    "losses.",
    full=lambda plan, turn: (0, full_size(plan)),
    when=in_whole_numbers,
)
def change_shared_neighgen(owner: DataOwner, turn: Turn) -> NeighGenChange:
    """FedAvg of NeighGen: train the shared weights on Eq. (5), and send the change."""
    mine, own = shared_follower(owner), learner(owner)
    common = mine.held(turn.t)
    mine.trust.start(common, turn.state)
    load_parameters(own.neighgen, common.phi)
    own.begin(turn.t)
    done = local_steps(owner, turn.t, {}, 0.0)
    theta = parameters_of(own.neighgen)
    if not all(map(all_finite, theta.values())):
        raise ProtocolError("training diverged there: lower neighgen.eta")
    update = ClassifierUpdate(theta, {}, common.weight, 0.0)  # losses are in ``done``
    stream = generator(owner.seed, "whole numbers, shared", owner.id, turn.t)
    steps = owner.config.neighgen.local_steps
    losses = {term: round(loss * 2**FIXED) for term, loss in asdict(done).items()}
    change = change_of(common, update, steps, mine.feedback, stream)
    return NeighGenChange(mine.trust.with_proof(common, change), losses)


@procedure(
    phase="mending",
    owed=True,
    full=lambda plan, news: (0, 0),  # ``receive_theta`` counts θ after the last round
    when=in_whole_numbers,
)
def mend_by_theta(owner: DataOwner, news: News) -> Mended:
    """Retrieve G'_i by the shared NeighGen, as it is after the last round."""
    load_parameters(learner(owner).neighgen, shared_follower(owner).take(news).phi)
    return mend_with(owner)


def share_by_changes(exchange: Exchange) -> Common:
    """All rounds, then mend; returns the state at the end."""
    plan, owners = exchange.plan, exchange.owners
    common = from_disk(plan, exchange.kept) or first_theta(plan, len(owners))
    begin = (
        news_of(common) if common.t == 0 else vouched(exchange, NEIGHGEN, everything(common))
    )
    exchange.all(receive_theta, begin)
    for t in exchange.rounds(plan.config.neighgen.rounds_gen):
        holding = exchange.answered[receive_theta.name]
        exchange.guard.held = common
        total = exchange.sum(change_shared_neighgen, Turn(t, False, state_of(common)))
        losses = {term: n / total.change.count / 2**FIXED for term, n in total.losses.items()}
        guide = guide_of(common, total.change)
        told = total.change if exchange.hidden is not None else for_owners(total.change)
        common = next_state(common, told, guide)
        step, added = (
            news_of(common, told, guide),
            exchange.answered[change_shared_neighgen.name],
        )
        hand_out(exchange, *for_everyone(exchange, common, step, holding, added))
        exchange.end_round(t, losses, to_disk(common))
    exchange.all(mend_by_theta, vouched(exchange, NEIGHGEN, everything(common)))
    return common


def hand_out(
    exchange: Exchange, now: Mapping[OwnerId, News], late: Mapping[OwnerId, News]
) -> None:
    """Send the news of a round; to those that could not check it with the others' word."""
    exchange.all(receive_theta, now)
    if late:
        here = exchange.answered[receive_theta.name]
        given = {i: vouched(exchange, NEIGHGEN, one) for i, one in late.items()}
        exchange.all(receive_theta, given, least=0)
        exchange.answered[receive_theta.name] += here


def to_disk(common: Common) -> Parameters:
    """The common state as one table."""
    whole = packed(common)
    return {f"theta/{name}": one for name, one in whole.phi.items()} | {
        f"memory/{name}": one for name, one in whole.moments.items()
    }


def from_disk(plan: Plan, kept: Parameters) -> Common | None:
    """The inverse of ``to_disk``; None if nothing was kept."""
    if not kept:
        return None
    whole = Classifier(under("theta", kept), under("memory", kept))
    return unpacked(plan_for_theta(plan).config, whole)
