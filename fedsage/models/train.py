"""One epoch of classifier training; the same for every owner and every method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedsage.config import ClassifierConfig
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import Hop, node_batches, sample_hops
from fedsage.models.backbone import Backbone, feature_rows
from fedsage.models.losses import ClassWeights
from fedsage.models.parameters import Inputs
from fedsage.shapes import NodeIds


class LocalTerm:
    """What a method adds to a step of local training: this one adds nothing.

    A step is: ``before``, the logits and their loss, plus ``loss``, the gradients, then
    ``gradients``, and the optimizer's step.
    """

    def before(self) -> None:
        """Called before the logits are computed."""

    def loss(self, rows: Inputs, hops: Sequence[Hop]) -> Float[Tensor, ""] | float:
        """A term of the loss of a batch."""
        return 0.0

    def gradients(self) -> None:
        """Called when every weight has its gradient."""


@contextmanager
def tiny_is_zero() -> Iterator[None]:
    """In this thread and for a while, denormal numbers count as zero.

    Weights of a hidden unit that is zero for every node decay, and so do their moments, but a
    processor takes many times as long for numbers below 1e-38.
    """
    before = float(torch.tensor(1e-30) * 1e-10) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@tiny_is_zero()
def train_epoch(
    model: Backbone,
    optimizer: torch.optim.Optimizer,
    graph: Graph,
    nodes: NodeIds,
    classifier: ClassifierConfig,
    generator: np.random.Generator,
    class_weights: ClassWeights | None = None,
    term: LocalTerm | None = None,
) -> float:
    """One pass over ``nodes`` in batches, one step for each; returns the mean loss.

    By compiled code if the model has any, else by torch. Both make the same draws and follow
    the same formulas; they differ by rounding. There is no compiled code for weights of classes
    or links, nor for a term of a method's own.
    """
    if term:
        return torch_epoch(
            model, optimizer, graph, nodes, classifier, generator, class_weights, term
        )
    plain = class_weights is None and graph.weights is None
    loss = 0.0
    for part, stream in model.apart(generator):
        if part.chosen_kernel == "fused" and plain:
            order = nodes[stream.permutation(len(nodes))]
            loss += part.compiled_epoch(optimizer, graph, order, classifier, stream)
        else:
            given = graph, nodes, classifier, stream, class_weights
            loss += torch_epoch(part, optimizer, *given)
    return loss


def torch_epoch(
    model: Backbone,
    optimizer: torch.optim.Optimizer,
    graph: Graph,
    nodes: NodeIds,
    classifier: ClassifierConfig,
    generator: np.random.Generator,
    class_weights: ClassWeights | None = None,
    term: LocalTerm | None = None,
) -> float:
    """The readable reference, for any model and device."""
    own = term or LocalTerm()
    for group in optimizer.param_groups:
        group["lr"] = classifier.eta
    y = torch.from_numpy(graph.y[nodes]).to(model.device)
    fanouts = classifier.fanouts if model.trains_on_links else ()
    weights = None if class_weights is None else class_weights.to(model.device)
    losses = []
    size = classifier.batch_for(len(nodes))
    for batch in node_batches(np.arange(len(nodes)), size, generator):
        hops = sample_hops(graph, nodes[batch], fanouts, generator)
        inputs = hops[0].inputs if hops else nodes[batch]
        rows = feature_rows(graph.x, inputs, model.device)
        own.before()
        asked = y[torch.from_numpy(batch)]
        loss = model.batch_loss(rows, hops, asked, weights, generator) + own.loss(rows, hops)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        own.gradients()
        optimizer.step()
        losses.append(loss.detach() * len(batch))
    return float(torch.stack(losses).sum()) / len(nodes)
