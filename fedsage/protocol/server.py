"""The server S: procedure B of Algorithm 1. It holds weights, and no graph.

Procedure A is the server's side of NeighGen: ``mending/neighgen.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from fedsage.errors import ProtocolError
from fedsage.models.parameters import Parameters
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Classifier, ClassifierUpdate, Hits, View
from fedsage.protocol.owner import DataOwner
from fedsage.registry import Registry


class ByModels:
    """The server's side of training with full messages: φ_i and moments as they are."""

    def __init__(self, exchange: Exchange, rule: Rule) -> None:
        self.exchange, self.rule = exchange, rule

    def begin(self, classifier: Classifier) -> None:
        """Prepare, and bring all owners to the start."""
        self.start(classifier)
        self.send(classifier)

    def start(self, classifier: Classifier) -> None:
        """Called once, before the first classifier is sent; here there is nothing to do."""

    def send(self, classifier: Classifier) -> None:
        """Send the classifier to all owners."""
        self.exchange.sum(DataOwner.receive_classifier, classifier)

    def combine(self, all_phi: Sequence[Parameters], weights: Sequence[float]) -> Parameters:
        """φ out of all φ_i, by the rule of the run."""
        return self.rule(all_phi, weights)

    def round(self, t: int, keep: bool) -> tuple[Classifier, float, Hits]:
        """Procedure B."""
        return server_execution_for_c(self.exchange, t, self.combine, self.rule)

    def end(self, best: Classifier, t: int, last: int) -> Hits | None:
        """Make sure that all owners hold the best φ, that of round ``t``.

        Returns hits on validation nodes if owners answer otherwise from here on.
        """
        holding = self.exchange.answered[DataOwner.receive_classifier.name]
        if t != last or len(holding) < len(self.exchange.owners):
            self.send(best)
        return None


def server_execution_for_c(
    exchange: Exchange, t: int, combine: Rule, rule: Rule
) -> tuple[Classifier, float, Hits]:
    """Procedure B (ServerExecutionForC): one round of federated classifier training.

    Collects φ_i from all owners (procedure F), averages them, and broadcasts the mean. Returns
    it with the owners' mean loss and the sum of their hits on validation nodes.
    """
    averaged = partial(average_updates, combine, rule)
    update = exchange.sum(DataOwner.local_update_c, Ask(t), averaged)  # F
    classifier = Classifier(update.phi, update.moments)
    return classifier, update.loss, exchange.sum(DataOwner.receive_classifier, classifier)


def average_updates(
    combine: Rule, rule: Rule, updates: Sequence[ClassifierUpdate]
) -> ClassifierUpdate:
    """Combine many classifiers into one, and by the rule their moments if owners sent them.

    A rule that chooses one φ_i, like Krum, takes its moments as well.
    """
    weights = [update.weight for update in updates]
    phi = combine([update.phi for update in updates], weights)
    chosen = [update.moments for update in updates if update.phi is phi]
    return ClassifierUpdate(
        phi=phi,
        moments=chosen[0] if chosen else rule([update.moments for update in updates], weights),
        weight=sum(weights),
        loss=sum(update.loss for update in updates) / len(updates),
    )


def share_of_hits(hits: Hits, view: View = "plain") -> float:
    """Accuracy on the nodes asked about, queried on G_i, on G'_i or on both."""
    right: int = getattr(hits, view)
    return right / max(hits.total, 1)


Rule: TypeAlias = Callable[[Sequence[Parameters], Sequence[float]], Parameters]
RULES: Registry[Rule] = Registry("rule", "aggregation_rule", "fedsage.protocol.server")
aggregation_rule = RULES
named_rule = RULES.named


@aggregation_rule("mean")
def average(all_phi: Sequence[Parameters], weights: Sequence[float]) -> Parameters:
    r"""Procedure B: the mean of all owners' weights, weighted by owner.

    .. math::
        \phi \gets \frac{1}{M} \sum_{i \in [M]} \phi_i

    Note:
        Procedure B is an unweighted mean: equal ``weights``. Weighted by training nodes it
        is the mean of the original FedAvg. Computed as a running mean, so that there is no
        copy of everything and equal weights stay exactly equal.
    """
    if not all_phi:
        raise ProtocolError(
            "Cannot average: no owner returned a classifier this round. Check that the "
            "owners are running."
        )
    mean = {name: weight.clone() for name, weight in all_phi[0].items()}
    shares = [
        weight / total if total else 0.0
        for weight, total in zip(weights, accumulate(weights), strict=True)
    ]
    for phi, share in zip(all_phi[1:], shares[1:], strict=True):
        for name, weight in mean.items():
            weight.lerp_(phi[name], share)
    return mean


def stacked(all_phi: Sequence[Parameters], name: str) -> Float[Tensor, "M ..."]:
    """One weight of all owners."""
    return torch.stack([phi[name] for phi in all_phi])


@aggregation_rule("median")
def median(all_phi: Sequence[Parameters], weights: Sequence[float]) -> Parameters:
    """The median of each weight: outvotes a few owners, whatever weight they claim."""
    return {name: middle(stacked(all_phi, name)) for name in all_phi[0]}


def middle(values: Float[Tensor, "M ..."]) -> Float[Tensor, ...]:
    """The median; for an even number, the mean of the middle two."""
    ordered = values.sort(dim=0).values
    count = len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


@aggregation_rule("trimmed-mean")
def trimmed_mean(all_phi: Sequence[Parameters], weights: Sequence[float]) -> Parameters:
    """The mean of each weight without its largest and smallest fifth, at least one of each."""
    count = len(all_phi)
    cut = max(1, count // 5) if count > 2 else 0
    return {
        name: stacked(all_phi, name).sort(dim=0).values[cut : count - cut].mean(dim=0)
        for name in all_phi[0]
    }


@aggregation_rule("krum")
def krum(all_phi: Sequence[Parameters], weights: Sequence[float]) -> Parameters:
    """Krum: the φ_i closest to its nearest others; up to (M − 3) / 2 owners may be hostile."""
    count = len(all_phi)
    hostile = max(0, (count - 3) // 2)
    points = torch.stack([flat(phi).double() for phi in all_phi])
    squares = (points[:, None] - points[None]).square().sum(dim=2)
    nearest = squares.sort(dim=1).values[:, 1 : max(2, count - hostile - 1)]
    return all_phi[int(nearest.sum(dim=1).argmin())]


def flat(parameters: Parameters) -> Float[Tensor, " weights"]:
    """All weights in one row, in order of name."""
    return torch.cat([parameters[name].flatten() for name in sorted(parameters)])
