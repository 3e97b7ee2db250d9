"""The server S: procedures A and B of Algorithm 1. It holds weights, and no graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fedsage.errors import ProtocolError
from fedsage.models.parameters import Parameters
from fedsage.models.subspace import orthonormal
from fedsage.protocol.aggregate import Rule, aggregate, average, chosen_by_krum
from fedsage.protocol.engine import Engine
from fedsage.protocol.messages import (
    Classifier,
    ClassifierUpdate,
    ClassLinks,
    GenDone,
    GenGradient,
    GenOffers,
    Hits,
    OwnerId,
    SharedNeighGen,
    Subspace,
    View,
)
from fedsage.rng import Stream, generator


def server_execution_for_gen(
    engine: Engine, t: int, partners: int = 0, seed: int = 0
) -> dict[OwnerId, GenDone]:
    r"""Procedure A (ServerExecutionForGen): one round of federated NeighGen training.

    Hands every owner's :math:`(Z_i^t, H^g_i)` to all others, and every owner the sum of what
    comes back, :math:`\nabla \mathcal{L}^f_{i,J} \gets \sum_{j \in [M] \setminus \{i\}}
    \nabla \mathcal{L}^f_{i,j}`, unweighted.

    Note:
        With ``partners``, every offer goes to so many others, drawn anew in each round, and
        their sum is scaled to what all others' would be on average.
    """
    offers = engine.local_request(t)  # C
    chosen = partners_of(list(offers), partners, generator(seed, "partners", t))
    asked = {j: GenOffers({i: offers[i] for i in offers if j in chosen[i]}) for j in offers}
    replies = engine.feed_forward({j: each for j, each in asked.items() if each.of})  # D
    sums = {
        i: GenGradient(t, scaled_sum([replies[j].of[i] for j in chosen[i] if j in replies],
                                     len(offers) - 1))
        for i in offers
    }  # fmt: skip
    del offers, replies  # M² gradients: no need to keep them while their sums are sent
    return engine.update_neighgen(sums)  # E


def partners_of(
    owners: Sequence[OwnerId], count: int, stream: Stream
) -> dict[OwnerId, list[OwnerId]]:
    r"""Who gets whose offer: all of :math:`[M] \setminus \{i\}`, or ``count`` of them."""
    others = {i: [j for j in owners if j != i] for i in owners}
    if not 0 < count < len(owners) - 1:
        return others
    return {
        i: sorted(stream.choice(each, count, replace=False).tolist())
        for i, each in others.items()
    }


def scaled_sum(gradients: Sequence[Parameters], all_of_them: int) -> Parameters:
    """The sum as if ``all_of_them`` had answered as those who were asked did on average."""
    total = add_up(gradients)
    if len(gradients) in (0, all_of_them):
        return total
    return {name: each * (all_of_them / len(gradients)) for name, each in total.items()}


def add_up(gradients: Sequence[Parameters]) -> Parameters:
    """The sum, weight by weight; empty where there is nothing to add."""
    total = {name: each.clone() for name, each in gradients[0].items()} if gradients else {}
    for gradient in gradients[1:]:
        for name, each in total.items():
            each += gradient[name]
    return total


def average_neighgen(
    engine: Engine, shared: SharedNeighGen
) -> tuple[SharedNeighGen, dict[OwnerId, GenDone]]:
    """One round of ``fedsage+shared``: NeighGen trained by all owners and averaged."""
    updates = engine.update_shared_neighgen(shared)
    theta = average([update.theta for update in updates.values()], [1.0] * len(updates))
    return SharedNeighGen(shared.t + 1, theta), {i: each.done for i, each in updates.items()}


def add_up_class_links(engine: Engine) -> ClassLinks:
    """The class-to-class links of all owners together."""
    counts = [links.count for links in engine.count_class_links().values()]
    return ClassLinks(torch.stack(counts).sum(dim=0))


def common_subspace(engine: Engine, start: Subspace, iterations: int) -> Subspace:
    """The subspace of all owners' features, by subspace iteration on sums over owners."""
    found = start
    for _ in range(iterations):
        sketches = engine.sketch_features(found).values()
        total = torch.stack([sketch.product for sketch in sketches]).sum(dim=0)
        if not total.any():
            raise ProtocolError(
                "No owner added anything to the common subspace: their features are all zero, "
                f"or they have too few nodes for {iterations} answers of rank "
                f"{total.shape[1]}. Lower mend.rank."
            )
        found = Subspace(orthonormal(total))
    return found


def server_execution_for_c(
    engine: Engine, t: int, rule: Rule = "mean"
) -> tuple[Classifier, dict[OwnerId, float], dict[OwnerId, Hits]]:
    """Procedure B (ServerExecutionForC): one round of federated classifier training.

    Collects φ_i from all owners (procedure F), averages, broadcasts the mean. Returns it
    with the owners' losses and with their hits on validation nodes.
    """
    updates = engine.local_update_c(t)  # F
    classifier = average_updates(list(updates.values()), rule)
    losses = {i: update.loss for i, update in updates.items()}
    del updates  # M classifiers: no need to keep them while the mean is sent
    return classifier, losses, engine.broadcast_classifier(classifier)


def average_updates(updates: Sequence[ClassifierUpdate], rule: Rule = "mean") -> Classifier:
    """One classifier of many, and one set of moments where owners sent them."""
    if rule == "krum" and updates:
        chosen = updates[chosen_by_krum([update.phi for update in updates])]
        return Classifier(chosen.phi, chosen.moments)
    weights = [update.weight for update in updates]
    return Classifier(
        phi=aggregate(rule, [update.phi for update in updates], weights),
        moments=aggregate(rule, [update.moments for update in updates], weights),
    )


def share_of_hits(hits: Mapping[OwnerId, Hits], view: View = "plain") -> float:
    """Accuracy over the nodes of all owners together, queried on G_i, on G'_i or on both."""
    total = sum(reply.total for reply in hits.values())
    right: int = sum(getattr(reply, view) for reply in hits.values())
    return right / max(total, 1)
