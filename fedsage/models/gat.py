"""GAT: every layer attends to some neighbors more than others (Veličković et al., 2018)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedsage.errors import ConfigError
from fedsage.models.backbone import Shape, backbone
from fedsage.models.edges import Edges
from fedsage.models.layers import Layers, glorot
from fedsage.models.parameters import Hidden, Inputs
from fedsage.models.sparse import product

SLOPE = 0.2  # of the leaky ReLU on scores, as in the paper


class GatLayer(nn.Module):
    """One layer: several heads side by side, each with its own attention."""

    def __init__(
        self, d_in: int, d_out: int, heads: int, generator: np.random.Generator
    ) -> None:
        super().__init__()
        self.heads, size = heads, d_out // heads
        self.weight = nn.Parameter(glorot(d_in, d_out, generator))
        self.to_hear = nn.Parameter(glorot(size, heads, generator).T.contiguous())
        self.to_be_heard = nn.Parameter(glorot(size, heads, generator).T.contiguous())
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, h: Inputs, edges: Edges) -> Hidden:
        r"""The mean of :math:`W h_u` over v and its neighbors, weighted by attention.

        .. math::
            a_{vu} \propto \exp(\mathrm{LeakyReLU}(b^T W h_v + c^T W h_u))

        Note:
            A neighbor that stands for several links (see ``Edges``) counts that many times.
        """
        values = product(h, self.weight)
        rows = torch.arange(len(values), device=values.device)
        u, v = edges.index(values.device)
        u, v = torch.cat([rows, u]), torch.cat([rows, v])  # every row attends to itself too
        links = torch.tensor(edges.adjacency.data, device=values.device)
        links = torch.cat([torch.ones_like(rows, dtype=links.dtype), links])
        order = torch.argsort(v, stable=True)
        u, v, links = u[order], v[order], links[order]
        starts = torch.searchsorted(v, rows)
        parts = values.view(len(values), self.heads, -1)
        hears, heard = (parts * self.to_hear).sum(dim=2), (parts * self.to_be_heard).sum(dim=2)
        scores = F.leaky_relu(hears[v] + heard[u], SLOPE)
        mixed = [
            F.embedding_bag(
                u,
                parts[:, k].contiguous(),
                starts,
                per_sample_weights=attention(scores[:, k], links, v, len(rows)),
                mode="sum",
            )
            for k in range(self.heads)
        ]
        return torch.cat(mixed, dim=1) + self.bias


def attention(
    scores: Float[Tensor, " E"], links: Float[Tensor, " E"], v: Int[Tensor, " E"], num_rows: int
) -> Float[Tensor, " E"]:
    """Softmax over the neighbors of each row, each counted as often as its links."""
    top = torch.full((num_rows,), -torch.inf, device=scores.device)
    top = top.scatter_reduce(0, v, scores.detach(), "amax")
    shares = links * torch.exp(scores - top[v])
    return shares / scores.new_zeros(num_rows).index_add(0, v, shares)[v]


@backbone("gat")
class GAT(Layers):
    """K layers of attention among neighbors, and a head."""

    def __init__(self, shape: Shape, generator: np.random.Generator) -> None:
        model = shape.model
        attentive = model.widths[:-1] if model.head == "direct" else model.widths
        if any(width % model.heads for width in attentive):
            raise ConfigError(
                f"model.widths {list(attentive)} cannot be divided among model.heads "
                f"{model.heads}. Use widths that are multiples of it."
            )
        super().__init__(shape, generator)

    def new_layer(
        self, k: int, d_in: int, d_out: int, generator: np.random.Generator
    ) -> nn.Module:
        """A layer of GAT; one that outputs logits has a single head, as in the paper."""
        model = self.shape.model
        logits = model.head == "direct" and k + 1 == len(model.widths)
        return GatLayer(d_in, d_out, 1 if logits else model.heads, generator)
