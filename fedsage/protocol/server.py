"""The server S: procedure B of Algorithm 1. It holds weights, and no graph.

Procedure A is the server's side of NeighGen: ``mending/neighgen.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fedsage.protocol.aggregate import Rule
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Classifier, ClassifierUpdate, Hits, View
from fedsage.protocol.owner import DataOwner


def server_execution_for_c(
    exchange: Exchange, t: int, rule: Rule
) -> tuple[Classifier, float, Hits]:
    """Procedure B (ServerExecutionForC): one round of federated classifier training.

    Collects φ_i from all owners (procedure F), averages, broadcasts the mean. Returns it
    with the owners' mean loss and with all owners' hits on validation nodes.
    """
    update = exchange.sum(DataOwner.local_update_c, Ask(t), partial(average_updates, rule))  # F
    classifier = Classifier(update.phi, update.moments)
    return classifier, update.loss, exchange.sum(DataOwner.receive_classifier, classifier)


def average_updates(rule: Rule, updates: Sequence[ClassifierUpdate]) -> ClassifierUpdate:
    """One classifier of many, and one set of moments where owners sent them.

    A rule that chooses one φ_i, as Krum does, takes its moments as well.
    """
    weights = [update.weight for update in updates]
    phi = rule([update.phi for update in updates], weights)
    chosen = [update.moments for update in updates if update.phi is phi]
    return ClassifierUpdate(
        phi=phi,
        moments=chosen[0] if chosen else rule([update.moments for update in updates], weights),
        weight=sum(weights),
        loss=sum(update.loss for update in updates) / len(updates),
    )


def share_of_hits(hits: Hits, view: View = "plain") -> float:
    """Accuracy over the nodes that were asked about, queried on G_i, on G'_i or on both."""
    right: int = getattr(hits, view)
    return right / max(hits.total, 1)
