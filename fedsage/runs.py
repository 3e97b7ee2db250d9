"""config → graph → owners → method → evaluation → RunResult."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from fedsage.config import Config, Settings, load_config
from fedsage.custom import Method, is_file, load_method
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ConfigError, FedSageError, nearest
from fedsage.evaluation.evaluate import Judgement, judge
from fedsage.evaluation.mending import Mending, judge_mending
from fedsage.evaluation.results import HistoryLine, RunRecord
from fedsage.graph.graph import Graph
from fedsage.graph.load import load
from fedsage.graph.partition import Partition, partition
from fedsage.methods import OnRound, Outcome, RoundRecord, fedsage_plus, globsage, locsage
from fedsage.models.classifier import NodeClassifier, build
from fedsage.models.fused import warm_up
from fedsage.models.train import chosen_kernel
from fedsage.prepare import (
    Setting,
    check_generator,
    data_owners,
    mending_of,
    prepare,
    way_of_mending,
    whole_graph_engine,
)
from fedsage.protocol.engine import Engine, Traffic
from fedsage.protocol.messages import Hits, View
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Phase
from fedsage.protocol.server import share_of_hits
from fedsage.record import Stopwatch, record_of
from fedsage.rng import generator

METHODS = (
    "globsage",
    "locsage",
    "locsage+",
    "fedsage",
    "fedsage+",
    "fedsage+neighgen",
    "fedsage+copy",
    "fedsage+classes",
    "fedsage+shared",
    "fedsage+subspace",
    "oracle",
)


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """What came out of a run: the numbers, the rounds, the models."""

    record: RunRecord
    history: list[HistoryLine]
    models: list[NodeClassifier]

    @property
    def accuracy(self) -> dict[str, float | None]:
        """``global`` and ``local``, as on the command line."""
        return self.record.accuracy

    @property
    def model(self) -> NodeClassifier:
        """The shared classifier."""
        if len(self.models) > 1:
            raise FedSageError(
                f"{self.record.method} trained {len(self.models)} local models and no shared "
                "one. Take one of result.models."
            )
        return self.models[0]


def ignore_line(line: HistoryLine) -> None:
    """For callers that want no progress."""


def ignore_start(kernel: str) -> None:
    """For callers that have nothing to do before training."""


def run(
    owners: Partition,
    method: str | Method = "fedsage+",
    preset: str = "best",
    seed: int = 0,
    evaluate_on: Graph | None = None,
    dataset: str = "own",
    settings: Settings | None = None,
    on_round: Callable[[HistoryLine], None] | None = None,
) -> RunResult:
    """Train ``method`` on the owners' subgraphs and judge it.

    Args:
        owners: From :func:`fedsage.partition`.
        method: ``fedsage+``, ``fedsage``, ``locsage+``, ``locsage``, ``globsage``, ``oracle``,
            or ``fedsage+WAY`` to fix how it mends: ``neighgen``, ``copy``, ``classes``,
            ``shared``,
            ``subspace``. Or a :class:`fedsage.Method` of one's own, or the path of the file
            that holds it.
        preset: ``best`` or ``paper``.
        seed: All draws of training come from it; also the split of each owner's nodes.
        evaluate_on: The whole graph, for ``accuracy["global"]`` and for GlobSage.
        dataset: What to call the graph in the record.
        settings: Over the preset, nested as in a TOML file: ``{"classifier": {"eta": 0.01}}``.
        on_round: Called after each round.
    """
    own = method if isinstance(method, Method) else None
    chosen = {"run": {"method": own.name if own else method, "seed": seed}}
    data = {"dataset": dataset, "owners": owners.num_owners, "partition": owners.how}
    config = load_config(settings or {}, {"data": data}, chosen, preset=preset)
    return execute(config, owners, evaluate_on, Stopwatch(), on_round or ignore_line, own=own)


def run_config(
    config: Config,
    on_line: Callable[[HistoryLine], None],
    out: Path | None = None,
    on_start: Callable[[str], None] = ignore_start,
) -> RunResult:
    """Load and cut the graph that ``config`` names, then train and judge."""
    watch = Stopwatch()
    check_method(config.run.method)
    with watch.phase("load"):
        graph = load(config.data.dataset, **config.synthetic.model_dump())
    with watch.phase("partition"):
        data = config.data
        owners = partition(graph, data.owners, data.partition, config.run.seed)
    return execute(config, owners, graph, watch, on_line, out, on_start)


def check_method(method: str) -> None:
    """Refuse a method that does not exist; one in a file is loaded to find out."""
    if is_file(method):
        load_method(method)
    elif method not in METHODS:
        raise ConfigError(f"Unknown method '{method}'.{nearest(method, METHODS)}")


def execute(
    config: Config,
    owners: Partition,
    graph: Graph | None,
    watch: Stopwatch,
    on_line: Callable[[HistoryLine], None],
    out: Path | None = None,
    on_start: Callable[[str], None] = ignore_start,
    own: Method | None = None,
) -> RunResult:
    """Train by the method that ``config`` names, or by a user's ``own``; query test nodes.

    ``on_start`` is called with the chosen kernel when everything was found right and training
    can begin.
    """
    if own is None:
        check_method(config.run.method)
    if own is None and is_file(config.run.method):
        own = load_method(config.run.method)
    setting = prepare(config, owners, graph)
    check_generator(setting, way_of_mending(config.run.method, config.mend.how))
    kernel = chosen_kernel(setting.shape, setting.training)
    with watch.pause():
        on_start(kernel)
        if kernel == "fused":
            warm_up()
    start = time.perf_counter()
    history: list[HistoryLine] = []

    def report(record: RoundRecord, traffic: Traffic, picked: float | None) -> None:
        line = HistoryLine(
            record.phase,
            record.t,
            record.loss,
            record.validation,
            asdict(traffic),
            time.perf_counter() - start,
            record.owner,
            record.terms,
            picked,
        )
        history.append(line)
        on_line(line)

    with one_kind_of_threads(config.run.threads):
        with watch.phase("classifier"):
            trained = train(setting, config, watch, report, own)
        with watch.phase("evaluate"):
            outcomes = trained.outcomes
            local = local_hits(setting, config, outcomes)
            judgement = judge_globally(setting, config, outcomes, "test")
            tuned = judge_globally(setting, config, outcomes, "val")
            mending = mending_found(setting, trained.owners)
    record = record_of(
        config, setting, watch, outcomes, trained.traffic, mending, local, judgement,
        tuned.accuracy if tuned else None, out,
    )  # fmt: skip
    record = replace(record, method=own.name) if own else record
    names = owners.subgraphs[0].class_names
    models = [NodeClassifier(setting.shape, one.classifier.phi, names) for one in outcomes]
    return RunResult(record, history, models)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What came out of training, before it is judged."""

    outcomes: list[Outcome]
    traffic: dict[Phase, Traffic]  # that crossed a boundary
    owners: list[DataOwner]


def train(
    setting: Setting,
    config: Config,
    watch: Stopwatch,
    report: Callable[[RoundRecord, Traffic, float | None], None],
    own: Method | None = None,
) -> Trained:
    """Run the method; time spent on mending counts as NeighGen's."""
    method, classifier = config.run.method, config.classifier
    silent: dict[Phase, Traffic] = {
        "neighgen": Traffic(),
        "classifier": Traffic(),
        "evaluate": Traffic(),
    }
    common: dict[str, Any] = {
        "rounds_c": classifier.rounds_c,
        "selection": classifier.selection,
    }
    if method == "globsage":
        engine = whole_graph_engine(setting)

        def quietly(record: RoundRecord) -> None:
            report(record, silent["classifier"], None)

        outcome = globsage(engine, setting.phi, on_round=quietly, **common)
        return Trained([outcome], silent, [])
    way = way_of_mending(method, config.mend.how)
    alone = method.startswith("locsage")
    owners = data_owners(setting, way, alone, own.owner if own else DataOwner)
    procedure = mending_of(way, setting, config.neighgen.rounds_gen)

    def mend(engine: Engine, on_round: OnRound) -> None:
        with watch.phase("neighgen"):
            procedure(engine, on_round)

    common |= {"mend": mend, "queries": config.mend.queries}
    if alone:

        def alone_at_home(record: RoundRecord) -> None:
            report(record, silent[record.phase], None)

        engines = [InProcessEngine([owner]) for owner in owners]
        outcomes = locsage(engines, setting.phi, on_round=alone_at_home, **common)
        return Trained(outcomes, silent, owners)
    engine = InProcessEngine(owners, config.run.workers)

    def together(record: RoundRecord) -> None:
        picked = share_picked(owners) if record.phase == "neighgen" else None
        report(record, engine.traffic[record.phase], picked)

    if own:
        del common["mend"]
        outcome = own.train(engine, setting.phi, on_round=together, **common)
    else:
        outcome = fedsage_plus(engine, setting.phi, on_round=together, **common)
    return Trained([outcome], engine.traffic, owners)


def share_picked(owners: Sequence[DataOwner]) -> float | None:
    """The share of all owners' nodes that were ever the nearest to a generated neighbor.

    None where nobody searched.
    """
    picked = [owner.gen.picked for owner in owners if owner.gen is not None]
    share = float(np.concatenate(picked).mean()) if picked else 0.0
    return share or None


def mending_found(setting: Setting, owners: Sequence[DataOwner]) -> Mending | None:
    """Diagnostics of the mended graphs, where there are any."""
    mended = [owner.mended for owner in owners if owner.mended is not None]
    if not mended:
        return None
    parts = setting.owners
    picked = share_picked(owners)
    return judge_mending(parts.subgraphs, mended, picked, setting.graph, parts.nodes)


def local_hits(
    setting: Setting, config: Config, outcomes: Sequence[Outcome]
) -> list[float | None]:
    """Each owner's accuracy on its own test nodes, if any, queried on what it holds."""
    if config.run.method == "globsage":
        engine = InProcessEngine(data_owners(setting, alone=True))
        engine.broadcast_classifier(outcomes[0].classifier)
        found: list[tuple[Hits, View]] = [
            (reply, "plain") for reply in engine.test_classifier().values()
        ]
    else:
        found = [(hits, one.view) for one in outcomes for hits in one.hits.values()]
    return [share_of_hits({0: hits}, view) if hits.total else None for hits, view in found]


def judge_globally(
    setting: Setting, config: Config, outcomes: Sequence[Outcome], part: str
) -> Judgement | None:
    """Queries for test (or validation) nodes on G, where somebody holds it."""
    chosen = [getattr(split, part) for split in setting.splits]
    if setting.graph is None or not any(len(nodes) for nodes in chosen):
        return None
    nodes = [ids[own] for ids, own in zip(setting.owners.nodes, chosen, strict=True)]
    device = config.run.device
    models = [build(setting.shape, one.classifier.phi, device) for one in outcomes]
    stream = generator(setting.seed, "evaluate")
    return judge(models, setting.graph, nodes, setting.training, stream)


@contextlib.contextmanager
def one_kind_of_threads(threads: int) -> Iterator[None]:
    """Let dense products use ``threads`` threads inside, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
