"""Weights of classes in training, from the number of training nodes of all owners."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from fedsage.models.losses import ClassWeights
from fedsage.protocol.agreement import Ready
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Ints, OwnerId, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Open, Summed, by_balanced_classes, procedure


@message
class ClassCounts:
    """D_i → S, then summed S → every D_i: how many training nodes each class has."""

    count: Int[Tensor, " d_y"]


def too_many(plan: Plan, owner: OwnerId, ask: object, counts: ClassCounts) -> str | None:
    """Refuse negative counts, and more training nodes than an owner has nodes."""
    return wrong(counts, plan.nodes_of.get(owner, plan.num_nodes))


def wrong(counts: ClassCounts, most: int) -> str | None:
    """What is wrong with counts of at most so many nodes."""
    total = int(counts.count.sum())
    if int(counts.count.min()) < 0 or total > most:
        return f"counts of {total} training nodes, but it has {most} nodes"
    return None


@procedure(
    phase="training",
    uses=Summed,
    shapes=lambda plan: {"count": Ints((plan.d_y,))},
    check=too_many,
    check_sum=lambda plan, total, owners: wrong(total, plan.num_nodes),
    leaves="Before training, once: how many training nodes of each class you have.",
    when=by_balanced_classes,
)
def count_classes(owner: DataOwner, ask: Ask) -> ClassCounts:
    """Training nodes of each class."""
    y = owner.graph.y[owner.split.train]
    found = np.bincount(y, minlength=owner.graph.num_classes)
    return ClassCounts(torch.from_numpy(found.astype(np.int32)))


@procedure(phase="training", uses=Open, when=by_balanced_classes, binds=True)
def weigh_classes(owner: DataOwner, counts: ClassCounts) -> Ready:
    """Take over the weights that follow from all owners' counts."""
    owner.class_weights = weights_of(counts)
    return Ready()


def weights_of(counts: ClassCounts) -> ClassWeights:
    r"""The weight of each class, :math:`n / (d_y n_c)`; 0 for a class without nodes."""
    count = counts.count.double()
    weights = count.sum() / (len(count) * count.clamp_min(1))
    return torch.where(count > 0, weights, 0.0).float()


def balance(exchange: Exchange) -> None:
    """Let every owner know how much each class weighs; nobody may miss it."""
    total = exchange.sum(count_classes, Ask(0))
    exchange.all(weigh_classes, total, len(exchange.owners))
