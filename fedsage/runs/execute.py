"""The library call: config → graph → owners → method → evaluation → :class:`RunResult`."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedsage.config import Config
from fedsage.data.concerns import concerns_of
from fedsage.data.load import load, owner_folders, tables_folder
from fedsage.data.owned import read_all, together
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ConfigError
from fedsage.evaluation.evaluate import Mending, mending_quality
from fedsage.graph.feature_forms import pooled_form, setting_for
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, partition
from fedsage.kernels.door import warm_up
from fedsage.machine import dense_threads
from fedsage.methods import Method
from fedsage.models.backbone import new_model
from fedsage.models.classifier import NodeClassifier
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Hits, View
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.private_server import forecast
from fedsage.protocol.procedures import in_full, in_private, in_sums
from fedsage.protocol.server import Rule, share_of_hits
from fedsage.rng import generator
from fedsage.runs.accuracy import evaluate_globally, measured_models, own_models
from fedsage.runs.checks import why_not_compiled
from fedsage.runs.events import Event, Observer, Stopwatch, ignore_event
from fedsage.runs.record import Facts, average_local, owner_lines, record_of, sizes
from fedsage.runs.result import History, RunResult
from fedsage.runs.setup import Setup, chosen_by_name, prepare
from fedsage.runs.stored_graph import Answering, answering_of
from fedsage.runs.train import Trained, share_picked, train
from fedsage.tables.schema import Schema
from fedsage.tables.tables import graph_of, pooled_scale, read_tables


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a caller hands over in place of what settings name."""

    method: Method | None = None
    rule: Rule | None = None
    secrets: Sequence[str] = ()  # of owners, by which they draw; none are as empty ones


AS_NAMED = Given()
BEFORE: list[bool] = []  # runs of this process


def run_config(
    config: Config,
    observe: Observer = ignore_event,
    out: Path | None = None,
    checkpoint: Path | None = None,
    record: Path | None = None,
) -> RunResult:
    """Load and cut the graph that ``config`` names, then train and evaluate."""
    chosen_by_name(config)  # before anything is loaded
    watch = Stopwatch(observe)
    data = config.data
    if owner_folders(data.dataset):
        config = with_folders(config)
        with watch.phase("load"):
            owned = read_all(data.dataset)
            owners = together(owned)
        for words in concerns_of(owned):
            observe(Event("warns", "load", words=words))
        return execute(config, owners, None, watch, observe, out, checkpoint, record=record)
    tables = None
    with watch.phase("load"):
        if own_tables := tables_folder(data.dataset):
            tables = read_tables(own_tables)
            graph = graph_of(tables, pooled_scale([tables]))
        else:
            graph = load(data.dataset, **config.synthetic.model_dump())
    with watch.phase("partition"):
        owners = partition(graph, data.owners, data.partition, config.run.seed)
        if tables:
            held = np.array(tables.ids, dtype=object)
            ids = tuple(tuple(held[ids]) for ids in owners.nodes)
            owners = replace(owners, ids=ids, tables=(tables.schema, pooled_scale([tables])))
    return execute(config, owners, graph, watch, observe, out, checkpoint, record=record)


def with_folders(config: Config) -> Config:
    """The same, with as many owners as there are where they come with their own folders."""
    folders = owner_folders(config.data.dataset)
    if not folders:
        return config
    held = config.data.model_copy(update={"owners": len(folders), "partition": "folders"})
    return config.model_copy(update={"data": held})


def execute(
    config: Config,
    owners: Partition,
    graph: Graph | None,
    watch: Stopwatch,
    observe: Observer = ignore_event,
    out: Path | None = None,
    checkpoint: Path | None = None,
    given: Given = AS_NAMED,
    record: Path | None = None,
) -> RunResult:
    """Train with the method in ``config``, or with what is given, and query test nodes.

    An event says when everything was found right and training can begin. Rounds are kept in
    the folder ``checkpoint``; a run that was stopped goes on from there. Messages are kept
    in the folder ``record``.
    """
    if config.run.engine != "inprocess":
        raise ConfigError(
            f"run.engine is '{config.run.engine}', but this call trains in one process. Use "
            f"'fedsage run --engine {config.run.engine}', or leave the setting out."
        )
    with watch.phase("load"):
        said = owners.tables[0] if owners.tables else Schema((), ())
        wanted = "any" if in_private(config) else said.sparse_form  # there, features stay raw
        setting = setting_for(config.data.features, wanted, leaves_open="auto")
        form = pooled_form(setting, owners.subgraphs, said.words_from)
        owners, graph = form.of_owners(owners), form.of_graph(graph) if graph else None
    setup = prepare(config, owners, graph, given.method, given.rule, given.secrets, form)
    check_recorded(setup, record)
    for note in setup.notes:
        observe(Event("warns", "load", words=note))
    plan, run = setup.plan, config.run
    model = new_model(plan.shape, generator(0, "asked alone"), run.device, run.kernel)
    reason = why_not_compiled(config, owners)
    kernel = "torch" if reason else model.chosen_kernel
    slower = bool(reason) and model.chosen_kernel == "fused"
    words = f"Training uses torch, not the faster compiled steps, because of {reason}." * slower
    with watch.pause():
        carries = setup.way.carries(plan) if setup.method.topology == "federated" else 0
        steps = steps_of_owners(setup)
        ready = Event("ready", "training", kernel=kernel, carries=carries, steps=steps)
        observe(replace(ready, words=words))
        if in_private(config) and (few := forecast(plan, num_training(setup))):
            observe(Event("warns", "training", words=few))
        if kernel == "fused":
            warm_up()
    history = History()

    def on_event(event: Event) -> None:
        if event.line is not None:
            history.append(event.line)
        observe(event)

    with dense_threads(config.run.threads), collector_spared():
        with watch.phase("training"):
            trained = train(setup, watch, on_event, checkpoint, record)
        with watch.phase("evaluation"):
            facts = facts_of(setup, trained, out)
    found = record_of(config, watch, trained.outcomes, trained.traffic, facts)
    names, (schema, scale) = owners.subgraphs[0].class_names, owners.tables or (None, None)
    every = [(phi, trained.measured[0]) for phi in own_models(setup, trained)] or [
        (one.classifier.phi, how)
        for one, how in zip(trained.outcomes, trained.measured, strict=True)
    ]
    models = [
        NodeClassifier(plan.shape, phi, names, schema, scale, how.calibration, form)
        for phi, how in every
    ]
    settings, held = config.model_dump(mode="json"), answering_of_all(setup, trained)
    return RunResult(found, history, models, settings, held)


def answering_of_all(setup: Setup, trained: Trained) -> list[Answering]:
    """How every owner answers when the run is over; with GlobSage, one that holds G."""
    parts = setup.owners
    if setup.method.topology == "whole":
        ids = np.empty(sum(len(nodes) for nodes in parts.nodes), dtype=object)
        for i, nodes in enumerate(parts.nodes):
            ids[nodes] = parts.ids_of(i)
        view = trained.outcomes[0].view
        return [answering_of(trained.owners[0], "all", tuple(ids), view, setup.way.name)]
    alone = setup.method.topology == "alone"
    views = [trained.outcomes[i if alone else 0].view for i in range(parts.num_owners)]
    return [
        answering_of(owner, parts.name_of(i), parts.ids_of(i), views[i], setup.way.name)
        for i, owner in enumerate(trained.owners)
    ]


def check_recorded(setup: Setup, record: Path | None) -> None:
    """Refuse to keep messages where there are none."""
    if record is not None and setup.method.topology != "federated":
        raise ConfigError(
            f"--record keeps what owners send, but with {setup.method.name} owners send "
            "nothing. Use fedsage or fedsage+, or leave out --record."
        )


def facts_of(setup: Setup, trained: Trained, out: Path | None) -> Facts:
    """Query test nodes, at owners and on the whole graph, and look at what was attached."""
    local = local_hits(setup, trained)
    evaluated = evaluate_globally(setup, trained.outcomes, own_models(setup, trained))
    mending = mending_found(setup, trained.owners)
    both = setup.config.evaluation.models == "both"
    return Facts(
        method=setup.method.name,
        owners=setup.owners.num_owners,
        partition=setup.owners.how,
        local=average_local(setup, local),
        graph=sizes(setup),
        class_names=setup.owners.subgraphs[0].class_names,
        per_owner=owner_lines(setup, local),
        missing_links=setup.owners.missing_links,
        evaluation=evaluated.get("test"),
        validation_global=evaluated["val"].accuracy if "val" in evaluated else None,
        mending=mending,
        mended=mending is not None,
        resumed=trained.resumed,
        out=out,
        measured=trained.measured,
        before=before_of(setup, trained),
        feature_form=setup.form.name,
        models=measured_models(setup, trained, local, evaluated) if both else None,
    )


def before_of(setup: Setup, trained: Trained) -> dict[str, float | None] | None:
    """How the classifier that it began with does on the same test nodes, if it is earlier."""
    if setup.plan.start is None:
        return None
    first = replace(trained.outcomes[0], classifier=setup.plan.phi)
    evaluated = evaluate_globally(setup, [first]).get("test")
    shares = [share_of_hits(*one) for one in trained.before if one[0].total]
    local = float(np.mean(shares)) if shares else None
    return {"global": evaluated.accuracy if evaluated else None, "local": local}


def mending_found(setup: Setup, owners: Sequence[DataOwner]) -> Mending | None:
    """Diagnostics of the mended graphs, where there are any."""
    mended = [owner.mended for owner in owners if owner.mended is not None]
    if not mended:
        return None
    parts, picked = setup.owners, share_picked(owners)
    return mending_quality(parts.subgraphs, mended, picked, setup.graph, parts.nodes)


def steps_of_owners(setup: Setup) -> float | None:
    """How many steps an owner takes in a round, on average, where they are sent as changes."""
    if in_full(config := setup.plan.config):
        return None
    how, nodes = config.classifier, [len(split.train) for split in setup.splits]
    mean = float(np.mean(nodes))
    batches = mean / how.batch_for(math.ceil(mean))
    return batches * how.epochs(batches)


def num_training(setup: Setup) -> int:
    """How many training nodes all owners have."""
    return sum(len(split.train) for split in setup.splits)


def local_hits(setup: Setup, trained: Trained) -> list[float | None]:
    """Each owner's accuracy on its own test nodes, if any, queried on what it holds."""
    if setup.method.topology == "whole":
        everyone = zip(setup.owners.subgraphs, setup.splits, strict=True)
        plan = setup.plan
        owners = [DataOwner(i, *part, plan) for i, part in enumerate(everyone)]
        exchange = Exchange(InProcessEngine(owners), plan)
        exchange.sum(DataOwner.receive_classifier, trained.outcomes[0].classifier)
        _, replies = exchange.sum_and_each(DataOwner.test_classifier, Ask(0))
        found: list[tuple[Hits, View]] = [(reply, "plain") for reply in replies.values()]
    elif in_sums(setup.plan.config):  # the server does not know, but we can look
        view = trained.outcomes[0].view
        found = [(owner.hits(owner.split.test), view) for owner in trained.owners]
    else:
        found = [(hits, one.view) for one in trained.outcomes for hits in one.hits.values()]
    return [share_of_hits(hits, view) if hits.total else None for hits, view in found]


@contextlib.contextmanager
def collector_spared() -> Iterator[None]:
    """Let Python's garbage collector pass over what is there now, until afterwards.

    Imported modules are hundreds of thousands of objects; to look through them again and
    again would take a tenth of a short run. Owners of earlier runs, which lie in cycles, are
    freed first.
    """
    if BEFORE:
        gc.collect()
    BEFORE.append(True)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
