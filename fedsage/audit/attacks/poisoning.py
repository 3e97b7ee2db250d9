"""Poisoning: one owner of five sends thirty times its update, the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.config import Config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import FedSageError
from fedsage.graph.partition import partition
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.protocol.changes import local_change_c
from fedsage.protocol.common import ROOTS, SQUARES, Change, ring_of
from fedsage.protocol.door import Link
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import ClassifierUpdate, OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Procedure
from fedsage.runs.events import Stopwatch, ignore_event
from fedsage.runs.setup import Setup, data_owners, prepare
from fedsage.runs.train import run_method

OWNERS, ROUNDS, FACTOR, POINTS = 5, 20, -30, 0.02
ATTEMPT = Attempt(
    "poisoning",
    "hostile owner",
    f"its own update, times {FACTOR}; one of {OWNERS} owners",
    "accuracy",
)


@attack("poisoning")
def poisoning(case: Case) -> Finding:
    """Can one owner spoil the classifier of all? Beside it, the accuracy without it."""
    graph = case.setup.graph
    if graph is None:
        return ATTEMPT.not_run("the graph cannot be cut for five owners: nobody holds it")
    config = for_five(case.setup.config)
    try:
        setup = prepare(config, partition(graph, OWNERS, "random", config.run.seed), graph)
        clean, _ = accuracy(setup, hostile=False)
    except FedSageError as error:
        return ATTEMPT.not_run(f"there is no run with five owners: {error}")
    try:
        spoiled, note = accuracy(setup, hostile=True)
    except FedSageError as error:
        spoiled, note = 0.0, f"the run ended: {error}"
    return ATTEMPT.found(spoiled, clean, spoiled < clean - POINTS, note=note)


def for_five(config: Config) -> Config:
    """The same settings, for five owners and few rounds, without mending."""
    data = config.data.model_copy(update={"owners": OWNERS, "partition": "random"})
    rounds = min(ROUNDS, config.classifier.rounds_c)
    classifier = config.classifier.model_copy(update={"rounds_c": rounds})
    run = config.run.model_copy(update={"method": "fedsage"})
    changed = {"data": data, "classifier": classifier, "run": run}
    return config.model_copy(update=changed)


def accuracy(setup: Setup, hostile: bool) -> tuple[float, str]:
    """On the owners' test nodes; and how often somebody was left out of a round."""
    (owners,) = data_owners(setup)

    def links(i: OwnerId) -> Sequence[Link]:
        return [Hostile(owners[0])] if hostile and i == 0 else []

    engine = InProcessEngine(owners, links=links)
    engine.min_owners = OWNERS - 1
    exchange = Exchange(engine, setup.plan)
    watch, train = Stopwatch(ignore_event), setup.method.train
    outcome = run_method(exchange, setup.config, setup.way, setup.rule, watch, train)
    hits = outcome.hits.values()
    share = sum(getattr(one, outcome.view) for one in hits) / sum(one.total for one in hits)
    return share, f"the guard left it out {len(exchange.misses)} times"


class Hostile:
    """A link at an owner's door that turns its updates round and makes them large."""

    def __init__(self, owner: DataOwner) -> None:
        self.owner, self.t = owner, 0
        self.phi: Parameters = {}  # as it was handed out last

    def __call__(self, procedure: Procedure[Any, Any, Any], reply: Any) -> Any:
        """What leaves in place of the reply."""
        if isinstance(reply, ClassifierUpdate):
            moved = {n: w + FACTOR * (reply.phi[n] - w) for n, w in self.phi.items()}
            return replace(reply, phi=moved)
        if isinstance(reply, Change):
            return self.turned(reply)
        if procedure.phase == "training":
            self.phi = parameters_of(self.owner.model)
        return reply

    def turned(self, change: Change) -> Change:
        """The same of a change, as far as its whole numbers go."""
        plan, parts = self.owner.plan, {}
        for part, numbers in change.parts.items():
            factor = {SQUARES: FACTOR**2, ROOTS: 1}.get(part, FACTOR)
            ring = ring_of(part, self.t, len(plan.nodes), plan.config.traffic.bits)
            larger = (numbers.long() * factor).clamp(-ring.most, ring.most)
            parts[part] = larger.to(numbers.dtype)
        self.t += local_change_c.name in plan.asks
        return replace(change, parts=parts)
