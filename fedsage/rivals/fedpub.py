"""FED-PUB (Baek et al., ICML 2023, https://arxiv.org/abs/2206.10206)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedsage.graph.graph import Graph
from fedsage.methods import method
from fedsage.models.parameters import Logits, Parameters
from fedsage.models.train import LocalTerm
from fedsage.protocol.messages import Ask, ClassifierUpdate, OwnerId
from fedsage.protocol.personal import OwnUpdate, Personal, PersonalOwner
from fedsage.protocol.plan import Plan
from fedsage.shapes import NodeIds

BLOCKS, SIZE, LINKED = 5, 100, 0.1  # the random graph that all models are shown


class Masks:
    r"""The masks :math:`\mu_i`: a number for each of an owner's weights, one at first."""

    def __init__(self, owner: PubOwner) -> None:
        self.weights = dict(owner.model.named_parameters())
        self.of = {name: torch.ones_like(one) for name, one in self.weights.items()}
        for mask in self.of.values():
            mask.requires_grad_(True)
        self.optimizer = torch.optim.Adam(self.of.values(), lr=owner.config.classifier.eta)
        self.bare: Parameters = {}  # the weights without masks, while they are applied

    def apply(self) -> None:
        r"""Put :math:`\phi \circ \mu` into the model."""
        self.bare = {name: one.detach().clone() for name, one in self.weights.items()}
        for name, weight in self.weights.items():
            weight.data.mul_(self.of[name].detach())

    def remove(self) -> None:
        """Put φ back."""
        for name, weight in self.weights.items():
            weight.data.copy_(self.bare[name])


class Masked(LocalTerm):
    r"""Steps on φ and :math:`\mu` of the loss with :math:`\phi \circ \mu` in the model.

    .. math::
        l(\phi \circ \mu) + \lambda_1 \lVert \mu \rVert_1
        + \lambda_2 \lVert \phi - \phi_S \rVert^2

    By the chain rule the gradient in φ is :math:`g \circ \mu` and that in :math:`\mu` is
    :math:`g \circ \phi`, where g is the gradient in :math:`\phi \circ \mu`.
    """

    def __init__(self, masks: Masks, lambda_1: float, lambda_2: float) -> None:
        self.masks, self.lambda_1, self.lambda_2 = masks, lambda_1, lambda_2
        self.shared = {name: one.detach().clone() for name, one in masks.weights.items()}

    def before(self) -> None:
        """Apply the masks."""
        self.masks.apply()

    def gradients(self) -> None:
        """Take the masks off, hand the gradients on, and step on the masks."""
        self.masks.remove()
        for name, weight in self.masks.weights.items():
            assert isinstance(weight.grad, Tensor)
            mask, bare = self.masks.of[name], weight.detach()
            mask.grad = weight.grad * bare + self.lambda_1 * mask.detach().sign()
            weight.grad = weight.grad * mask.detach()
            weight.grad += 2 * self.lambda_2 * (bare - self.shared[name])
        self.masks.optimizer.step()


def random_graph(plan: Plan) -> Graph:
    """A graph of a few dense blocks with random features, the same for all owners."""
    stream = plan.stream("fedpub", "random graph")
    nodes = BLOCKS * SIZE
    pairs = np.argwhere(stream.random((nodes, nodes)) < LINKED)
    inside = pairs[(pairs[:, 0] < pairs[:, 1]) & (pairs[:, 0] // SIZE == pairs[:, 1] // SIZE)]
    x = stream.standard_normal((nodes, plan.d_x)).astype(np.float32)
    y = np.arange(nodes) % plan.d_y
    return Graph.from_arrays(x, inside.T, y, [str(k) for k in range(plan.d_y)])


class PubOwner(PersonalOwner):
    """An owner that learns which weights of the classifier it is sent matter to it."""

    masks: Masks | None = None
    shown: Graph | None = None
    kept: Parameters | None = None

    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        """Procedure F on φ and its masks; φ leaves, the masks stay."""
        own = self.config.method
        self.masks = self.masks or Masks(self)
        self.term = Masked(self.masks, own["lambda_1"], own["lambda_2"])
        return super().local_update_c(ask)

    def answers(self, graph: Graph, nodes: NodeIds) -> Logits:
        """Answers of the masked classifier."""
        if self.masks is None:
            return super().answers(graph, nodes)
        self.masks.apply()
        try:
            return super().answers(graph, nodes)
        finally:
            self.masks.remove()

    def about(self) -> Float[Tensor, " about"]:
        """The functional embedding: its mean answer on a random graph."""
        self.shown = self.shown or random_graph(self.plan)
        assert self.masks is not None
        self.masks.apply()
        try:
            return self.model.on_graph(self.shown).mean(dim=0).cpu()
        finally:
            self.masks.remove()

    def keep(self) -> None:
        """Remember the masks."""
        assert self.masks is not None
        self.kept = {name: mask.detach().clone() for name, mask in self.masks.of.items()}

    def go_back(self) -> None:
        """Take up the masks of then."""
        for name, mask in (self.kept or {}).items():
            assert self.masks is not None
            self.masks.of[name].data.copy_(mask)

    def own_phi(self) -> Parameters:
        """The masked weights."""
        phi = super().own_phi()
        masks = {} if self.masks is None else self.masks.of
        return {n: w * masks[n].detach().cpu() if n in masks else w for n, w in phi.items()}


@method(
    "fedpub",
    owner=PubOwner,
    options={"tau": 5.0, "lambda_1": 1e-3, "lambda_2": 1e-3},
    search={"method.tau": (5.0, 3.0, 10.0)},
)
class FedPub(Personal):
    r"""FED-PUB: models that answer alike on a random graph are averaged, and masked at home.

    For owner i, φ_j counts as :math:`e^{\tau \cos(h_i, h_j)}`, where :math:`h_i` is the mean
    answer of owner i's model on a random graph that all are shown.

    Note:
        For the level ``open``: the server sees every owner's model.
    """

    def shares(
        self, updates: Mapping[OwnerId, OwnUpdate]
    ) -> dict[OwnerId, dict[OwnerId, float]]:
        """By how alike the answers are."""
        tau = self.exchange.plan.config.method["tau"]
        return {
            i: {j: float((tau * alike(one, other)).exp()) for j, other in updates.items()}
            for i, one in updates.items()
        }


def alike(one: OwnUpdate, other: OwnUpdate) -> Float[Tensor, ""]:
    """The cosine of two owners' mean answers."""
    return torch.cosine_similarity(one.about, other.about, dim=0)
