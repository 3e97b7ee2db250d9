"""SageLayer and GraphSage (Eq. 1): the classifier F with its weights φ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array, issparse
from torch import Tensor, nn

from fedsage.graph.sampling import Hop
from fedsage.models.dropout import dropout_key, kept, kept_scale, threshold
from fedsage.models.parameters import Hidden, Inputs, Logits
from fedsage.models.sparse import sparse_product
from fedsage.shapes import NodeFeatures, NodeIds, SparseMatrix

Head: TypeAlias = Literal["relu", "l2", "direct"]
Norm: TypeAlias = Literal["none", "l2", "layer"]


@dataclass(frozen=True, slots=True)
class SageShape:
    """All that it takes to build a GraphSage whose weights fit.

    ``head`` says how h^K becomes logits: ``direct``, h^K are the logits (Eq. 1
    without an activation on the last layer); ``l2``, a linear layer on h^K / ‖h^K‖; ``relu``,
    a linear layer on ReLU(h^K). ``norm`` is applied to the output of every layer below.
    """

    num_features: int
    num_classes: int
    widths: tuple[int, ...]
    head: Head = "relu"
    norm: Norm = "none"


class SageLayer(nn.Module):
    """One layer of Eq. (1)."""

    def __init__(self, d_in: int, d_out: int, generator: np.random.Generator) -> None:
        super().__init__()
        weight = glorot(2 * d_in, d_out, generator)  # φ^k, for h_v || Agg
        self.phi_own = nn.Parameter(weight[:d_in].clone())
        self.phi_neighbors = nn.Parameter(weight[d_in:].clone())
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, h_own: Inputs, h_inputs: Inputs, mean: SparseMatrix) -> Hidden:
        r"""Eq. (1) for the targets of a hop, before the activation :math:`\sigma`.

        .. math::
            \phi^k \cdot \left( h_v^{k-1} \,||\,
            \mathrm{mean}\{h_u^{k-1}, \forall u \in \mathcal{N}(v)\} \right)

        Args:
            h_own: :math:`h_v^{k-1}` of the targets.
            h_inputs: :math:`h_u^{k-1}` of all nodes that ``mean`` picks from.
            mean: The mean aggregator as a matrix; its empty rows give zero.

        Note:
            A product with a concatenation is the sum of two products. The paper writes no
            bias; we add one, which starts at zero.
        """
        return self.combine(h_own, sparse_product(mean, self.messages(h_inputs)))

    def messages(self, h: Inputs) -> Hidden:
        """What neighbors hand on: sparse features weighted first, hidden layers as they are."""
        return sparse_product(h, self.phi_neighbors) if issparse(h) else h

    def combine(self, h_own: Inputs, aggregated: Hidden) -> Hidden:
        """Own and aggregated parts, weighted and added."""
        if issparse(h_own):
            return sparse_product(h_own, self.phi_own) + aggregated + self.bias
        return torch.addmm(self.bias, h_own, self.phi_own).addmm(aggregated, self.phi_neighbors)


class GraphSage(nn.Module):
    """F: K layers of Eq. (1) and a head. Initial weights come from ``generator``."""

    def __init__(self, shape: SageShape, generator: np.random.Generator) -> None:
        super().__init__()
        direct = shape.head == "direct"
        widths = (*shape.widths[:-1], shape.num_classes) if direct else shape.widths
        sizes = zip((shape.num_features, *widths[:-1]), widths, strict=True)
        self.shape = shape
        self.layers = nn.ModuleList(SageLayer(a, b, generator) for a, b in sizes)
        self.head = nn.Identity() if direct else nn.Linear(widths[-1], shape.num_classes)
        if isinstance(self.head, nn.Linear):
            weight = glorot(widths[-1], shape.num_classes, generator)
            self.head.weight = nn.Parameter(weight.T.contiguous())
            nn.init.zeros_(self.head.bias)

    def forward(
        self,
        x: NodeFeatures,
        hops: Sequence[Hop],
        dropout: float = 0.0,
        generator: np.random.Generator | None = None,
    ) -> Logits:
        """h^K, the logits of the last hop's targets.

        Args:
            x: Features of all nodes of the graph.
            hops: The neighborhoods, first layer first.
            dropout: Share of hidden values set to zero while training.
            generator: Where dropout draws from.
        """
        return self.from_rows(
            feature_rows(x, hops[0].inputs, self.device), hops, dropout, generator
        )

    def from_rows(
        self,
        h: Inputs,
        hops: Sequence[Hop],
        dropout: float = 0.0,
        generator: np.random.Generator | None = None,
    ) -> Logits:
        """The same from the features of the first hop's inputs alone."""
        key = None
        if generator is not None and threshold(dropout) > 0:
            key = dropout_key(generator)
        for k, (layer, hop) in enumerate(zip(self.layers, hops, strict=True)):
            h = self.activate(layer(h[: hop.mean.shape[0]], h, hop.mean), k)
            if key is not None and k < self.num_activated:
                h = drop(h, dropout, key + k)
        logits: Tensor = self.head(h)
        return logits

    def activate(self, h: Hidden, k: int) -> Hidden:
        r"""Layer k's :math:`\sigma` and norm; the last layer's depends on the head."""
        if k + 1 < len(self.layers):
            return normalize(torch.relu(h), self.shape.norm)
        if self.shape.head == "relu":
            return torch.relu(h)
        return F.normalize(h, dim=1) if self.shape.head == "l2" else h

    @property
    def sage_layers(self) -> list[SageLayer]:
        """The layers, typed."""
        return [layer for layer in self.layers if isinstance(layer, SageLayer)]

    @property
    def num_activated(self) -> int:
        """How many layers end in a ReLU: where dropout applies."""
        return len(self.layers) - (self.shape.head != "relu")

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device


def glorot(d_in: int, d_out: int, generator: np.random.Generator) -> Tensor:
    """Glorot's uniform initial weights, drawn from ``generator``."""
    bound = (6 / (d_in + d_out)) ** 0.5
    return torch.from_numpy(generator.uniform(-bound, bound, (d_in, d_out)).astype(np.float32))


def normalize(h: Hidden, norm: Norm) -> Hidden:
    """Each row to unit length, to zero mean and unit variance, or as it is."""
    if norm == "none":
        return h
    return F.normalize(h, dim=1) if norm == "l2" else F.layer_norm(h, h.shape[1:])


def drop(h: Hidden, share: float, key: int) -> Hidden:
    """Dropout: the values that :func:`kept` does not keep become zero."""
    mask = kept(h.numel(), share, key).reshape(tuple(h.shape))
    return h * torch.from_numpy(mask).to(h.device) * kept_scale(share)


def feature_rows(x: NodeFeatures, nodes: NodeIds | slice, device: torch.device) -> Inputs:
    """h^0 of some nodes: sparse features stay sparse and on the CPU."""
    picked = x[nodes]
    return picked if isinstance(picked, csr_array) else torch.tensor(picked, device=device)
