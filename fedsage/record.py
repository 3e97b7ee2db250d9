"""The record of a run: its numbers put together for ``result.json``."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from fedsage.config import Config
from fedsage.evaluation.diagnostics import Mending
from fedsage.evaluation.judge import Judgement
from fedsage.evaluation.results import OwnerLine, RunRecord, peak_rss_mb
from fedsage.graph.partition import label_counts, label_skew_of
from fedsage.methods import Outcome
from fedsage.models.parameters import sha256_of
from fedsage.prepare import Setting
from fedsage.protocol.engine import Traffic
from fedsage.protocol.messages import Hits, Joined
from fedsage.protocol.procedures import Phase
from fedsage.protocol.server import share_of_hits

PHASES = ("load", "partition", "neighgen", "classifier", "evaluate")


def ignore_phase(name: str, begins: bool) -> None:
    """For callers that do not wait."""


@dataclass(slots=True)
class Stopwatch:
    """Seconds by phase since it was made; what is paused counts in none.

    A phase inside another one counts in the inner one alone.
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    started: float = field(default_factory=time.perf_counter)
    started_cpu: float = field(default_factory=time.process_time)
    tell: Callable[[str, bool], None] = ignore_phase  # a phase begins, or ends

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to ``name``."""
        start, cpu = time.perf_counter(), time.process_time()
        inside, inside_cpu = sum(self.seconds.values()), sum(self.cpu.values())
        self.tell(name, True)
        try:
            yield
        finally:
            self.tell(name, False)
        inside = sum(self.seconds.values()) - inside
        inside_cpu = sum(self.cpu.values()) - inside_cpu
        self.seconds[name] += time.perf_counter() - start - inside
        self.cpu[name] += time.process_time() - cpu - inside_cpu

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Leave the time spent inside out of the totals."""
        start, cpu = time.perf_counter(), time.process_time()
        yield
        self.started += time.perf_counter() - start
        self.started_cpu += time.process_time() - cpu


def record_of(
    config: Config,
    setting: Setting,
    watch: Stopwatch,
    outcomes: Sequence[Outcome],
    traffic: Mapping[Phase, Traffic],
    mending: Mending | None,
    local: Sequence[float | None],
    judgement: Judgement | None,
    validation_global: float | None,
    out: Path | None,
) -> RunRecord:
    """All that ``run --json`` prints."""
    total = time.perf_counter() - watch.started
    return RunRecord(
        method=config.run.method,
        dataset=config.data.dataset,
        owners=setting.owners.num_owners,
        partition=setting.owners.how,
        seed=config.run.seed,
        preset=config.run.preset,
        engine=config.run.engine,
        backbone=config.model.backbone,
        accuracy={
            "global": judgement.accuracy if judgement else None,
            "local": average_local(config.run.method, setting, local),
        },
        macro_f1=judgement.macro_f1 if judgement else None,
        seconds={"total": total} | watch.seconds,
        cpu_seconds=time.process_time() - watch.started_cpu,
        cpu_seconds_by_phase=watch.cpu,
        peak_rss_mb=peak_rss_mb(),
        bytes={
            "neighgen": asdict(traffic["neighgen"]),
            "classifier": asdict(traffic["classifier"]),
            "evaluate": asdict(traffic["evaluate"]),
        },
        graph=sizes(setting),
        missing_links=setting.owners.missing_links,
        model_sha256=sha256_of(all_parameters(outcomes)),
        out=str(out) if out else None,
        round=round(float(np.mean([outcome.round for outcome in outcomes]))),
        validation=float(np.mean([outcome.validation for outcome in outcomes])),
        validation_global=validation_global,
        risk=judgement.risk if judgement else None,
        class_names=setting.owners.subgraphs[0].class_names,
        recall=judgement.recall.tolist() if judgement else None,
        confusion=judgement.confusion.tolist() if judgement else None,
        labels=labels_of(judgement) if judgement else None,
        per_owner=owner_lines(setting, local),
        mending=mending,
        view=common_view(outcomes) if mending else "plain",
    )


def federated_record(
    config: Config,
    watch: Stopwatch,
    owners: Mapping[str, tuple[Joined, Hits | None]],
    outcome: Outcome,
    traffic: Mapping[Phase, Traffic],
    resumed: int,
) -> RunRecord:
    """What the server of a federation knows of a run, where nobody holds the whole graph."""
    joined = [one for one, _ in owners.values()]
    total = time.perf_counter() - watch.started
    return RunRecord(
        method=config.run.method,
        dataset=config.data.dataset,
        owners=len(owners),
        partition="folders",
        seed=config.run.seed,
        preset=config.run.preset,
        engine=config.run.engine,
        backbone=config.model.backbone,
        accuracy={"global": None, "local": share_of_hits(outcome.hits, outcome.view)},
        macro_f1=None,
        seconds={"total": total} | watch.seconds,
        cpu_seconds=time.process_time() - watch.started_cpu,
        cpu_seconds_by_phase=watch.cpu,
        peak_rss_mb=peak_rss_mb(),
        bytes={phase: asdict(counted) for phase, counted in traffic.items()},
        graph={
            "nodes": sum(one.nodes for one in joined),
            "features": joined[0].features,
            "classes": joined[0].classes,
        },
        missing_links=None,
        model_sha256=sha256_of(outcome.classifier.phi),
        out=None,
        round=outcome.round,
        validation=outcome.validation,
        validation_global=None,
        risk=None,
        class_names=tuple(json.loads(joined[0].names)),
        recall=None,
        confusion=None,
        labels=None,
        per_owner=[
            OwnerLine(
                one.nodes,
                None,
                None,
                None,
                hits.total if hits else None,
                None,
                [],
                share_of_hits({0: hits}, outcome.view) if hits and hits.total else None,
                name,
            )
            for name, (one, hits) in owners.items()
        ],
        mending=None,
        view=outcome.view,
        resumed=resumed,
    )


def average_local(method: str, setting: Setting, local: Sequence[float | None]) -> float | None:
    """Over all test nodes; for local models over the models, as in the paper."""
    counts = [len(split.test) for split in setting.splits]
    if not sum(counts):
        return None
    weights = np.array(counts) > 0 if method.startswith("locsage") else np.array(counts)
    return float(np.average([share or 0.0 for share in local], weights=weights))


def common_view(outcomes: Sequence[Outcome]) -> str:
    """What owners query; ``mixed`` where local models do not agree."""
    views = {outcome.view for outcome in outcomes}
    return views.pop() if len(views) == 1 else "mixed"


def all_parameters(outcomes: Sequence[Outcome]) -> dict[str, torch.Tensor]:
    """φ, or the φ of every local model under its number."""
    if len(outcomes) == 1:
        return outcomes[0].classifier.phi
    return {
        f"{i}/{name}": tensor
        for i, outcome in enumerate(outcomes)
        for name, tensor in outcome.classifier.phi.items()
    }


def sizes(setting: Setting) -> dict[str, int]:
    """|V|, |E|, d_x and d_y of the whole graph."""
    owners, graph = setting.owners, setting.graph
    inside = sum(subgraph.num_links for subgraph in owners.subgraphs)
    return {
        "nodes": sum(subgraph.num_nodes for subgraph in owners.subgraphs),
        "links": graph.num_links if graph else inside + (owners.missing_links or 0),
        "features": owners.subgraphs[0].num_features,
        "classes": owners.subgraphs[0].num_classes,
    }


def labels_of(judgement: Judgement) -> dict[str, list[float]]:
    """True and predicted label distributions of the test nodes."""
    return {
        "true": judgement.true_labels.tolist(),
        "predicted": judgement.predicted_labels.tolist(),
    }


def owner_lines(setting: Setting, local: Sequence[float | None]) -> list[OwnerLine]:
    """Every owner at a glance."""
    owners = setting.owners
    parts = zip(
        owners.subgraphs, setting.splits, label_skew_of(owners).tolist(), local, strict=True
    )
    return [
        OwnerLine(
            graph.num_nodes,
            graph.num_links,
            len(split.train),
            len(split.val),
            len(split.test),
            skew,
            label_counts(graph).tolist(),
            hits,
        )
        for graph, split, skew, hits in parts
    ]
