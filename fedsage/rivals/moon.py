"""MOON (Li, He and Song, 2021, https://arxiv.org/abs/2103.16257)."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from fedsage.errors import ConfigError
from fedsage.graph.sampling import Hop
from fedsage.methods import method
from fedsage.models.backbone import Backbone
from fedsage.models.parameters import Inputs
from fedsage.models.train import LocalTerm
from fedsage.protocol.messages import Ask, ClassifierUpdate
from fedsage.protocol.owner import DataOwner


def contrast(
    z: Float[Tensor, "batch d"],
    z_shared: Float[Tensor, "batch d"],
    z_before: Float[Tensor, "batch d"],
    tau: float,
) -> Float[Tensor, ""]:
    r"""The model-contrastive loss, a mean over the nodes of a batch.

    .. math::
        -\log \frac{e^{\cos(z, z_S) / \tau}}
        {e^{\cos(z, z_S) / \tau} + e^{\cos(z, z_i) / \tau}}

    where z is what the model makes of a node, :math:`z_S` what the shared model makes of it
    and :math:`z_i` what the owner's model of the round before did.
    """
    near = F.cosine_similarity(z, z_shared) / tau
    far = F.cosine_similarity(z, z_before) / tau
    return F.softplus(far - near).mean()


class Contrastive(LocalTerm):
    """That loss as a term of every step; what enters the head is taken as z."""

    def __init__(self, model: Backbone, before: Backbone, mu: float, tau: float) -> None:
        self.model, self.earlier, self.mu, self.tau = model, before, mu, tau
        self.shared = deepcopy(model)

    def loss(self, rows: Inputs, hops: Sequence[Hop]) -> Float[Tensor, ""]:
        r""":math:`\mu` times the contrastive loss, without dropout."""
        with torch.no_grad():
            shared, before = (into_head(one, rows, hops) for one in (self.shared, self.earlier))
        return self.mu * contrast(into_head(self.model, rows, hops), shared, before, self.tau)


def into_head(model: Backbone, rows: Inputs, hops: Sequence[Hop]) -> Float[Tensor, "batch d"]:
    """What a model's head gets for the nodes of a batch."""
    head = getattr(model, "head", None)
    if not isinstance(head, torch.nn.Linear):
        raise ConfigError(
            "moon compares what goes into the last layer, but this model has no linear head. "
            "Use model.head=relu and a built-in backbone."
        )
    seen: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    try:
        answers = model.on_hops(rows, hops)
    finally:
        hook.remove()
    return seen[0][: len(answers)]


@method(
    "moon",
    options={"mu": 1.0, "tau": 0.5},
    search={"method.mu": (1.0, 0.1, 5.0)},
    resumes=False,  # the model of the round before is not in the checkpoint
)
class MoonOwner(DataOwner):
    r"""MOON: a node should look to an owner's model as it looks to the shared one.

    Procedure F minimizes l(φ) plus ``method.mu`` times :func:`contrast`, with temperature
    ``method.tau``. In the first round there is no model of before, and no such term.
    """

    before: Backbone | None = None

    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        """Procedure F with the contrastive term."""
        own = self.config.method
        if self.before is not None:
            self.term = Contrastive(self.model, self.before, own["mu"], own["tau"])
        update = super().local_update_c(ask)
        self.before = deepcopy(self.model)
        return update
