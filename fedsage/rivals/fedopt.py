"""FedAdam and FedYogi (Reddi et al., 2021, https://arxiv.org/abs/2003.00295)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsage.methods import method
from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import Classifier
from fedsage.protocol.server import ByModels

OWN = {"eta": 1e-2, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}
TRIED = {"method.eta": (1e-2, 3e-2, 1e-1)}


class ServerStep(ByModels):
    """The server's side of training, with a step of its own instead of the mean."""

    def start(self, classifier: Classifier) -> None:
        """There are no moments yet."""
        tau = self.exchange.plan.config.method["tau"]
        self.phi = classifier.phi
        self.m = {name: torch.zeros_like(one) for name, one in self.phi.items()}
        self.v = {name: torch.full_like(one, tau**2) for name, one in self.phi.items()}

    def combine(self, all_phi: Sequence[Parameters], weights: Sequence[float]) -> Parameters:
        r"""The server's step on the owners' mean change.

        .. math::
            \Delta &= \textstyle\sum_i p_i \phi_i - \phi, \quad
            m \gets \beta_1 m + (1 - \beta_1) \Delta \\
            \phi &\gets \phi + \eta \frac{m}{\sqrt v + \tau}

        with v as the method says.
        """
        mean = self.rule(all_phi, weights)
        own = self.exchange.plan.config.method
        for name, before in self.phi.items():
            delta = mean[name] - before
            self.m[name] = own["beta_1"] * self.m[name] + (1 - own["beta_1"]) * delta
            self.v[name] = self.second(self.v[name], delta.square(), own["beta_2"])
        self.phi = {
            name: before + own["eta"] * self.m[name] / (self.v[name].sqrt() + own["tau"])
            for name, before in self.phi.items()
        }
        return self.phi

    @staticmethod
    def second(v: Tensor, square: Tensor, beta: float) -> Tensor:
        """The second moments after a change whose square is given."""
        raise NotImplementedError


@method("fedadam", options=OWN, search=TRIED)
class FedAdam(ServerStep):
    r"""FedAdam: the server takes a step of Adam on the mean of the owners' changes.

    :math:`v \gets \beta_2 v + (1 - \beta_2) \Delta^2`.
    """

    @staticmethod
    def second(v: Tensor, square: Tensor, beta: float) -> Tensor:
        """A running mean of squares."""
        return beta * v + (1 - beta) * square


@method("fedyogi", options=OWN, search=TRIED)
class FedYogi(ServerStep):
    r"""FedYogi: as FedAdam, with second moments that move by small steps.

    :math:`v \gets v - (1 - \beta_2) \Delta^2 \operatorname{sign}(v - \Delta^2)`.
    """

    @staticmethod
    def second(v: Tensor, square: Tensor, beta: float) -> Tensor:
        """Towards the squares, by a step of their size."""
        return v - (1 - beta) * square * (v - square).sign()
