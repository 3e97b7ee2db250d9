"""The server's side of a federated run, over any engine: agree, scale, train, finish."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedsage.checkpoint.server import DiskJournal, ServerState, step_of
from fedsage.checkpoint.store import Shelf
from fedsage.config import Config
from fedsage.errors import ConfigError
from fedsage.federation.before_training.earlier_run import begin_together
from fedsage.federation.before_training.features import (
    agree_on_features,
    check_counted,
    form_of_sums,
    formed,
)
from fedsage.federation.before_training.join import agree_on_scale, give_scale, join
from fedsage.federation.owner.site import Site
from fedsage.graph.feature_forms import RAW, FeatureForm
from fedsage.machine import dense_threads
from fedsage.mending.way import Way
from fedsage.methods import Method, all_methods, find_method
from fedsage.models.calibration import AS_IS
from fedsage.models.classifier import NodeClassifier, save_models
from fedsage.models.parameters import sha256_of
from fedsage.protocol.agreement import ColumnScale, FeatureSums, Finish, Joined, Step
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.measuring import measure, test_start
from fedsage.protocol.messages import NO_HITS, Ask, Hits, OwnerId
from fedsage.protocol.plan import Engine, Plan
from fedsage.protocol.procedures import in_private
from fedsage.protocol.server import Rule, share_of_hits
from fedsage.rounds import Outcome
from fedsage.runs.events import Event, Observer, Stopwatch
from fedsage.runs.record import Facts, OwnerLine, RunRecord, record_of
from fedsage.runs.setup import chosen_by_name, plan_of
from fedsage.runs.train import Rounds, run_method
from fedsage.tables.tables import Scale

HIDDEN_BELOW = 8  # counts of fewer nodes are not written down


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What the server has when a federated run is over."""

    record: RunRecord
    model: NodeClassifier


def federated(method: Method, how: str) -> bool:
    """Whether a method can be run between separate owners."""
    return method.topology == "federated" and method.way(how).truth is None


def federated_parts(config: Config) -> tuple[Method, Way, Rule]:
    """Method, way of mending and rule; refuses what cannot be run between owners."""
    method, way, rule = chosen_by_name(config)
    check_counted(config)
    if not federated(method, config.mends_by):
        could = [name for name in all_methods() if federated(find_method(name), "none")]
        raise ConfigError(
            f"{config.run.method} cannot be run between separate owners. Choose one of "
            f"{', '.join(could)}."
        )
    return method, way, rule


def serve(
    config: Config,
    engine: Engine,
    names: Sequence[str],
    run: str,
    version: str,
    folder: Path,
    observe: Observer,
    settings: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Served:
    """Algorithm 1 between parties; rounds are kept in ``folder``, and continued from there.

    Args:
        config: All settings of the run.
        engine: The transport to the owners.
        names: The owners' names, in the order of their numbers.
        run: The name of this run; the same name continues it.
        version: The server's version of fedsage.
        folder: For the server's checkpoints.
        observe: Called after each round.
        settings: As the coordinator gave them, if they name the user's own files.
        files: Checksums of these files, by setting.
    """
    method, way, rule = federated_parts(config)
    watch, exchange = Stopwatch(observe), Exchange(engine)
    with watch.phase("load"):
        given = settings or config.model_dump_json()
        members = join(
            exchange, run, version, given, files or {}, names, config.federation.wait,
            lambda words: observe(Event("waits", "load", words=words)), folder,
        )  # fmt: skip
        joined = members.joined
        first = next(iter(joined.values()))
        sizes = [one.nodes for one in joined.values()]
        weights = {i: one.weight for i, one in joined.items() if one.weight}
        plan = plan_of(
            config, method, way, first.features, first.classes, sizes, weights,
            counted=members.nodes,
        )  # fmt: skip
        exchange.agreed = plan
        exchange.agreed = plan = begin_together(exchange, plan, folder)
        form = give_form(exchange, folder)
        scale = kept_scale(exchange, folder)
        give_scale(exchange, scale)
    way.check(plan)
    with watch.phase("training"), dense_threads(config.run.threads):
        journal = exchange.journal = journal_with_owners(exchange, folder)
        if journal.start.phase == "mending":
            engine.owed.clear()  # mending is repeated
        engine.owners = list(joined)  # who is away now may come back
        names_of = tuple(json.loads(first.names))
        Rounds(exchange, observe, engine.traffic, names_of, form=form)
        outcome = run_method(exchange, config, way, rule, watch, method.train)
    with watch.phase("evaluation"):
        measured = [] if in_private(config) else [measure(exchange, outcome.view)]
        sure = measured[0].calibration if measured else AS_IS
        before = exchange.sum(test_start, Ask(0)) if plan.start else None
        phi = sha256_of(outcome.classifier.phi)
        end = Finish(outcome.view, phi, sure.temperature, sure.slope)
        exchange.all(Site.finish, end, 0)
    named = {engine.name_of(i): (one, outcome.hits.get(i)) for i, one in joined.items()}
    missed = sum(len(line["without"]) for line in journal.lines) + len(exchange.misses)
    facts = federated_facts(plan, method.name, named, outcome, missed, journal.resumed)
    shares = {"global": None, "local": share_of_hits(before, outcome.view)} if before else None
    facts = replace(facts, measured=measured, least=HIDDEN_BELOW, before=shares)
    facts = replace(facts, feature_form=form.name)
    record = record_of(config, watch, [outcome], engine.traffic, facts)
    model = NodeClassifier(
        plan.shape, outcome.classifier.phi, record.class_names,
        scale=Scale(scale.mean.numpy(), scale.std.numpy()) if len(scale.mean) else None,
        calibration=sure, form=form, agreed=first.schema,
    )  # fmt: skip
    save_models([model], folder)  # for runs that begin with it
    return Served(record, model)


def journal_with_owners(exchange: Exchange, folder: Path) -> DiskJournal:
    """The server's rounds; after a restart, owners return to their state at that point."""
    everyone = len(exchange.owners)
    steps: dict[OwnerId, Step] = {}

    def can(state: ServerState) -> bool:
        steps.update({i: Step(*step_of(state, i)) for i in exchange.owners})
        replies = exchange.all(Site.able, steps, everyone)
        return all(reply.yes for reply in replies.values())

    journal = DiskJournal(folder, exchange, can, durable=True)
    if journal.resumed:
        exchange.all(Site.restore, steps, everyone)
    return journal


def give_form(exchange: Exchange, folder: Path) -> FeatureForm:
    """Every owner gives its features the same form; agreed once when the run began."""
    config = exchange.plan.config
    if not formed(config):
        return RAW
    shelf = Shelf(folder, "features", durable=True)
    sums = shelf.get(0, FeatureSums)
    if sums is None:
        sums = agree_on_features(exchange)
        shelf.put(0, sums)
    taken = exchange.all(Site.receive_form, sums, len(exchange.owners))
    first = min(max(0, one.first) for one in taken.values())  # all have the same schema
    return form_of_sums(config, sums, first)


def kept_scale(exchange: Exchange, folder: Path) -> ColumnScale:
    """The scale of the columns, agreed once when the run began."""
    shelf = Shelf(folder, "scale", durable=True)
    found = shelf.get(0, ColumnScale)
    if found is None:
        found = agree_on_scale(exchange)
        shelf.put(0, found)
    return found


def federated_facts(
    plan: Plan,
    method: str,
    owners: Mapping[str, tuple[Joined, Hits | None]],
    outcome: Outcome,
    missed: int,
    resumed: int,
) -> Facts:
    """What the server of a federation knows about a run; nobody holds the whole graph."""
    joined = [one for one, _ in owners.values()]
    return Facts(
        method=method,
        owners=len(owners),
        partition="folders",
        local=share_of_all(outcome),
        graph=({} if in_private(plan.config) else {"nodes": plan.num_nodes})
        | {"features": joined[0].features, "classes": joined[0].classes},
        class_names=tuple(json.loads(joined[0].names)),
        per_owner=[owner_line(name, *known, outcome) for name, known in owners.items()],
        missed=missed,
        resumed=resumed,
    )


def share_of_all(outcome: Outcome) -> float | None:
    """Accuracy over all owners' test nodes; None in a private run, which does not ask."""
    if outcome.tested is NO_HITS:
        return None
    return share_of_hits(outcome.tested, outcome.view)


def owner_line(name: str, one: Joined, hits: Hits | None, outcome: Outcome) -> OwnerLine:
    """What little is known of one owner, as a line of the result."""
    return OwnerLine(
        nodes=one.nodes if hits else None,
        links=None,
        train=None,
        val=None,
        test=hits.total if hits else None,
        skew=None,
        labels=[],
        local=share_of_hits(hits, outcome.view) if hits and hits.total else None,
        name=name,
    )
