"""One training from first to last round: which owners, which engine, which journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsage.checkpoint.server import DiskJournal, ServerState, step_of
from fedsage.config import Config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.feature_forms import RAW, FeatureForm
from fedsage.mending.way import Way
from fedsage.methods import Loop, fedsage, fedsage_plus, privately
from fedsage.models.calibration import AS_IS
from fedsage.models.classifier import NodeClassifier
from fedsage.models.gen_learner import GenLearner
from fedsage.protocol.class_weights import balance
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.measuring import (
    Measured,
    Query,
    added_up,
    count_answers,
    measure,
    test_start,
)
from fedsage.protocol.messages import Ask, Hits, View
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Journal, RoundRecord, Traffic, no_traffic
from fedsage.protocol.procedures import Phase, in_private, in_sums
from fedsage.protocol.server import Rule
from fedsage.rounds import Outcome
from fedsage.runs.events import Event, HistoryLine, Observer, Stopwatch
from fedsage.runs.messages_seen import Recorder
from fedsage.runs.setup import Setup, data_owners


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What came out of training, before it is evaluated."""

    outcomes: list[Outcome]
    traffic: dict[Phase, Traffic]  # that crossed a boundary
    owners: list[DataOwner]
    measured: list[Measured]  # one for each outcome
    resumed: int = 0  # how often it was started again
    before: Sequence[tuple[Hits, View]] = ()  # of the φ that each began with, if earlier


def train(
    setup: Setup,
    watch: Stopwatch,
    observe: Observer,
    checkpoint: Path | None,
    record: Path | None = None,
) -> Trained:
    """Run the method.

    With ``checkpoint``, a round is kept in that folder every second, and a run that was
    stopped goes on after the last one in it. With ``record``, that folder gets every message.
    """
    groups = data_owners(setup)
    together = setup.method.topology == "federated"
    traffic, outcomes, measured, resumed = no_traffic(), [], [], 0
    before: list[tuple[Hits, View]] = []
    for k, owners in enumerate(groups):
        engine = InProcessEngine(owners, setup.config.run.workers, folder=checkpoint)
        exchange = Exchange(engine, setup.plan)
        if in_sums(setup.plan.config):
            from fedsage.engines.simulated import hide_sums  # cryptography takes time to load

            hide_sums(exchange, engine)
        traffic = engine.traffic if together else traffic  # alone, nothing crosses
        again = setup.method.train in (fedsage, privately) and setup.method.resumes
        if checkpoint is not None and again:
            name = "model-{k}" if setup.method.topology == "alone" else "server"
            exchange.journal = journal_of(exchange, checkpoint / name.format(k=k))
        Rounds(
            exchange,
            observe,
            traffic,
            class_names=owners[0].graph.class_names,
            form=setup.form,
            owner=owners[0].id if setup.method.topology == "alone" else None,
            searching=owners if together else (),
        )
        with recording(exchange, record):
            outcome = run_method(
                exchange, setup.config, setup.way, setup.rule, watch, setup.method.train
            )
            outcomes.append(outcome)
            with watch.phase("evaluation"):
                look = seen_here if in_private(setup.plan.config) else measure
                measured.append(look(exchange, outcome.view))
                if setup.plan.start and setup.method.topology != "whole":
                    before.append((exchange.sum(test_start, Ask(0)), outcome.view))
        resumed = max(resumed, getattr(exchange.journal, "resumed", 0))
    everyone = [owner for group in groups for owner in group]
    return Trained(outcomes, traffic, everyone, measured, resumed, before)


def seen_here(exchange: Exchange, view: View) -> Measured:
    """What the classifier answers for test nodes, looked up by whoever simulates all owners.

    It passes no door: in a private run between machines, nobody is told.
    """
    assert isinstance(exchange.engine, InProcessEngine)
    owners = list(exchange.engine.data_owners.values())
    return added_up([count_answers(owner, Query(view)) for owner in owners], AS_IS)


def recording(exchange: Exchange, record: Path | None) -> ExitStack:
    """While it is open, messages are kept in that folder, if there is one."""
    stack = ExitStack()
    if record is not None:
        assert isinstance(exchange.engine, InProcessEngine)
        recorder = stack.enter_context(Recorder(record))
        exchange.engine.on_frames, exchange.on_sum = recorder.carried, recorder.summed
    return stack


def run_method(
    exchange: Exchange,
    config: Config,
    way: Way,
    rule: Rule,
    watch: Stopwatch,
    loop: Loop = fedsage,
) -> Outcome:
    """Mend and train, as the settings say; time spent on mending is counted apart."""

    def mend(exchange: Exchange) -> None:
        with watch.phase("mending"):
            way.mend(exchange)

    if config.classifier.class_weights == "balanced":
        balance(exchange)
    return fedsage_plus(
        exchange,
        exchange.plan.phi,
        mend=mend,
        train=loop,
        rounds_c=config.classifier.rounds_c,
        selection=config.classifier.selection,
        queries=config.mend.queries,
        rule=rule,
    )


def journal_of(exchange: Exchange, folder: Path) -> Journal:
    """Where the server keeps its rounds; its owners are brought to where it starts."""
    assert isinstance(exchange.engine, InProcessEngine)
    keepers = list(exchange.engine.keepers.values())
    states: list[ServerState] = []

    def can(state: ServerState) -> bool:
        states.append(state)
        return all(keeper.has(*step_of(state, keeper.owner.id)) for keeper in keepers)

    journal = DiskJournal(folder, exchange, can, due=exchange.engine.due)
    if journal.resumed:
        for keeper in keepers:
            keeper.restore(*step_of(states[-1], keeper.owner.id))
    return journal


class Rounds:
    """Makes events of an exchange's rounds; those from before a restart come first.

    Args:
        exchange: Its misses are taken out of it, and stand in the line of their round.
        observe: Gets the events.
        traffic: What crosses a boundary.
        class_names: For the model in the event; so is ``form``.
        owner: Whose local model it is, where every owner trains its own.
        searching: Whose nodes may be the nearest to what others generate.
    """

    def __init__(
        self,
        exchange: Exchange,
        observe: Observer,
        traffic: Mapping[Phase, Traffic],
        class_names: tuple[str, ...] = (),
        owner: int | None = None,
        searching: Sequence[DataOwner] = (),
        form: FeatureForm = RAW,
    ) -> None:
        self.exchange, self.observe, self.traffic = exchange, observe, traffic
        self.class_names, self.owner, self.searching = class_names, owner, searching
        self.form = form
        journal = exchange.journal
        self.lines: list[dict[str, Any]] = (
            journal.lines if isinstance(journal, DiskJournal) else []
        )
        for line in list(self.lines):
            observe(Event("round", line["phase"], HistoryLine(**line)))
        before = self.lines[-1]["seconds"] if self.lines else 0.0
        self.start = time.perf_counter() - before
        exchange.on_round = self

    def __call__(self, record: RoundRecord) -> None:
        """A round is over."""
        line = HistoryLine(
            record.phase,
            record.t,
            record.loss,
            record.validation,
            self.traffic[record.phase].sent,
            time.perf_counter() - self.start,
            self.owner,
            record.terms,
            share_picked(self.searching) if record.phase == "mending" else None,
            [asdict(miss) for miss in self.exchange.misses],
            self.traffic[record.phase].full,
        )
        self.exchange.misses.clear()
        self.lines.append(asdict(line))
        self.observe(
            Event("round", record.phase, line, _model=self.model(record), _stop=self.stop)
        )

    def model(self, record: RoundRecord) -> Callable[[], NodeClassifier | None]:
        """The classifier after that round, made when somebody asks for it."""
        if record.classifier is None:
            return lambda: None
        shape, phi = self.exchange.plan.shape, record.classifier.phi
        return lambda: NodeClassifier(shape, phi, self.class_names, form=self.form)

    def stop(self) -> None:
        """Let this be the last round of its phase."""
        self.exchange.stopping = True


def share_picked(owners: Sequence[DataOwner]) -> float | None:
    """The share of all owners' nodes that were ever the nearest to a generated neighbor.

    None where nobody searched.
    """
    parts = [part for owner in owners for part in owner.parts.values()]
    picked = [part.picked for part in parts if isinstance(part, GenLearner)]
    share = float(np.concatenate(picked).mean()) if picked else 0.0
    return share or None
