"""SCAFFOLD (Karimireddy et al., 2020, https://arxiv.org/abs/1910.06378)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedsage.methods import method
from fedsage.models.parameters import Parameters
from fedsage.models.train import LocalTerm
from fedsage.protocol.agreement import Ready
from fedsage.protocol.messages import (
    Ask,
    Classifier,
    ClassifierUpdate,
    Hits,
    form_of,
    message,
)
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Summed, procedure
from fedsage.protocol.server import ByModels


@message
class Control:
    """S → every D_i: the control variate c; D_i → S: how far c_i has moved, to be summed."""

    of: Parameters


class Corrected(LocalTerm):
    r"""Takes steps along :math:`g - c_i + c`, and remembers the mean of g."""

    def __init__(self, owner: ScaffoldOwner) -> None:
        self.owner, self.steps = owner, 0
        self.total = zeros(dict(owner.model.named_parameters()))

    def gradients(self) -> None:
        """Correct the gradient of every weight."""
        self.steps += 1
        for name, weight in self.owner.model.named_parameters():
            assert isinstance(weight.grad, Tensor)
            self.total[name] += weight.grad
            weight.grad.add_(self.owner.shared[name] - self.owner.control[name])

    def mean(self) -> Parameters:
        """The mean gradient over all steps, without corrections."""
        return {name: one / max(self.steps, 1) for name, one in self.total.items()}


class ScaffoldOwner(DataOwner):
    r"""An owner that corrects its gradients for how it differs from all owners.

    Note:
        The new :math:`c_i` is the mean of the gradients of the round. With plain gradient steps
        that is the paper's second option, :math:`c_i - c + (\phi - \phi_i) / (K \eta)`; unlike
        that, it is a gradient with any optimizer.
    """

    control: Parameters = {}  # noqa: RUF012  (c_i; replaced, never changed)
    shared: Parameters = {}  # noqa: RUF012  (c)
    moved: Parameters = {}  # noqa: RUF012  (by how much c_i moved in the last round)

    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        """Procedure F along corrected gradients."""
        weights = dict(self.model.named_parameters())
        self.control = self.control or zeros(weights)
        self.shared = self.shared or zeros(weights)
        self.term = Corrected(self)
        update = super().local_update_c(ask)
        found = self.term.mean()
        self.moved = {name: one - self.control[name] for name, one in found.items()}
        self.control = found
        return update


def zeros(like: Mapping[str, Tensor]) -> Parameters:
    """Zero for every weight."""
    return {name: torch.zeros_like(one, requires_grad=False) for name, one in like.items()}


@procedure(
    phase="training",
    uses=Summed,
    after=("local_update_c",),
    shapes=lambda plan: {"of": form_of(plan.phi.phi)},
    leaves="In each of {config.classifier.rounds_c} rounds: how far the mean gradient of your "
    "training nodes has moved.",
)
def move_of_control(owner: DataOwner, ask: Ask) -> Control:
    """How far c_i moved in the last round."""
    assert isinstance(owner, ScaffoldOwner)
    return Control({name: one.cpu() for name, one in owner.moved.items()})


@procedure(phase="training")
def receive_control(owner: DataOwner, control: Control) -> Ready:
    """Take over c."""
    assert isinstance(owner, ScaffoldOwner)
    owner.shared = {name: one.to(owner.model.device) for name, one in control.of.items()}
    return Ready()


@method("scaffold", owner=ScaffoldOwner)
class Scaffold(ByModels):
    r"""SCAFFOLD: gradients are corrected for how an owner differs from all.

    Owners step along :math:`g - c_i + c`. After a round the server sets
    :math:`c \gets c + \frac{1}{M} \sum_i (c_i^{new} - c_i)`, and φ to the mean of all φ_i.
    """

    control: Parameters | None = None

    def round(self, t: int, keep: bool) -> tuple[Classifier, float, Hits]:
        """Procedure B, then the control variates."""
        found = super().round(t, keep)
        moved = self.exchange.sum(move_of_control, Ask(t)).of
        before = self.control or zeros(moved)
        count = len(self.exchange.owners)
        self.control = {name: before[name] + one / count for name, one in moved.items()}
        self.exchange.all(receive_control, Control(self.control))
        return found
