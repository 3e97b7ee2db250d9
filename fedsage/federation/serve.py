"""The server's side of a federated run, over any engine: agree, scale, train, finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedsage.checkpoint.server import DiskJournal, ServerState, step_of
from fedsage.checkpoint.store import Shelf
from fedsage.conduct import EXCHANGED, timed, told
from fedsage.config import Config
from fedsage.errors import ConfigError, nearest
from fedsage.evaluation.results import HistoryLine, RunRecord
from fedsage.methods import Outcome, fedsage_plus
from fedsage.models.backbone import BACKBONES, is_ours
from fedsage.models.classifier import NodeClassifier
from fedsage.models.parameters import parameters_of, sha256_of
from fedsage.prepare import (
    Plan,
    blank_neighgen,
    check_generator,
    mending_of,
    plan_of,
    way_of_mending,
)
from fedsage.protocol.engine import Engine
from fedsage.protocol.guard import shapes_of
from fedsage.protocol.joining import (
    ABLE,
    FINISH,
    RESTORE,
    agree,
    agree_on_scale,
    give_scale,
)
from fedsage.protocol.messages import ColumnScale, Finish, Joined, OwnerId, Step
from fedsage.record import Stopwatch, federated_record
from fedsage.threads import dense_threads

FEDERATED = ("fedsage", "fedsage+", *(f"fedsage+{way}" for way in EXCHANGED))


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What the server has when a federated run is over."""

    record: RunRecord
    model: NodeClassifier


def check_federated(config: Config) -> None:
    """Refuse what cannot be run between owners."""
    if config.run.method not in FEDERATED:
        raise ConfigError(
            f"{config.run.method} cannot be run between separate owners. Take one of "
            f"{', '.join(FEDERATED)}."
        )
    if not is_ours(name := config.model.backbone):
        raise ConfigError(
            f"Backbone '{name}' cannot be used between separate owners: no code travels. Take "
            f"one of fedsage's own.{nearest(name, BACKBONES.ours())}"
        )


def serve(
    config: Config,
    engine: Engine,
    names: Sequence[str],
    run: str,
    version: str,
    folder: Path,
    on_line: Callable[[HistoryLine], None],
) -> Served:
    """Algorithm 1 between parties; rounds are kept in ``folder``, and taken up from there.

    Args:
        config: All settings of the run.
        engine: The way to the owners.
        names: What the owners are called, in the order of their numbers.
        run: A name for this run; the same one goes on with it.
        version: Of fedsage, at the server.
        folder: For the server's checkpoints.
        on_line: Called after each round.
    """
    check_federated(config)
    watch = Stopwatch()
    with watch.phase("load"):
        joined = agree(engine, run, version, config.model_dump_json(), names)
        plan = agreed_plan(config, engine, joined)
        give_scale(engine, kept_scale(engine, folder))
    way = way_of_mending(config.run.method, config.mend.how)
    check_generator(plan, way)
    with watch.phase("classifier"), dense_threads(config.run.threads):
        journal = journal_of(engine, folder)
        outcome = fedsage_plus(
            engine,
            plan.phi,
            mend=timed(mending_of(way, plan, config.neighgen.rounds_gen), watch),
            rounds_c=config.classifier.rounds_c,
            selection=config.classifier.selection,
            queries=config.mend.queries,
            aggregate=config.classifier.aggregate,
            on_round=told(journal, engine.traffic, on_line, misses=engine.misses),
            journal=journal,
        )
    with watch.phase("evaluate"):
        end = Finish(outcome.view, sha256_of(outcome.classifier.phi))
        engine.exchange(FINISH, dict.fromkeys(engine.owners, end), 0)
    found = served(config, watch, plan, joined, outcome, engine, journal.resumed)
    missed = sum(len(line.without) for line in journal.lines) + len(engine.misses)
    return replace(found, record=replace(found.record, missed=missed))


def agreed_plan(config: Config, engine: Engine, joined: dict[OwnerId, Joined]) -> Plan:
    """The plan for the owners that joined; replies are held against it."""
    first = next(iter(joined.values()))
    sizes = [one.nodes for one in joined.values()]
    plan = plan_of(config, first.features, first.classes, sizes)
    engine.guard.weights = {i: one.weight for i, one in joined.items()}
    engine.guard.hg = shapes_of(parameters_of(blank_neighgen(plan).hg))
    return plan


def journal_of(engine: Engine, folder: Path) -> DiskJournal:
    """The server's rounds; after a restart, owners are brought to where they were then."""
    everyone = len(engine.owners)
    steps: dict[OwnerId, Step] = {}

    def can(state: ServerState) -> bool:
        steps.update({i: Step(*step_of(state, i)) for i in engine.owners})
        replies = engine.exchange(ABLE, steps, everyone)
        return all(reply.yes for reply in replies.values())

    journal = DiskJournal(folder, engine, can, durable=True)
    if journal.resumed:
        engine.exchange(RESTORE, steps, everyone)
    return journal


def kept_scale(engine: Engine, folder: Path) -> ColumnScale:
    """The scale of the columns, agreed on when the run began and never again."""
    shelf = Shelf(folder, "scale", durable=True)
    found = shelf.get(0, ColumnScale)
    if found is None:
        found = agree_on_scale(engine)
        shelf.put(0, found)
    return found


def served(
    config: Config,
    watch: Stopwatch,
    plan: Plan,
    joined: dict[OwnerId, Joined],
    outcome: Outcome,
    engine: Engine,
    resumed: int,
) -> Served:
    """The record and the model."""
    named = {engine.name_of(i): (one, outcome.hits.get(i)) for i, one in joined.items()}
    record = federated_record(config, watch, named, outcome, engine.traffic, resumed)
    model = NodeClassifier(plan.shape, outcome.classifier.phi, record.class_names)
    return Served(record, model)
