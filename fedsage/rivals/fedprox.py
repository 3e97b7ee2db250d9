"""FedProx (Li et al., 2020, https://arxiv.org/abs/1812.06127)."""

from __future__ import annotations

from torch import Tensor, nn

from fedsage.methods import method
from fedsage.models.train import LocalTerm
from fedsage.protocol.messages import Ask, ClassifierUpdate
from fedsage.protocol.owner import DataOwner


class Proximal(LocalTerm):
    r"""The pull :math:`\frac{\mu}{2} \lVert \phi - \phi_S \rVert^2`, as a gradient."""

    def __init__(self, model: nn.Module, mu: float) -> None:
        self.weights, self.mu = list(model.parameters()), mu
        self.shared = [weight.detach().clone() for weight in self.weights]

    def gradients(self) -> None:
        r"""Add :math:`\mu (\phi - \phi_S)`."""
        for weight, shared in zip(self.weights, self.shared, strict=True):
            assert isinstance(weight.grad, Tensor)
            weight.grad.add_(weight.detach() - shared, alpha=self.mu)


@method(
    "fedprox", options={"mu": 1e-2}, search={"method.mu": (1e-2, 1e-3, 1e-1)}
)  # fmt: skip
class ProxOwner(DataOwner):
    r"""FedProx: owners stay near the classifier that they were sent.

    Procedure F minimizes, with the φ_S that was just received and :math:`\mu` =
    ``method.mu``,

    .. math::
        l(\phi) + \frac{\mu}{2} \lVert \phi - \phi_S \rVert^2
    """

    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        """Procedure F with the proximal term."""
        self.term = Proximal(self.model, self.config.method["mu"])
        return super().local_update_c(ask)
