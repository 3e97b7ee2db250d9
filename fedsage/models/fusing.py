"""The classifier of FedDEP (Zhang et al., SDM 2024, https://arxiv.org/abs/2401.04336)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from torch import Tensor, nn

from fedsage.models.backbone import backbone, dense
from fedsage.models.edges import Edges
from fedsage.models.layers import Layers, glorot
from fedsage.models.parameters import Hidden, Inputs, Logits
from fedsage.models.sparse import product, sparse_product


class FusedLayer(nn.Module):
    r"""One embedding-fused layer.

    .. math::
        \sigma\Big(W^k_o h_v + W^k_n \frac{1}{|N(v)|} \sum_{u \in N(v)} h_u
        + W^k_z \bar z_v + b^k\Big)

    where :math:`\bar z_v` stands for the neighbors of v that were generated.
    """

    def __init__(self, d_in: int, d_out: int, d_z: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.phi_own = nn.Parameter(glorot(d_in, d_out, generator))
        self.phi_neighbors = nn.Parameter(glorot(d_in, d_out, generator))
        self.phi_deep = nn.Parameter(glorot(d_z, d_out, generator))
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, h: Inputs, z: Float[Tensor, "rows d_z"], edges: Edges) -> Hidden:
        """The mean over neighbors that there are, and what was generated."""
        near = sparse_product(edges.adjacency, product(h, self.phi_neighbors))
        degrees = torch.from_numpy(np.maximum(edges.degrees, 1))[:, None].to(near.device)
        return product(h, self.phi_own) + near / degrees + z @ self.phi_deep + self.bias


@backbone("fusing")
class Fusing(Layers):
    """GraphSage whose every layer adds embeddings of generated neighbors: for feddep."""

    def new_layer(
        self, k: int, d_in: int, d_out: int, generator: np.random.Generator
    ) -> nn.Module:
        """A fused layer; embeddings are as wide as ``model.widths`` ends."""
        return FusedLayer(d_in, d_out, self.shape.model.widths[-1], generator)

    def on_edges(
        self, h: Inputs, edges: Edges, generator: np.random.Generator | None = None
    ) -> Logits:
        """Columns beyond the features are embeddings; if there are none, they are zero."""
        x, z = parted(h, self.shape.num_features, self.device)
        if not z.shape[1]:
            z = z.new_zeros(len(z), self.shape.model.widths[-1])
        return self.fused(x, z, edges, generator)

    def fused(
        self,
        h: Inputs,
        z: Float[Tensor, "rows d_z"],
        edges: Edges,
        generator: np.random.Generator | None = None,
    ) -> Logits:
        """The logits of all rows, with a gradient in ``z``."""
        key = self.dropout_key(generator)
        for k, layer in enumerate(self.layers):
            h = self.activate(layer(h, z, edges), k, key)
        logits: Tensor = self.head(h)
        return logits


def parted(
    h: Inputs, num_features: int, device: torch.device
) -> tuple[Inputs, Float[Tensor, "rows more"]]:
    """Features, and the columns after them."""
    if isinstance(h, csr_array):
        return h[:, :num_features].tocsr(), dense(h[:, num_features:].tocsr(), device)
    table = dense(h, device)
    return table[:, :num_features], table[:, num_features:]
