"""Membership: a classifier is more certain about nodes that it was trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float

from fedsage.audit.attacks.links import without_links
from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.audit.scores import auc, auc_error, found_at
from fedsage.graph.split import Split
from fedsage.models.classifier import build
from fedsage.models.parameters import Parameters
from fedsage.protocol.procedures import in_private
from fedsage.runs.events import Stopwatch, ignore_event
from fedsage.runs.setup import Setup, prepare
from fedsage.runs.train import train
from fedsage.shapes import Array

SHADOWS = {True: 4, False: 16}  # the attacker's own runs, if quick or not
FIRST_SHADOW = 10_000  # their seeds
Sure = Float[Array, " nodes"]
ATTEMPT = Attempt(
    "membership",
    "anybody",
    "the released classifier, rows with their links and labels, and runs of its own",
    "AUC",
)


@attack("membership")
def membership(case: Case) -> Finding:
    """Was this node trained on? By its loss, and by how unusual that is among shadow runs."""
    sure = sureness(case.setup, case.phi)
    members, others = (chosen(case.setup, part) for part in ("train", "test"))
    by_loss = auc(sure[members], sure[others])
    ratio = likelihood_ratio(case, sure)
    by_ratio = auc(ratio[members], ratio[others])
    note = (
        f"by the loss {by_loss:.3f}; by the likelihood ratio with {SHADOWS[case.quick]} shadow "
        f"runs {by_ratio:.3f}, TPR at 1%: {found_at(ratio[members], ratio[others]):.3f}"
    )
    if not in_private(case.plan.config):
        note += "; the classifier is the same with hidden sums"
    error = auc_error(int(members.sum()), int(others.sum()))
    return ATTEMPT.auc(max(by_loss, by_ratio), None, note, error)


def sureness(setup: Setup, phi: Parameters) -> Sure:
    """The log odds of the true class of all owners' nodes, queried as the model was trained.

    That is on the owner's graph, or by a node's row alone if links were not used.
    """
    model = build(setup.plan.shape, phi, "cpu", "torch")
    found = []
    for graph in setup.owners.subgraphs:
        seen = graph if model.trains_on_links else without_links(graph)
        logits = model.on_graph(seen).double()
        own = torch.from_numpy(graph.y.clip(0).astype(np.int64))[:, None]
        rest = logits.scatter(1, own, -torch.inf).logsumexp(dim=1)
        found.append((logits.gather(1, own)[:, 0] - rest).numpy())
    return np.concatenate(found)


def chosen(setup: Setup, part: str) -> Bool[Array, " nodes"]:
    """Which of all owners' nodes are in that part of their splits."""
    found = []
    for graph, split in zip(setup.owners.subgraphs, setup.splits, strict=True):
        mask = np.zeros(graph.num_nodes, dtype=bool)
        mask[nodes_in(split, part)] = True
        found.append(mask)
    return np.concatenate(found)


def nodes_in(split: Split, part: str) -> Array:
    """The nodes of that part."""
    return np.asarray(getattr(split, part))


def likelihood_ratio(case: Case, sure: Sure) -> Sure:
    """How much likelier a node's log odds are if it was trained on (LiRA).

    Means are taken for each node, over shadow runs with and without it; since these are few,
    the spread is taken over all nodes.
    """
    runs = [shadow(case, FIRST_SHADOW + k) for k in range(SHADOWS[case.quick])]
    seen, there = np.stack([one for one, _ in runs]), np.stack([mask for _, mask in runs])
    inside, outside = mean_where(seen, there), mean_where(seen, ~there)
    spread = np.std(np.where(there, seen - inside, seen - outside)) + 1e-9
    return np.asarray(((sure - outside) ** 2 - (sure - inside) ** 2) / (2 * spread**2))


def mean_where(
    seen: Float[Array, "runs nodes"], mask: Bool[Array, "runs nodes"]
) -> Float[Array, " nodes"]:
    """The mean of each node over some runs; if it is in none, that of all nodes."""
    count = mask.sum(axis=0)
    overall = float(seen[mask].mean())
    return np.where(count > 0, (seen * mask).sum(axis=0) / count.clip(1), overall)


def shadow(case: Case, seed: int) -> tuple[Sure, Bool[Array, " nodes"]]:
    """A run like the audited one, whose training nodes the attacker drew itself."""
    run = case.setup.config.run.model_copy(update={"seed": seed})
    config = case.setup.config.model_copy(update={"run": run})
    if not in_private(config):  # the classifier is the same whoever sees sums
        open_ = config.privacy.model_copy(update={"level": "open"})
        config = config.model_copy(update={"privacy": open_})
    setup = prepare(config, replace(case.setup.owners, splits=()), case.setup.graph)
    trained = train(setup, Stopwatch(ignore_event), ignore_event, None)
    return sureness(setup, trained.outcomes[0].classifier.phi), chosen(setup, "train")
