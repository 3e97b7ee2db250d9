"""SageLayer and GraphSage (Eq. 1): the paper's classifier F with its weights φ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array, issparse
from torch import Tensor, nn

from fedsage.config import ClassifierConfig
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import Hop, full_mean
from fedsage.models import compiled
from fedsage.models.backbone import backbone
from fedsage.models.layers import Layers, glorot
from fedsage.models.parameters import Hidden, Inputs, Logits
from fedsage.models.sparse import (
    add_compiled_means,
    add_compiled_product,
    product,
    sparse_product,
)
from fedsage.shapes import Array, NodeFeatures, NodeIds, SparseMatrix

ROWS = 8192  # of a large table that are computed at a time


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
            h_inputs: :math:`h_u^{k-1}` of all nodes that ``mean`` selects from.
            mean: The mean aggregator as a matrix; its empty rows give zero.

        Note:
            A product with a concatenation is the sum of two products. The paper writes no
            bias; we add one that starts at zero.
        """
        return self.combine(h_own, sparse_product(mean, self.messages(h_inputs)))

    def messages(self, h: Inputs) -> Hidden:
        """What neighbors pass on: sparse features weighted first, hidden layers as they are."""
        return sparse_product(h, self.phi_neighbors) if issparse(h) else h

    def combine(self, h_own: Inputs, aggregated: Hidden) -> Hidden:
        """Own and aggregated parts, weighted and added."""
        if issparse(h_own):
            return sparse_product(h_own, self.phi_own) + aggregated + self.bias
        return torch.addmm(self.bias, h_own, self.phi_own).addmm(aggregated, self.phi_neighbors)


@backbone("graphsage")
class GraphSage(Layers):
    """K layers of Eq. (1) and a head: the paper's classifier."""

    @property
    def reach(self) -> int | None:
        """A hop for each layer: means need no degrees of neighbors."""
        return len(self.shape.model.widths)

    def new_layer(
        self, k: int, d_in: int, d_out: int, generator: np.random.Generator
    ) -> nn.Module:
        """Eq. (1)."""
        return SageLayer(d_in, d_out, generator)

    def on_hops(
        self, rows: Inputs, hops: Sequence[Hop], generator: np.random.Generator | None = None
    ) -> Logits:
        """h^K, the logits of the last hop's targets: each layer on its own hop."""
        h, key = rows, self.dropout_key(generator)
        for k, (layer, hop) in enumerate(zip(self.layers, hops, strict=True)):
            h = self.activate(layer(h[: hop.mean.shape[0]], h, hop.mean), k, key)
        logits: Tensor = self.head(h)
        return logits

    def on_graph(self, graph: Graph, nodes: NodeIds | None = None) -> Logits:
        """By compiled code if there is any, else by torch; they differ by rounding."""
        if self.chosen_kernel == "torch" or graph.weights is not None:
            return self.torch_logits(graph, nodes)
        asked = np.arange(graph.num_nodes) if nodes is None else nodes
        return compiled.logits(self.weights, self.shape.model.head, graph, asked)

    @torch.no_grad()
    def torch_logits(self, graph: Graph, nodes: NodeIds | None = None) -> Logits:
        """The logits of ``nodes``, or of every node, from all neighbors: layer by layer.

        Rows are weighted before they are averaged: then each link moves only as many numbers as
        the layer outputs. The last layer is only for ``nodes``. At most two tables as long as
        the graph exist at a time; fresh memory costs more than the sums that go into it.
        """
        h: Inputs | NodeFeatures = graph.x
        for k, layer in enumerate(self.sage_layers):
            targets = nodes if k + 1 == len(self.layers) else None
            messages = zeros(graph.num_nodes, layer.phi_neighbors)
            add_weighted(messages, h, layer.phi_neighbors)
            if targets is not None:
                h = h[targets.copy()]  # torch takes no read-only array
            near = zeros(h.shape[0], messages)
            add_neighbor_means(near, graph, targets, messages)
            add_weighted(near, h, layer.phi_own)
            for part in slices(len(near)):
                near[part] = self.activate(near[part].add_(layer.bias), k)
            h = near
        logits: Logits = self.head(h)
        return logits

    def on_mended(
        self,
        rows: Inputs,
        hops: Sequence[Hop],
        generated: Float[Tensor, "generated d_x"],
        of: Int[Array, " generated"],
    ) -> Logits:
        """h^K of the batch on the mended graph, from sampled real and all generated neighbors.

        Note:
            Real neighbors keep the weight of their full number: with m real and n generated
            ones the aggregate is (m · mean of the drawn + sum of the generated) / (m + n). A
            generated node has one neighbor, its own v.
        """
        batch = hops[-1].mean.shape[0]
        degrees = hops[0].degrees[:batch]
        total = np.maximum(degrees + np.bincount(of, minlength=batch), 1).astype(np.float32)
        weight = csr_array(
            (1 / total[of], (of, np.arange(len(of)))), shape=(batch, len(of)), dtype=np.float32
        )
        real_share = torch.from_numpy(degrees.astype(np.float32) / total)[:, None]
        real_share, parent = real_share.to(self.device), torch.from_numpy(of).to(self.device)
        h, h_generated = rows, generated
        for k, (layer, hop) in enumerate(zip(self.sage_layers, hops, strict=True)):
            near = product(h, layer.phi_neighbors)
            near_generated = h_generated @ layer.phi_neighbors
            aggregated = sparse_product(hop.mean, near)
            mended = aggregated[:batch] * real_share + sparse_product(weight, near_generated)
            aggregated = torch.cat([mended, aggregated[batch:]])
            own = product(h[: hop.mean.shape[0]], layer.phi_own)
            h_generated = self.activate(
                h_generated @ layer.phi_own + near[:batch][parent] + layer.bias, k
            )
            h = self.activate(own + aggregated + layer.bias, k)
        logits: Logits = self.head(h)
        return logits

    def uncompiled(self) -> str | None:
        """What compiled code does not support: GPUs, other than two layers, norms; or None."""
        model = self.shape.model
        if self.device.type != "cpu":
            return f"device '{self.device}'"
        if len(model.widths) != 2:
            return f"{len(model.widths)} layers"
        return None if model.norm == "none" else f"norm '{model.norm}'"

    def compiled_epoch(
        self,
        optimizer: torch.optim.Optimizer,
        graph: Graph,
        order: NodeIds,
        classifier: ClassifierConfig,
        generator: np.random.Generator,
    ) -> float:
        """``torch_epoch`` by compiled code; changes weights and moments in place."""
        given = optimizer, graph, order, classifier, generator
        return compiled.epoch(self.weights, self.shape.model, *given)

    @property
    def sage_layers(self) -> list[SageLayer]:
        """The layers, typed."""
        return [layer for layer in self.layers if isinstance(layer, SageLayer)]

    @property
    def weights(self) -> list[Tensor]:
        """All weights, in the order that compiled code expects."""
        layers = [(one.phi_own, one.phi_neighbors, one.bias) for one in self.sage_layers]
        return [*(weight for layer in layers for weight in layer), *self.head.parameters()]


def zeros(num_rows: int, like: Hidden) -> Hidden:
    """A zero table as wide as ``like``, on its device; on a CPU, memory is touched lazily."""
    return torch.from_numpy(np.zeros((num_rows, like.shape[1]), np.float32)).to(like.device)


def add_neighbor_means(
    out: Hidden, graph: Graph, nodes: NodeIds | None, messages: Hidden
) -> None:
    """``out +=`` the mean over the neighbors of ``nodes``, or of all nodes, of ``messages``."""
    if out.device.type == "cpu":
        add_compiled_means(out, graph, nodes, messages)
    else:
        mean = full_mean(graph)
        out += sparse_product(mean if nodes is None else mean[nodes], messages)


def add_weighted(out: Hidden, h: Inputs | NodeFeatures, weight: Hidden) -> None:
    """``out += h @ weight``; dense features go to the device a few rows at a time."""
    if isinstance(h, torch.Tensor):
        out.addmm_(h, weight)
    elif isinstance(h, np.ndarray):
        for part in slices(len(out)):
            out[part].addmm_(torch.tensor(h[part], device=out.device), weight)
    elif out.device.type == "cpu":
        add_compiled_product(out, h, weight)
    else:
        out += sparse_product(h, weight)


def slices(num_rows: int) -> Iterator[slice]:
    """All rows, a few at a time."""
    for start in range(0, num_rows, ROWS):
        yield slice(start, start + ROWS)
