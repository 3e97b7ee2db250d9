"""GCN: every layer mixes neighbors by their degrees (Kipf and Welling, 2017)."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fedsage.models.backbone import backbone
from fedsage.models.edges import Edges, smoothed
from fedsage.models.layers import Layers, glorot
from fedsage.models.parameters import Hidden, Inputs
from fedsage.models.sparse import product


class GcnLayer(nn.Module):
    r"""One layer, :math:`\tilde D^{-1/2} \tilde A \tilde D^{-1/2} h W`, and a bias."""

    def __init__(self, d_in: int, d_out: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(glorot(d_in, d_out, generator))
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, h: Inputs, edges: Edges) -> Hidden:
        """Apply the weights, then mix neighbors.

        Note:
            On sampled neighborhoods the sum over neighbors is estimated from those drawn; all
            degrees are those of the graph.
        """
        return smoothed(product(h, self.weight), edges) + self.bias


@backbone("gcn")
class GCN(Layers):
    """K layers that mix neighbors by their degrees, and a head."""

    def new_layer(
        self, k: int, d_in: int, d_out: int, generator: np.random.Generator
    ) -> nn.Module:
        """A layer of GCN."""
        return GcnLayer(d_in, d_out, generator)
