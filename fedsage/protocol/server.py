"""The server S: procedure B of Algorithm 1. It holds weights, and no graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fedsage.errors import ProtocolError
from fedsage.models.parameters import Parameters
from fedsage.protocol.engine import Engine
from fedsage.protocol.messages import Classifier, ClassifierUpdate, Hits, OwnerId


def server_execution_for_c(
    engine: Engine, t: int
) -> tuple[Classifier, dict[OwnerId, float], dict[OwnerId, Hits]]:
    """Procedure B (ServerExecutionForC): one round of federated classifier training.

    Collects φ_i from all owners (procedure F), averages, broadcasts the mean. Returns it
    with the owners' losses and with their hits on validation nodes.
    """
    updates = engine.local_update_c(t)  # F
    classifier = average_updates(list(updates.values()))
    losses = {i: update.loss for i, update in updates.items()}
    del updates  # M classifiers: no need to keep them while the mean is sent
    return classifier, losses, engine.broadcast_classifier(classifier)


def average_updates(updates: Sequence[ClassifierUpdate]) -> Classifier:
    """The mean classifier, and the mean moments where owners sent them."""
    weights = [update.weight for update in updates]
    return Classifier(
        phi=average([update.phi for update in updates], weights),
        moments=average([update.moments for update in updates], weights),
    )


def average(phis: Sequence[Parameters], weights: Sequence[float]) -> Parameters:
    r"""Procedure B: :math:`\phi \gets \frac{1}{M} \sum_{i \in [M]} \phi_i`.

    Note:
        Procedure B is an unweighted mean: equal ``weights``. Weighted by training nodes it
        is the mean of the original FedAvg.
    """
    if not phis:
        raise ProtocolError(
            "Cannot average: no owner returned a classifier this round. Check that the "
            "owners are running."
        )
    share = torch.tensor(weights, dtype=torch.float64)
    share = (share / share.sum()).to(torch.float32)
    return {
        name: torch.einsum("i,i...->...", share, torch.stack([phi[name] for phi in phis]))
        for name in phis[0]
    }


def share_of_hits(hits: Mapping[OwnerId, Hits], mended: bool = False) -> float:
    """Accuracy over the nodes of all owners together, queried on G_i or on G'_i."""
    total = sum(reply.total for reply in hits.values())
    right = sum(reply.mended if mended else reply.correct for reply in hits.values())
    return right / max(total, 1)
