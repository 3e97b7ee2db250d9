"""An MLP whose predictions are propagated along links: APPNP (Gasteiger et al., 2019).

Training uses only features and no links; links are used when the model is queried.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn

from fedsage.models.backbone import backbone
from fedsage.models.edges import Edges, smoothed
from fedsage.models.layers import Layers, glorot
from fedsage.models.parameters import Hidden, Inputs, Logits
from fedsage.models.sparse import product


class DenseLayer(nn.Module):
    """A linear layer on each row's own features."""

    def __init__(self, d_in: int, d_out: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(glorot(d_in, d_out, generator))
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, h: Inputs, edges: Edges) -> Hidden:
        """Apply the layer; links are ignored."""
        return product(h, self.weight) + self.bias


def propagated(own: Logits, edges: Edges, alpha: float, steps: int) -> Logits:
    """Every row's output mixed with those around it, by personalized PageRank."""
    rim = torch.from_numpy(edges.cut_off)[:, None].to(own.device)
    z = own
    for _ in range(steps):
        z = torch.where(rim, own, (1 - alpha) * smoothed(z, edges) + alpha * own)
    return z


@backbone("propagate")
class Propagate(Layers):
    """An MLP on features alone, whose predictions are propagated along links in queries."""

    trains_on_links: ClassVar[bool] = False

    @property
    def reach(self) -> int | None:
        """A hop for each step, and one more for degrees."""
        return self.shape.model.steps + 1

    def new_layer(
        self, k: int, d_in: int, d_out: int, generator: np.random.Generator
    ) -> nn.Module:
        """A layer of the MLP."""
        return DenseLayer(d_in, d_out, generator)

    def on_edges(
        self, h: Inputs, edges: Edges, generator: np.random.Generator | None = None
    ) -> Logits:
        r"""The MLP's output in training; otherwise that of all rows, mixed by PageRank.

        .. math::
            z^0 = \mathrm{MLP}(x), \quad
            z^{k+1} = (1 - \alpha) \tilde D^{-1/2} \tilde A \tilde D^{-1/2} z^k + \alpha z^0

        with ``model.teleport`` for :math:`\alpha` and ``model.steps`` for the last k.

        Note:
            In a sampled neighborhood, no neighbors are drawn for the rows at its edge: these
            keep their own output.
        """
        own = super().on_edges(h, edges, generator)
        if generator is not None:
            return own
        return propagated(own, edges, self.shape.model.teleport, self.shape.model.steps)
