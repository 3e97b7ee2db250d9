"""Poisoning: one owner of five sends its update times minus thirty, or something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.config import Config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.engines.simulated import hide_sums
from fedsage.errors import FedSageError
from fedsage.graph.partition import partition
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.protocol.changes.follow import follower
from fedsage.protocol.changes.state import ROOTS, Change
from fedsage.protocol.changes.weights import SQUARES
from fedsage.protocol.door import Link
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, ClassifierUpdate, OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Procedure, in_private, in_sums
from fedsage.protocol.server import share_of_hits
from fedsage.rng import Stream, generator
from fedsage.runs.events import Stopwatch, ignore_event
from fedsage.runs.setup import Setup, data_owners, prepare
from fedsage.runs.train import run_method

Turn: TypeAlias = Callable[[DataOwner], Sequence[Link]]  # turns an owner into a hostile one
OWNERS, ROUNDS, FACTOR, POINTS = 5, 20, -30.0, 0.02
ATTEMPT = Attempt(
    "poisoning",
    "hostile owner",
    f"its own update, times {FACTOR:g}; one of {OWNERS} owners",
    "accuracy",
)


@attack("poisoning")
def poisoning(case: Case) -> Finding:
    """Can one owner spoil the shared classifier? Compared with the accuracy without it."""
    graph = case.setup.graph
    if in_private(case.plan.config):
        return ATTEMPT.not_run("not tried on noisy sums; noise does not stop such an owner")
    if graph is None:
        return ATTEMPT.not_run("the whole graph is not available, so it cannot be cut for five")
    config = for_five(case.setup.config)
    try:
        setup = prepare(config, partition(graph, OWNERS, "random", config.run.seed), graph)
        clean, _ = accuracy(setup, honest)
    except FedSageError as error:
        return ATTEMPT.not_run(f"a run with five owners is not possible: {error}")
    counted = THIRTY | (MOMENTUM if config.traffic.how == "full" else {})
    ways = counted if case.quick or not case.masked else {**counted, **OTHERS}
    tried = {way: spoiled_by(setup, turn) for way, turn in ways.items()}
    note = "; ".join(f"{way}: {found:.3f}, {what}" for way, (found, what) in tried.items())
    spoiled = min(tried[way][0] for way in counted)
    return ATTEMPT.found(spoiled, clean, spoiled < clean - POINTS, note=note)


def spoiled_by(setup: Setup, how: Turn) -> tuple[float, str]:
    """The accuracy that is left, and what happened to the hostile owner."""
    try:
        return accuracy(setup, how)
    except FedSageError as error:
        return 0.0, f"the run ended: {error}"


def honest(owner: DataOwner) -> Sequence[Link]:
    """Everybody does as agreed."""
    return []


def by_link(factor: float) -> Turn:
    """Modified software at one owner's door, which respects no limit but the ring's."""
    return lambda owner: [Poison(factor, owner)]


def by_momentum(factor: float) -> Turn:
    """An honest update, but moments that push the others' next steps backwards."""

    def push(procedure: Procedure[Any, Any, Any], reply: Any) -> Any:
        if not isinstance(reply, ClassifierUpdate):
            return reply
        return replace(reply, moments=times_first(reply.moments, factor))

    return lambda owner: [push]


def times_first(moments: Parameters, factor: float) -> Parameters:
    """First moments as if gradients had been that much larger."""
    first = (name.endswith(".exp_avg") for name in moments)
    return {
        n: m * factor if one else m for one, (n, m) in zip(first, moments.items(), strict=True)
    }


def by_chance(owner: DataOwner) -> Sequence[Link]:
    """Random numbers, as large as the ring allows."""
    return [Noise(0.0, owner)]


def by_training(factor: float) -> Turn:
    """Our software, which clips, but with the trained update multiplied."""

    def turn(owner: DataOwner) -> Sequence[Link]:
        trains = owner.local_update_c

        def turned(ask: Ask) -> ClassifierUpdate:
            start = {name: one.clone() for name, one in parameters_of(owner.model).items()}
            update = trains(ask)
            far = {n: one + factor * (update.phi[n] - one) for n, one in start.items()}
            return replace(update, phi=far)

        owner.local_update_c = turned
        return []

    return turn


def for_five(config: Config) -> Config:
    """The same settings, for five owners and few rounds, without mending."""
    data = config.data.model_copy(update={"owners": OWNERS, "partition": "random"})
    rounds = min(ROUNDS, config.classifier.rounds_c)
    classifier = config.classifier.model_copy(update={"rounds_c": rounds})
    run = config.run.model_copy(update={"method": "fedsage"})
    changed = {"data": data, "classifier": classifier, "run": run}
    return config.model_copy(update=changed)


def accuracy(setup: Setup, how: Turn) -> tuple[float, str]:
    """Accuracy on the owners' test nodes, and how often somebody was left out of a round."""
    (owners,) = data_owners(setup)

    def links(i: OwnerId) -> Sequence[Link]:
        return how(owners[0]) if i == 0 else []

    engine = InProcessEngine(owners, links=links)
    engine.min_owners = OWNERS - 1
    exchange = Exchange(engine, setup.plan)
    if in_sums(setup.plan.config):
        hide_sums(exchange, engine)
    watch, train = Stopwatch(ignore_event), setup.method.train
    outcome = run_method(exchange, setup.config, setup.way, setup.rule, watch, train)
    left_out = sum(miss.owner == 0 for miss in exchange.misses)
    blamed = sum(miss.owner != 0 for miss in exchange.misses)
    words = f"found out in {left_out} rounds" + (f", others in {blamed}" if blamed else "")
    return share_of_hits(outcome.tested, outcome.view), words


@dataclass(slots=True)
class Poison:
    """A link of an owner's door that multiplies the owner's update by ``factor``.

    Args:
        factor: For example −30: far back, away from where training goes.
        owner: The hostile owner. It knows what any owner knows, and proves what it sends.
        gradients: Whether the optimizer's first moments are multiplied too.
    """

    factor: float
    owner: DataOwner
    gradients: bool = True
    start: Parameters = field(default_factory=dict)  # φ as received

    def __call__(self, procedure: Procedure[Any, Any, Any], reply: Any) -> Any:
        """What leaves instead of the reply."""
        if isinstance(reply, ClassifierUpdate):
            pushed = times_first(reply.moments, self.factor if self.gradients else 1.0)
            return replace(reply, phi=self.far(reply.phi), moments=pushed)
        if isinstance(reply, Change):
            parts = {name: self.times(name, part) for name, part in reply.parts.items()}
            mine = follower(self.owner)
            assert mine.common is not None  # it has just trained from there
            again = max(mine.tries)  # the try it has just answered
            return mine.trust.with_proof(mine.common, replace(reply, parts=parts), again)
        if procedure.name == DataOwner.receive_classifier.name:
            self.start = parameters_of(self.owner.model)
        return reply

    def far(self, phi: Parameters) -> Parameters:
        """φ + factor · (φ_i − φ)."""
        start = self.start
        return {name: start[name] + self.factor * (w - start[name]) for name, w in phi.items()}

    def times(self, name: str, numbers: Tensor) -> Tensor:
        """Integers times ``factor``, clipped to an owner's share of the ring."""
        if name in (SQUARES, ROOTS):
            return numbers
        most = torch.iinfo(numbers.dtype).max // len(self.owner.plan.nodes)
        return (numbers.double() * self.factor).round().clamp(-most, most).to(numbers.dtype)


@dataclass(slots=True)
class Noise(Poison):
    """A link that sends random numbers instead of the owner's."""

    stream: Stream = field(default_factory=lambda: generator(0, "poison"))

    def times(self, name: str, numbers: Tensor) -> Tensor:
        """Integers at random, from an owner's share of the ring."""
        if name in (SQUARES, ROOTS):
            return numbers
        most = torch.iinfo(numbers.dtype).max // len(self.owner.plan.nodes)
        drawn = self.stream.integers(-most, most + 1, tuple(numbers.shape))
        return torch.from_numpy(drawn).to(numbers.dtype)


THIRTY: dict[str, Turn] = {
    "× −30": by_link(FACTOR),
    "× −30 by software that clips": by_training(FACTOR),
}
MOMENTUM: dict[str, Turn] = {"momentum alone × −10": by_momentum(-10.0)}
OTHERS: dict[str, Turn] = {
    "× −1": by_link(-1.0),
    "× −0.3": by_link(-0.3),
    "large random numbers": by_chance,
}
