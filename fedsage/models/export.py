"""A trained GraphSage as a plain module: with PyG's layers, or in plain torch for ONNX."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsage.config import ModelConfig
from fedsage.errors import ConfigError, optional
from fedsage.models.backbone import Backbone, OwnModule
from fedsage.models.graphsage import GraphSage, SageLayer
from fedsage.models.layers import normalize

OPSET = 18  # of ONNX: the first whose scatter adds up


class MeanLayer(nn.Module):
    """Eq. (1) on a list of links, in plain torch."""

    def __init__(self, layer: SageLayer) -> None:
        super().__init__()
        self.phi_own = nn.Parameter(layer.phi_own.detach().clone())
        self.phi_neighbors = nn.Parameter(layer.phi_neighbors.detach().clone())
        self.bias = nn.Parameter(layer.bias.detach().clone())

    def forward(self, h: Tensor, edge_index: Tensor) -> Tensor:
        """``edge_index`` has a neighbor above the node that hears it."""
        source, target = edge_index[0], edge_index[1]
        total = torch.zeros_like(h).index_add(0, target, h[source])
        ones = torch.ones_like(source, dtype=h.dtype)
        degree = torch.zeros_like(h[:, 0]).index_add(0, target, ones)
        mean = total / degree.clamp(min=1)[:, None]
        return h @ self.phi_own + mean @ self.phi_neighbors + self.bias


def pyg_layer(layer: SageLayer) -> nn.Module:
    """Eq. (1) as PyG's ``SAGEConv``, with the same weights."""
    pyg = optional("torch_geometric.nn", "to_pyg_module", "fedsage[data]")
    d_in, d_out = layer.phi_own.shape
    conv: Any = pyg.SAGEConv(d_in, d_out, aggr="mean")
    with torch.no_grad():
        conv.lin_l.weight.copy_(layer.phi_neighbors.T)
        conv.lin_l.bias.copy_(layer.bias)
        conv.lin_r.weight.copy_(layer.phi_own.T)
    made: nn.Module = conv
    return made


class Sage(nn.Module):
    """K layers of Eq. (1) and the head: ``forward(x, edge_index)`` gives logits.

    It has the weights of a trained model and no dropout. Every link must be listed in both
    directions, as ``Graph.to_pyg()`` does.
    """

    def __init__(self, model: GraphSage, layer: Callable[[SageLayer], nn.Module]) -> None:
        super().__init__()
        self.model: ModelConfig = model.shape.model
        self.layers = nn.ModuleList(layer(one) for one in model.sage_layers)
        self.head = deepcopy(model.head)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of every node, from all its neighbors."""
        h = x
        for k, layer in enumerate(self.layers):
            h = layer(h, edge_index)
            if k + 1 < len(self.layers):
                h = normalize(torch.relu(h), self.model.norm)
        if self.model.head != "direct":
            h = torch.relu(h) if self.model.head == "relu" else F.normalize(h, dim=1)
        logits: Tensor = self.head(h)
        return logits


def as_module(
    model: Backbone, layer: Callable[[SageLayer], nn.Module], wanted_by: str
) -> nn.Module:
    """A trained model as a module that knows nothing of fedsage's graphs."""
    if isinstance(model, OwnModule):
        return model.module.eval()
    if isinstance(model, GraphSage):
        return Sage(model, layer).eval()
    raise ConfigError(
        f"{wanted_by} is there for graphsage and for modules of your own, but this model is "
        f"'{model.shape.model.backbone}'. Its weights are in model.phi."
    )


def write_onnx(module: nn.Module, num_features: int, path: Path) -> None:
    """Write ``logits = module(x, edge_index)``, for any number of nodes and links."""
    for package in ("onnx", "onnxscript"):
        optional(package, "to_onnx", "fedsage[onnx]")
    x = torch.zeros(3, num_features)
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    nodes, links = torch.export.Dim("nodes"), torch.export.Dim("links")
    program = torch.onnx.export(
        module,
        (x, edge_index),
        input_names=["x", "edge_index"],
        output_names=["logits"],
        dynamic_shapes=({0: nodes}, {1: links}),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    program.save(str(path))
