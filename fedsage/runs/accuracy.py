"""What models are worth: on G and on what owners hold, over all nodes and class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int

from fedsage.evaluation.evaluate import (
    Evaluation,
    balanced_accuracy,
    evaluate,
    evaluation_of,
    macro_f1,
    precision,
    recall,
)
from fedsage.models.backbone import query
from fedsage.models.classifier import build
from fedsage.models.parameters import Logits, Parameters, load_parameters, parameters_of
from fedsage.protocol.measuring import Measured
from fedsage.protocol.messages import Ask, View
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.personal import PersonalOwner
from fedsage.protocol.server import share_of_hits
from fedsage.readable import counted
from fedsage.rng import generator
from fedsage.rounds import Outcome
from fedsage.runs.setup import Setup
from fedsage.runs.train import Trained
from fedsage.shapes import Array, NodeIds

Models: TypeAlias = dict[str, dict[str, float | None]]


def own_models(setup: Setup, trained: Trained) -> list[Parameters]:
    """Every owner's own classifier, if the method makes such; else none."""
    owners = trained.owners if setup.method.personal else []
    return [owner.own_phi() for owner in owners if isinstance(owner, PersonalOwner)]


def own_answers(setup: Setup, own: Sequence[Parameters], owned: Sequence[NodeIds]) -> Logits:
    """Logits of every owner's nodes on G, each from its owner's own classifier."""
    assert setup.graph is not None
    config, found = setup.config, []
    for i, (phi, nodes) in enumerate(zip(own, owned, strict=True)):
        model = build(setup.plan.shape, phi, config.run.device, config.run.kernel)
        stream = generator(setup.plan.seed, "evaluate", i)
        how = config.evaluation.inference, config.classifier.fanouts
        found.append(query(model, setup.graph, nodes, *how, stream).cpu())
    return torch.cat(found)


def evaluate_globally(
    setup: Setup, outcomes: Sequence[Outcome], own: Sequence[Parameters] = ()
) -> dict[str, Evaluation]:
    """Queries for test and for validation nodes on G, of those that there are.

    Where owners have classifiers of their own, each is asked about its owner's nodes.
    """
    if setup.graph is None:
        return {}
    split = list(zip(setup.owners.nodes, setup.splits, strict=True))
    parts = {name: [ids[getattr(own, name)] for ids, own in split] for name in ("test", "val")}
    parts = {name: owned for name, owned in parts.items() if any(len(ids) for ids in owned)}
    if not parts:
        return {}
    plan, config = setup.plan, setup.config
    how = config.run.device, config.run.kernel
    if own:
        return {
            name: evaluation_of([own_answers(setup, own, owned)], setup.graph, owned)
            for name, owned in parts.items()
        }
    models = [build(plan.shape, one.classifier.phi, *how) for one in outcomes]
    streams = [generator(plan.seed, "evaluate") for _ in parts]
    found = evaluate(
        models, setup.graph, list(parts.values()), config.evaluation.inference,
        config.classifier.fanouts, streams,
    )  # fmt: skip
    return dict(zip(parts, found, strict=True))


def measured_models(
    setup: Setup,
    trained: Trained,
    local: Sequence[float | None],
    evaluated: Mapping[str, Evaluation],
) -> Models:
    """Accuracy on test nodes: of the shared and of owners' own models, on G and on G_i.

    A method that makes one shared model has no others; its owners then train it for one more
    round at home, which is the own model that costs nothing. Where owners make their own, the
    shared model is the mean of those.
    """
    whole = evaluated["test"].accuracy if "test" in evaluated else None
    main = {"global": whole, "local": averaged(setup, local)}
    none: dict[str, float | None] = {"global": None, "local": None}
    if setup.method.topology == "whole":
        return {"shared": main, "own": none}
    view = trained.outcomes[0].view
    if setup.method.topology == "alone":
        own = [one.classifier.phi for one in trained.outcomes]
        return {"shared": none, "own": {**main, "global": on_whole(setup, own)}}
    if setup.method.personal:
        phi = trained.outcomes[0].classifier.phi
        found = [hits_with(owner, phi, view) for owner in trained.owners]
        shared = {
            "global": on_whole(setup, [phi] * len(found)),
            "local": averaged(setup, found),
        }
        return {"shared": shared, "own": main}
    if any(type(owner).answers is not DataOwner.answers for owner in trained.owners):
        found = [hits_with(owner, parameters_of(owner.model), view) for owner in trained.owners]
        shared = {"global": whole, "local": averaged(setup, found)}
        return {"shared": shared, "own": {**main, "global": None}}
    return {"shared": main, "own": trained_at_home(setup, trained, view)}


def trained_at_home(setup: Setup, trained: Trained, view: View) -> dict[str, float | None]:
    """What the shared model is worth after one more round at every owner, sent to nobody."""
    for owner in trained.owners:
        owner.local_update_c(Ask(setup.config.classifier.rounds_c))
    hits = [owner.hits(owner.split.test) for owner in trained.owners]
    found = [share_of_hits(one, view) if one.total else None for one in hits]
    own = [parameters_of(owner.model) for owner in trained.owners]
    return {"global": on_whole(setup, own), "local": averaged(setup, found)}


def hits_with(owner: DataOwner, phi: Parameters, view: View) -> float | None:
    """The share of an owner's test nodes that plain φ gets right on its graph."""
    stranger = DataOwner(owner.id, owner.graph, owner.split, owner.plan, owner.mended)
    stranger.seed = owner.seed
    load_parameters(stranger.model, phi)
    hits = stranger.hits(owner.split.test)
    return share_of_hits(hits, view) if hits.total else None


def on_whole(setup: Setup, own: Sequence[Parameters]) -> float | None:
    """The share of test nodes that the models of their owners get right on G."""
    if setup.graph is None or not any(len(split.test) for split in setup.splits):
        return None
    owned = [
        ids[split.test] for ids, split in zip(setup.owners.nodes, setup.splits, strict=True)
    ]
    right = own_answers(setup, own, owned).argmax(dim=1).numpy()
    return float((right == setup.graph.y[np.concatenate(owned)]).mean())


def averaged(setup: Setup, local: Sequence[float | None]) -> float | None:
    """Over all test nodes."""
    counts = [len(split.test) for split in setup.splits]
    if not sum(counts):
        return None
    return float(np.average([share or 0.0 for share in local], weights=counts))


@dataclass(frozen=True, slots=True, eq=False)
class AtOwners:
    """What owners' own test nodes say."""

    macro_f1: float | None
    balanced_accuracy: float | None
    recall: list[float | None]
    precision: list[float | None]
    confusion: list[list[int | None]] | None
    temperature: float
    slope: float
    calibration_error: float | None
    error_by_chance: float | None
    reliability: list[dict[str, float | None]] | None
    warnings: list[str]


NOTHING = AtOwners(None, None, [], [], None, 1.0, 0.0, None, None, None, [])


def at_owners(measured: Sequence[Measured], least: int, class_names: Sequence[str]) -> AtOwners:
    """The counts of one classifier, or of all local ones, with counts below ``least`` hidden.

    A class with fewer test nodes than that has no recall, and one that is predicted less often
    no precision. Means over classes are over all of them.
    """
    if not measured:
        return NOTHING
    counts: Int[Array, "d_y d_y"] = np.sum([one.confusion for one in measured], axis=0)
    if not counts.sum():
        return NOTHING
    true, predicted = counts.sum(axis=1), counts.sum(axis=0)
    weights = [int(one.confusion.sum()) for one in measured]

    def weighted(errors: Sequence[float | None]) -> float:
        known = [(e, w) for e, w in zip(errors, weights, strict=True) if e is not None]
        return sum(e * w for e, w in known) / sum(w for _, w in known)

    return AtOwners(
        macro_f1(counts),
        balanced_accuracy(counts),
        shown(recall(counts), true, least),
        shown(precision(counts), predicted, least),
        [[hidden(int(cell), least) for cell in row] for row in counts],
        float(np.mean([one.calibration.temperature for one in measured])),
        float(np.mean([one.calibration.slope for one in measured])),
        weighted([one.calibration_error for one in measured]),
        weighted([one.error_by_chance for one in measured]),
        reliability_of(measured, least),
        never_predicted(true, predicted, least, class_names),
    )


def hidden(count: int, least: int) -> int | None:
    """The count; None if it is of a few nodes only."""
    return None if 0 < count < least else count


def shown(shares: Array, counts: Int[Array, " d_y"], least: int) -> list[float | None]:
    """Shares of enough nodes; None for others, and where there is nothing to share."""
    return [
        float(share) if count >= max(least, 1) else None
        for share, count in zip(shares, counts, strict=True)
    ]


def reliability_of(measured: Sequence[Measured], least: int) -> list[dict[str, float | None]]:
    """Probability and share right by bin, over all classifiers."""
    found: list[dict[str, float | None]] = []
    for bins in zip(*(one.reliability for one in measured), strict=True):
        count = int(sum(one["count"] for one in bins))
        if 0 < count < least:
            found.append({"count": None, "probability": None, "right": None})
            continue
        sums = {
            key: sum(one["count"] * one[key] for one in bins)
            for key in ("probability", "right")
        }
        found.append({"count": count} | {k: v / max(count, 1) for k, v in sums.items()})
    return found


def never_predicted(
    true: Int[Array, " d_y"],
    predicted: Int[Array, " d_y"],
    least: int,
    class_names: Sequence[str],
) -> list[str]:
    """A warning for every class that is never predicted."""

    def nodes(count: int) -> str:
        if not count:
            return ", and no test node has it"
        if count < least:
            return f", although fewer than {least} test nodes have it"
        return f", although {counted(count, 'test node')} {'has' if count == 1 else 'have'} it"

    return [
        f"Class '{name}' is never predicted{nodes(int(count))}. "
        "Rare classes are found more often with classifier.class_weights=balanced."
        for name, count, given in zip(class_names, true, predicted, strict=True)
        if not given
    ]


def vars_of(local: AtOwners, evaluated: Evaluation | None) -> dict[str, Any]:
    """The fields of a record: by class as the whole graph says, where somebody holds it."""
    per_class: dict[str, Any] | None = None
    if evaluated is not None:
        per_class = {
            "recall": evaluated.recall.tolist(),
            "precision": evaluated.precision.tolist(),
        }
    elif local.recall:
        per_class = {"recall": local.recall, "precision": local.precision}
    return {
        "macro_f1": evaluated.macro_f1 if evaluated else local.macro_f1,
        "balanced_accuracy": (
            evaluated.balanced_accuracy if evaluated else local.balanced_accuracy
        ),
        "per_class": per_class,
        "confusion_local": local.confusion,
        "temperature": local.temperature,
        "slope": local.slope,
        "calibration_error": local.calibration_error,
        "calibration_error_by_chance": local.error_by_chance,
        "reliability": local.reliability,
        "warnings": local.warnings,
    }
