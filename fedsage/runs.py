"""config → graph → owners → method → evaluation → RunResult."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from torch.nn import Module

from fedsage.conduct import conduct, share_picked
from fedsage.config import Config, Settings, load_config
from fedsage.custom import Method, is_file, load_method
from fedsage.data.load import load, owner_folders
from fedsage.data.owned import owners_in
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ConfigError, FedSageError, nearest
from fedsage.evaluation.diagnostics import Mending, judge_mending
from fedsage.evaluation.judge import Judgement, judge
from fedsage.evaluation.results import HistoryLine, RunRecord
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, partition
from fedsage.kernels.door import warm_up
from fedsage.methods import Outcome
from fedsage.models.backbone import BACKBONES, named, new_model
from fedsage.models.classifier import NodeClassifier, build
from fedsage.prepare import (
    Setting,
    check_generator,
    data_owners,
    exchange_bytes,
    prepare,
    way_of_mending,
)
from fedsage.protocol.messages import Hits, View
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.server import share_of_hits
from fedsage.record import Stopwatch, ignore_phase, record_of
from fedsage.rng import generator
from fedsage.threads import dense_threads

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


OnStart: TypeAlias = Callable[[str, int], None]


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


def ignore_start(kernel: str, exchanged: int) -> None:
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
    model: str | type[Module] | None = None,
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
        model: The classifier: ``graphsage``, ``gcn``, ``gat``, ``propagate``; a
            ``torch.nn.Module`` of one's own with ``__init__(self, num_features, num_classes)``
            and ``forward(x, edge_index)``; or the file that registers it.
    """
    own = method if isinstance(method, Method) else None
    chosen = {"run": {"method": own.name if own else method, "seed": seed}}
    data = {"dataset": dataset, "owners": owners.num_owners, "partition": owners.how}
    backbone = {} if model is None else {"model": {"backbone": named(model)}}
    config = load_config(settings or {}, {"data": data}, chosen, backbone, preset=preset)
    return execute(config, owners, evaluate_on, Stopwatch(), on_round or ignore_line, own=own)


def run_config(
    config: Config,
    on_line: Callable[[HistoryLine], None],
    out: Path | None = None,
    on_start: OnStart = ignore_start,
    checkpoint: Path | None = None,
    tell: Callable[[str, bool], None] = ignore_phase,
) -> RunResult:
    """Load and cut the graph that ``config`` names, then train and judge.

    ``tell`` is called when a phase begins and when it ends.
    """
    watch = Stopwatch(tell=tell)
    check_method(config.run.method)
    BACKBONES.find(config.model.backbone)
    data = config.data
    if owner_folders(data.dataset):
        config = settled(config)
        with watch.phase("load"):
            owners, schema, scale = owners_in(data.dataset)
        result = execute(
            config, owners, None, watch, on_line, out, on_start, checkpoint=checkpoint
        )
        models = [replace(model, schema=schema, scale=scale) for model in result.models]
        return replace(result, models=models if schema else result.models)
    with watch.phase("load"):
        graph = load(data.dataset, **config.synthetic.model_dump())
    with watch.phase("partition"):
        owners = partition(graph, data.owners, data.partition, config.run.seed)
    return execute(config, owners, graph, watch, on_line, out, on_start, checkpoint=checkpoint)


def settled(config: Config) -> Config:
    """The same, with as many owners as there are where they come with their own folders."""
    folders = owner_folders(config.data.dataset)
    if not folders:
        return config
    held = config.data.model_copy(update={"owners": len(folders), "partition": "folders"})
    return config.model_copy(update={"data": held})


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
    on_start: OnStart = ignore_start,
    own: Method | None = None,
    checkpoint: Path | None = None,
) -> RunResult:
    """Train by the method that ``config`` names, or by a user's ``own``; query test nodes.

    ``on_start`` is called when everything was found right and training can begin, with the
    chosen kernel and about how many bytes NeighGen's exchange will carry. Rounds are kept in
    the folder ``checkpoint``; a run that was stopped goes on from there.
    """
    if own is None:
        check_method(config.run.method)
    if own is None and is_file(config.run.method):
        own = load_method(config.run.method)
    setting = prepare(config, owners, graph)
    check_generator(setting, way_of_mending(config.run.method, config.mend.how))
    how, stream = (config.run.device, config.run.kernel), generator(0, "asked alone")
    kernel = new_model(setting.shape, stream, *how).chosen_kernel
    with watch.pause():
        way = way_of_mending(config.run.method, config.mend.how)
        alone = config.run.method.startswith("locsage") or way != "neighgen"
        on_start(kernel, 0 if alone else exchange_bytes(setting, config.neighgen.rounds_gen))
        if kernel == "fused":
            warm_up()
    history: list[HistoryLine] = []

    def on_round(line: HistoryLine) -> None:
        history.append(line)
        on_line(line)

    with dense_threads(config.run.threads), collector_spared():
        with watch.phase("classifier"):
            trained = conduct(setting, config, watch, on_round, own, checkpoint)
        with watch.phase("evaluate"):
            outcomes = trained.outcomes
            local = local_hits(setting, config, outcomes)
            judged = judge_globally(setting, config, outcomes)
            mending = mending_found(setting, trained.owners)
    record = record_of(
        config, setting, watch, outcomes, trained.traffic, mending, local, judged.get("test"),
        judged["val"].accuracy if "val" in judged else None, out,
    )  # fmt: skip
    record = replace(record, resumed=trained.resumed)
    record = replace(record, method=own.name) if own else record
    names = owners.subgraphs[0].class_names
    models = [NodeClassifier(setting.shape, one.classifier.phi, names) for one in outcomes]
    return RunResult(record, history, models)


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
    setting: Setting, config: Config, outcomes: Sequence[Outcome]
) -> dict[str, Judgement]:
    """Queries for test and for validation nodes on G, of those that there are."""
    if setting.graph is None:
        return {}
    split = list(zip(setting.owners.nodes, setting.splits, strict=True))
    parts = {name: [ids[getattr(own, name)] for ids, own in split] for name in ("test", "val")}
    parts = {name: owned for name, owned in parts.items() if any(len(ids) for ids in owned)}
    if not parts:
        return {}
    how = config.run.device, config.run.kernel
    models = [build(setting.shape, one.classifier.phi, *how) for one in outcomes]
    streams = [generator(setting.seed, "evaluate") for _ in parts]
    found = judge(
        models, setting.graph, list(parts.values()), config.evaluation.inference,
        config.classifier.fanouts, streams,
    )  # fmt: skip
    return dict(zip(parts, found, strict=True))


@contextlib.contextmanager
def collector_spared() -> Iterator[None]:
    """Let Python's garbage collector pass over what is there now, until afterwards.

    Imported modules are hundreds of thousands of objects; to look through them again and
    again would take a tenth of a short run.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
