"""The record of a run: its numbers put together for ``result.json``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from fedsage.config import Config
from fedsage.evaluation.evaluate import Evaluation, Mending
from fedsage.graph.partition import label_counts, label_skew_of
from fedsage.machine import peak_rss_mb
from fedsage.models.backbone import BACKBONES
from fedsage.models.parameters import sha256_of
from fedsage.protocol.measuring import Measured
from fedsage.protocol.plan import Traffic
from fedsage.protocol.procedures import Phase, in_private, in_sums
from fedsage.rounds import Outcome
from fedsage.runs.accuracy import at_owners, vars_of
from fedsage.runs.events import Stopwatch
from fedsage.runs.setup import Setup

FORMAT = 2
OWN = "own"  # the name of a graph that came without one


@dataclass(frozen=True, slots=True)
class OwnerLine:
    """The main numbers of one owner."""

    nodes: int | None
    links: int | None  # None where owners on other machines do not tell
    train: int | None
    val: int | None
    test: int | None
    skew: float | None  # of its labels: total variation distance from all labels
    labels: list[int]  # nodes of each class
    local: float | None  # accuracy on its own test nodes, if it has any
    name: str | None = None


OPEN: dict[str, str | float | None] = {
    "level": "open",
    "epsilon": None,
    "delta": None,
    "unit": None,
}


UNIT = "one node with all its features, its label and its links"


def privacy_of(config: Config) -> dict[str, str | float | None]:
    """Who sees what, and in a private run what one node costs at most, noise and all."""
    if in_private(config):
        how = config.privacy
        return {
            "level": "private", "epsilon": how.epsilon, "delta": how.delta, "unit": UNIT,
        }  # fmt: skip
    return OPEN | {"level": "sums" if in_sums(config) else "open"}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The object of ``run --json``; ``result.json`` adds what it takes to repeat the run."""

    method: str
    dataset: str
    owners: int
    partition: str
    seed: int
    preset: str
    engine: str
    backbone: str  # what the classifier is
    privacy: dict[str, str | float | None]  # who sees what: the level
    accuracy: dict[str, float | None]
    macro_f1: float | None
    seconds: dict[str, float]
    cpu_seconds: float
    cpu_seconds_by_phase: dict[str, float]
    peak_rss_mb: float
    bytes: dict[str, dict[str, int]]
    bytes_full: dict[str, dict[str, int]]  # the same with full messages
    graph: dict[str, int]
    missing_links: int | None
    model_sha256: str
    out: str | None
    round: int  # whose classifier was kept; for local models the mean
    validation: float | None  # its accuracy on validation nodes, at the owners, if asked for
    validation_global: float | None  # the same, queried on the whole graph: for tuning
    risk: float | None  # aggregated risk of Sec. 3.1 on test nodes
    class_names: tuple[str, ...]
    recall: list[float] | None  # of each class
    confusion: list[list[int]] | None
    labels: dict[str, list[float]] | None  # true and predicted shares of each class
    per_owner: list[OwnerLine]
    mending: Mending | None  # what was attached, where something was
    view: str  # what owners query: the plain graph, the mended one, both; or mixed
    missed: int = 0  # answers that did not come, or were refused
    resumed: int = 0  # how often it was started again; seconds count from the last time
    balanced_accuracy: float | None = None  # the mean recall of the classes
    per_class: dict[str, list[float | None]] | None = None  # recall and precision
    confusion_local: list[list[int | None]] | None = None  # test nodes at their owners
    temperature: float = 1.0  # by which scores are divided; of local models the mean
    slope: float = 0.0  # how the temperature changes with doubt
    calibration_error: float | None = None  # on test nodes at their owners
    calibration_error_by_chance: float | None = None  # what true probabilities would have
    reliability: list[dict[str, float | None]] | None = None  # the same by probability
    feature_form: str = "raw"  # the form that features took
    warnings: list[str] = field(default_factory=list)
    started_from: str | None = None  # the earlier run that it began with
    accuracy_before: dict[str, float | None] | None = None  # of that one, on these test nodes
    models: dict[str, dict[str, float | None]] | None = None  # accuracy of shared and own
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run found besides its classifiers; in a federation, the server knows less."""

    method: str
    owners: int
    partition: str
    local: float | None  # accuracy on owners' own test nodes
    graph: dict[str, int]
    class_names: tuple[str, ...]
    per_owner: list[OwnerLine]
    missing_links: int | None = None
    evaluation: Evaluation | None = None  # queries for test nodes on the whole graph
    validation_global: float | None = None
    mending: Mending | None = None
    mended: bool = True  # whether there is more than one graph to query
    missed: int = 0
    resumed: int = 0
    out: Path | None = None
    measured: Sequence[Measured] = ()
    least: int = 0  # counts of fewer nodes are hidden
    before: dict[str, float | None] | None = None  # accuracy of the classifier it began with
    feature_form: str = "raw"
    models: dict[str, dict[str, float | None]] | None = None


def record_of(
    config: Config,
    watch: Stopwatch,
    outcomes: Sequence[Outcome],
    traffic: Mapping[Phase, Traffic],
    facts: Facts,
) -> RunRecord:
    """All that ``run --json`` prints."""
    evaluated = facts.evaluation
    return RunRecord(
        method=facts.method,
        dataset=config.data.dataset,
        owners=facts.owners,
        partition=facts.partition,
        seed=config.run.seed,
        preset=config.run.preset,
        engine=config.run.engine,
        backbone=BACKBONES.find(config.model.backbone).name,
        privacy=privacy_of(config),
        accuracy={"global": evaluated.accuracy if evaluated else None, "local": facts.local},
        seconds={"total": time.perf_counter() - watch.started} | watch.seconds,
        cpu_seconds=time.process_time() - watch.started_cpu,
        cpu_seconds_by_phase=watch.cpu,
        peak_rss_mb=peak_rss_mb(),
        bytes={str(phase): counted.sent for phase, counted in traffic.items()},
        bytes_full={str(phase): counted.full for phase, counted in traffic.items()},
        graph=facts.graph,
        missing_links=facts.missing_links,
        model_sha256=sha256_of(all_parameters(outcomes)),
        out=str(facts.out) if facts.out else None,
        round=round(float(np.mean([outcome.round for outcome in outcomes]))),
        validation=mean_validation(outcomes),
        validation_global=facts.validation_global,
        risk=evaluated.risk if evaluated else None,
        class_names=facts.class_names,
        recall=evaluated.recall.tolist() if evaluated else None,
        confusion=evaluated.confusion.tolist() if evaluated else None,
        labels=labels_of(evaluated) if evaluated else None,
        per_owner=facts.per_owner,
        mending=facts.mending,
        view=common_view(outcomes) if facts.mended else "plain",
        missed=facts.missed,
        resumed=facts.resumed,
        started_from=config.run.start_from or None,
        accuracy_before=facts.before,
        feature_form=facts.feature_form,
        models=facts.models,
        **vars_of(at_owners(facts.measured, facts.least, facts.class_names), evaluated),
    )


def mean_validation(outcomes: Sequence[Outcome]) -> float | None:
    """Accuracy on validation nodes, a mean over local models; None if nobody was asked."""
    known = [one.validation for one in outcomes if one.validation is not None]
    return float(np.mean(known)) if known else None


def average_local(setup: Setup, local: Sequence[float | None]) -> float | None:
    """Over all test nodes; for local models over the models, as in the paper."""
    counts = [len(split.test) for split in setup.splits]
    if not sum(counts):
        return None
    weights = np.array(counts) > 0 if setup.method.topology == "alone" else np.array(counts)
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


def sizes(setup: Setup) -> dict[str, int]:
    """|V|, |E|, d_x and d_y of the whole graph."""
    owners, graph = setup.owners, setup.graph
    inside = sum(subgraph.num_links for subgraph in owners.subgraphs)
    return {
        "nodes": sum(subgraph.num_nodes for subgraph in owners.subgraphs),
        "links": graph.num_links if graph else inside + (owners.missing_links or 0),
        "features": owners.subgraphs[0].num_features,
        "classes": owners.subgraphs[0].num_classes,
    }


def labels_of(evaluation: Evaluation) -> dict[str, list[float]]:
    """True and predicted label distributions of the test nodes."""
    return {
        "true": evaluation.true_labels.tolist(),
        "predicted": evaluation.predicted_labels.tolist(),
    }


def owner_lines(setup: Setup, local: Sequence[float | None]) -> list[OwnerLine]:
    """The main numbers of every owner."""
    owners = setup.owners
    skews, names = label_skew_of(owners).tolist(), owners.names or [None] * len(local)
    parts = zip(owners.subgraphs, setup.splits, skews, local, names, strict=True)
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
            name,
        )
        for graph, split, skew, hits, name in parts
    ]
