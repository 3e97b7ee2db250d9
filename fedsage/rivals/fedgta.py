"""FedGTA (Li et al., VLDB 2023, https://arxiv.org/abs/2401.11755)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedsage.graph.graph import Graph
from fedsage.methods import method
from fedsage.models.edges import edges_of_graph, smoothed
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.personal import OwnUpdate, Personal, PersonalOwner

EPS = 1e-8


def propagated(
    soft: Float[Tensor, "V d_y"], graph: Graph, steps: int, alpha: float
) -> list[Float[Tensor, "V d_y"]]:
    r"""Soft labels after each step of label propagation, without weights to learn.

    .. math::
        \hat Y^k = \alpha \hat Y^0 + (1 - \alpha) \tilde D^{-1/2} \tilde A \tilde D^{-1/2}
        \hat Y^{k-1}
    """
    edges, found = edges_of_graph(graph), [soft]
    for _ in range(steps):
        found.append(alpha * soft + (1 - alpha) * smoothed(found[-1], edges))
    return found[1:]


def confidence(soft: Float[Tensor, "V d_y"], degrees: Float[Tensor, " V"]) -> float:
    r"""Local smoothing confidence: how sure the propagated labels are, hubs counting more.

    .. math::
        H = \sum_v \tilde d_v \sum_j \left( e^{-1} + \hat Y_{vj} \log \hat Y_{vj} \right)
    """
    sure = (math.exp(-1) + soft * (soft + EPS).log()).sum(dim=1)
    return float((degrees * sure).sum())


def mixed_moments(
    steps: list[Float[Tensor, "V d_y"]], orders: int
) -> Float[Tensor, " moments"]:
    """The mean and the central moments up to an order, of every class and step."""
    found = []
    for soft in steps:
        mean = soft.mean(dim=0)
        central = [((soft - mean) ** order).mean(dim=0) for order in range(2, orders + 1)]
        found += [mean, *central]
    return torch.cat(found)


class GtaOwner(PersonalOwner):
    """An owner that tells how its labels look when they are propagated over its links."""

    def about(self) -> Float[Tensor, " about"]:
        """The confidence first, then the moments."""
        own, everyone = self.config.method, np.arange(self.graph.num_nodes)
        soft = self.answers(self.graph, everyone).exp()
        steps = propagated(soft, self.graph, int(own["steps"]), own["alpha"])
        degrees = torch.from_numpy(self.graph.degrees.astype(np.float32)) + 1
        sure = torch.tensor([confidence(steps[-1], degrees)])
        return torch.cat([sure, mixed_moments(steps, int(own["orders"]))])


@method(
    "fedgta",
    owner=GtaOwner,
    options={"steps": 5, "alpha": 0.5, "orders": 3, "similarity": 0.5},
    search={"method.similarity": (0.5, 0.8, 0.95)},
)
class FedGTA(Personal):
    r"""FedGTA: owners whose propagated labels look alike share their models.

    For every owner i the server averages the φ_j with
    :math:`\cos(M_i, M_j) \ge` ``method.similarity``, weighted by their confidence
    :math:`H_j`. M are the mixed moments of label propagation.

    Note:
        For the level ``open``: the server sees every owner's model and moments.
    """

    def shares(
        self, updates: Mapping[OwnerId, OwnUpdate]
    ) -> dict[OwnerId, dict[OwnerId, float]]:
        """The confidence of those that look alike."""
        least = self.exchange.plan.config.method["similarity"]
        return {
            i: {
                j: max(float(other.about[0]), EPS)
                if i == j or alike(one, other) >= least
                else 0.0
                for j, other in updates.items()
            }
            for i, one in updates.items()
        }


def alike(one: OwnUpdate, other: OwnUpdate) -> float:
    """The cosine of two owners' moments."""
    return float(torch.cosine_similarity(one.about[1:], other.about[1:], dim=0))
