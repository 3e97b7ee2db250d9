"""What every classifier F must offer, how one is built by its name, and how it is queried.

One of our models is one file: a subclass of ``Backbone`` with ``on_edges`` and a name. A user's
is any ``torch.nn.Module`` with ``forward(x, edge_index)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from torch import Tensor, nn

from fedsage.config import ClassifierConfig, Inference, Kernel, ModelConfig, RunConfig
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import Hop, sample_hops
from fedsage.models.edges import Edges, edges_of_graph, edges_of_hops, with_generated
from fedsage.models.losses import ClassWeights, classification_loss
from fedsage.models.parameters import Inputs, Logits, Stacked
from fedsage.registry import Registry, is_file
from fedsage.rng import torch_stream
from fedsage.shapes import Array, NodeFeatures, NodeIds

BACKBONES: Registry[type[nn.Module]] = Registry("backbone", "backbone", "fedsage.models")
backbone = BACKBONES  # the decorator: @backbone("gat")
RUN = RunConfig()
BATCH = 1024  # nodes whose sampled neighborhoods are computed at a time


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything needed to build a classifier whose weights fit."""

    num_features: int
    num_classes: int
    model: ModelConfig


class Backbone(nn.Module):
    """F with its weights φ, whose initial values a subclass draws from ``generator``.

    ``kernel`` says whether to use compiled code: if there is any (``auto``), always
    (``fused``: an error if there is none) or never (``torch``).
    """

    trains_on_links: ClassVar[bool] = True

    def __init__(self, shape: Shape, generator: np.random.Generator) -> None:
        super().__init__()
        self.shape = shape
        self.kernel: Kernel = RUN.kernel

    def on_edges(
        self, h: Inputs, edges: Edges, generator: np.random.Generator | None = None
    ) -> Logits:
        """The logits of all rows, from their features and the links among them.

        The one method that a subclass must have; the others are built on it. With a
        ``generator`` it is training, and dropout draws from it.
        """
        raise NotImplementedError

    def on_hops(
        self, rows: Inputs, hops: Sequence[Hop], generator: np.random.Generator | None = None
    ) -> Logits:
        """The logits of a batch on its sampled neighborhoods, with a gradient.

        Args:
            rows: Features of the first hop's inputs; the batch comes first.
            hops: The neighborhoods, first layer first; none to use no links.
            generator: Given in training; dropout draws from it.
        """
        batch = hops[-1].mean.shape[0] if hops else rows.shape[0]
        return self.on_edges(rows, edges_of_hops(hops, rows.shape[0]), generator)[:batch]

    def batch_loss(
        self,
        rows: Inputs,
        hops: Sequence[Hop],
        y: Int[Tensor, " batch"],
        weights: ClassWeights | None,
        generator: np.random.Generator,
    ) -> Float[Tensor, ""]:
        """What training makes smaller: Eq. (2) of a batch."""
        return classification_loss(self.on_hops(rows, hops, generator), y, weights)

    @torch.no_grad()
    def on_graph(self, graph: Graph, nodes: NodeIds | None = None) -> Logits:
        """The logits of ``nodes``, or of every node, from all neighbors; without a gradient."""
        rows = feature_rows(graph.x, slice(None), self.device)
        logits = self.on_edges(rows, edges_of_graph(graph))
        return logits if nodes is None else logits[torch.tensor(nodes, device=logits.device)]

    def on_mended(
        self,
        rows: Inputs,
        hops: Sequence[Hop],
        generated: Float[Tensor, "generated d_x"],
        of: Int[Array, " generated"],
    ) -> Logits:
        """The logits of a batch whose nodes have just been given generated neighbors.

        With a gradient in the generated features: this is how the classifier teaches the
        generator (Eq. 5).

        Args:
            rows: Features of the first hop's inputs.
            hops: Real neighborhoods of the batch, first layer first.
            generated: Features of the generated neighbors.
            of: The node of the batch that each of them belongs to.
        """
        edges = with_generated(edges_of_hops(hops, rows.shape[0]), of)
        return self.on_edges(Stacked(rows, generated), edges)[: hops[-1].mean.shape[0]]

    @property
    def reach(self) -> int | None:
        """How many hops from a node its answer depends on, degrees included; None if unknown.

        A query for a few nodes of a large graph needs no more than that.
        """
        return None

    def apart(
        self, generator: np.random.Generator
    ) -> Sequence[tuple[Backbone, np.random.Generator]]:
        """The parts that can be trained one after the other, with what they draw from."""
        return [(self, generator)]

    def uncompiled(self) -> str | None:
        """What there is no compiled code for, or None."""
        return f"backbone '{self.shape.model.backbone}'"

    def compiled_epoch(
        self,
        optimizer: torch.optim.Optimizer,
        graph: Graph,
        order: NodeIds,
        classifier: ClassifierConfig,
        generator: np.random.Generator,
    ) -> float:
        """``torch_epoch`` by compiled code, if there is any; on nodes in that order."""
        raise NotImplementedError

    @property
    def chosen_kernel(self) -> Literal["fused", "torch"]:
        """The kernel for training and queries; refuses ``fused`` without compiled code."""
        reason = None if self.kernel == "torch" else self.uncompiled()
        if self.kernel == "fused" and reason:
            raise ConfigError(
                f"run.kernel is 'fused', but that kernel does not support {reason}. "
                "Use run.kernel=auto or run.kernel=torch."
            )
        return "torch" if self.kernel == "torch" or reason else "fused"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device


class OwnModule(Backbone):
    """A user's module as a classifier; in training its own dropout draws from our stream."""

    def __init__(
        self, shape: Shape, generator: np.random.Generator, kind: type[nn.Module]
    ) -> None:
        super().__init__(shape, generator)
        with torch_stream(generator):
            self.module = kind(shape.num_features, shape.num_classes)
        self.name = kind.__name__
        if held := [name for name, _ in self.module.named_buffers()]:
            raise ConfigError(
                f"{self.name} keeps statistics besides its weights (buffer '{held[0]}'), like "
                "BatchNorm, and owners do not share those. Use a layer without them, e.g. "
                "LayerNorm."
            )
        if not list(self.module.parameters()):
            raise ConfigError(
                f"{self.name} has no weights, so there is nothing to train. Give it some "
                "layers."
            )

    def on_edges(
        self, h: Inputs, edges: Edges, generator: np.random.Generator | None = None
    ) -> Logits:
        """``forward`` on dense features."""
        x, index = dense(h, self.device), edges.index(self.device)
        self.module.train(generator is not None)
        with torch_stream(generator):
            logits = self.module(x, index)
        wanted = (x.shape[0], self.shape.num_classes)
        seen = tuple(getattr(logits, "shape", ()))
        if seen != wanted:
            raise ConfigError(
                f"{self.name}.forward returned {type(logits).__name__} of shape {seen} for "
                f"{wanted[0]} nodes and {wanted[1]} classes. Have it return logits of shape "
                f"{wanted}."
            )
        return logits


def new_model(
    shape: Shape,
    generator: np.random.Generator,
    device: str = RUN.device,
    kernel: Kernel = RUN.kernel,
) -> Backbone:
    """The classifier that ``shape`` names, with initial weights from ``generator``."""
    kind = BACKBONES.find(shape.model.backbone).thing
    model: Backbone
    if issubclass(kind, Backbone):
        model = kind(shape, generator)
    else:
        model = OwnModule(shape, generator, kind)
    model.kernel = kernel
    return model.to(device)


def named(model: str | type[nn.Module]) -> str:
    """The value of ``model.backbone``; a class is registered under its own name."""
    if isinstance(model, str):
        return model
    return BACKBONES.named(model)


def is_ours(name: str) -> bool:
    """Whether a name means a backbone of this package; runs no code of a user's."""
    entry = None if is_file(name) else BACKBONES.ours().get(name)
    return entry is not None and entry.module.startswith(f"{BACKBONES.home}.")


def feature_rows(x: NodeFeatures, nodes: NodeIds | slice, device: torch.device) -> Inputs:
    """h^0 of some nodes: sparse features stay sparse and on the CPU."""
    picked = x[nodes]
    return picked if isinstance(picked, csr_array) else torch.tensor(picked, device=device)


def dense(h: Inputs, device: torch.device) -> Float[Tensor, "rows d_x"]:
    """The same rows as one dense table."""
    if isinstance(h, Stacked):
        return torch.cat([dense(h.real, device), h.generated])
    return torch.from_numpy(h.toarray()).to(device) if isinstance(h, csr_array) else h


def query(
    model: Backbone,
    graph: Graph,
    nodes: NodeIds,
    inference: Inference,
    fanouts: Sequence[int],
    generator: np.random.Generator,
) -> Logits:
    """Logits of ``nodes`` on ``graph``."""
    if inference == "full":
        return model.on_graph(graph, nodes)
    return infer_sampled(model, graph, nodes, fanouts, generator)


def query_each(
    model: Backbone,
    graph: Graph,
    parts: Sequence[NodeIds],
    inference: Inference,
    fanouts: Sequence[int],
    generators: Sequence[np.random.Generator],
) -> list[Logits]:
    """Logits of several sets of nodes; full neighborhoods are processed once for all.

    Sampled ones are drawn for each set from its own stream.
    """
    if inference == "full":
        logits = model.on_graph(graph, np.concatenate(parts))
        return list(torch.split(logits, [len(nodes) for nodes in parts]))
    return [
        infer_sampled(model, graph, nodes, fanouts, generator)
        for nodes, generator in zip(parts, generators, strict=True)
    ]


@torch.no_grad()
def infer_sampled(
    model: Backbone,
    graph: Graph,
    nodes: NodeIds,
    fanouts: Sequence[int],
    generator: np.random.Generator,
) -> Logits:
    """Logits of ``nodes`` from sampled neighbors, as in training."""
    parts = []
    for start in range(0, len(nodes), BATCH):
        hops = sample_hops(graph, nodes[start : start + BATCH], fanouts, generator)
        rows = feature_rows(graph.x, hops[0].inputs, model.device)
        parts.append(model.on_hops(rows, hops))
    return torch.cat(parts) if parts else torch.empty(0, model.shape.num_classes)
