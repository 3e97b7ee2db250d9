"""What models are worth, shared ones and owners' own: on G, and on what an owner holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch

from fedsage.evaluation.evaluate import Evaluation, evaluate, evaluation_of
from fedsage.models.backbone import query
from fedsage.models.classifier import build
from fedsage.models.parameters import Logits, Parameters, load_parameters, parameters_of
from fedsage.protocol.messages import Ask, View
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.personal import PersonalOwner
from fedsage.protocol.server import share_of_hits
from fedsage.rng import generator
from fedsage.rounds import Outcome
from fedsage.runs.setup import Setup
from fedsage.runs.train import Trained
from fedsage.shapes import NodeIds

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
