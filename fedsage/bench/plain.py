"""The baseline of ``bench --suite step``: the same training step in plain PyTorch.

Dense features, one gather for every sampled node, no result reused: GraphSage written in the
shortest way.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsage.graph.graph import Graph


class PlainSage(nn.Module):
    """Two layers of Eq. (1), ReLU, a linear head; dense in, dense out."""

    def __init__(self, d_in: int, widths: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(2 * d_in, widths[0])
        self.second = nn.Linear(2 * widths[0], widths[1])
        self.head = nn.Linear(widths[1], num_classes)

    def forward(self, x: Tensor, batch: Tensor, one: Tensor, two: Tensor) -> Tensor:
        """Logits of ``batch`` from its neighbors ``one`` and their neighbors ``two``."""
        inner = torch.relu(self.first(torch.cat([x[batch], x[one].mean(1)], dim=1)))
        outer = torch.relu(self.first(torch.cat([x[one], x[two].mean(2)], dim=2)))
        h = torch.relu(self.second(torch.cat([inner, outer.mean(1)], dim=1)))
        logits: Tensor = self.head(h)
        return logits


def plain_step(
    graph: Graph, widths: tuple[int, ...], fanout: int, eta: float
) -> Callable[[Tensor], None]:
    """A function that takes one training step on a batch of nodes."""
    x = torch.tensor(graph.x.toarray() if hasattr(graph.x, "toarray") else graph.x)
    y = torch.tensor(graph.y)
    indptr, indices = torch.tensor(graph.indptr), torch.tensor(graph.indices).long()
    model = PlainSage(graph.num_features, widths, graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=eta)

    def neighbors(of: Tensor) -> Tensor:
        start, degree = indptr[of], indptr[of + 1] - indptr[of]
        draw = (torch.rand(*of.shape, fanout) * degree[..., None]).long()
        return indices[(start[..., None] + draw).clamp(max=len(indices) - 1)]

    def step(batch: Tensor) -> None:
        one = neighbors(batch)
        loss = F.cross_entropy(model(x, batch, one, neighbors(one)), y[batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
