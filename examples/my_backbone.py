"""A classifier of your own: a small graph attention network in plain PyTorch.

Run it beside GraphSage, or name the file on the command line:

    fedsage run --dataset synthetic --set model.backbone=examples/my_backbone.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import fedsage as fs


class Attention(nn.Module):
    """One head of attention among neighbors; every node hears itself as well."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.values = nn.Linear(d_in, d_out, bias=False)
        self.score = nn.Linear(2 * d_out, 1, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """``edge_index`` has a neighbor above the node that hears it."""
        h = self.values(x)
        own = torch.arange(len(x), device=x.device).expand(2, -1)
        u, v = torch.cat([edge_index, own], dim=1)
        score = torch.tanh(self.score(torch.cat([h[u], h[v]], dim=1))).exp()
        total = torch.zeros(len(x), 1, device=x.device).index_add(0, v, score)
        return torch.zeros_like(h).index_add(0, v, score / total[v] * h[u])


@fs.backbone("my-gat")
class MyGAT(nn.Module):
    """Two layers of attention; the dropout is torch's own."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.first, self.second = Attention(num_features, 32), Attention(32, 32)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(32, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of every node."""
        h = self.drop(torch.relu(self.first(x, edge_index)))
        return self.head(torch.relu(self.second(h, edge_index)))


if __name__ == "__main__":
    graph = fs.load("synthetic")
    owners = fs.partition(graph, num_owners=3, how="louvain", seed=0)
    for model in ("graphsage", MyGAT):
        result = fs.run(owners, "fedsage+", model=model, evaluate_on=graph)
        print(result.record.backbone, result.accuracy)
