"""Links among some rows of features: of a whole graph, a batch, or a mended batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from torch import Tensor

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import Hop, row_shares
from fedsage.models.parameters import Hidden
from fedsage.models.sparse import sparse_product
from fedsage.shapes import Array, SparseMatrix


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Links between rows: row v of ``adjacency`` has the neighbors of v among the rows.

    ``adjacency[v, u]`` says how many links of v the one to u stands for: one if all of them
    are present and weigh the same, more if u was drawn among many or weighs more. ``degrees``
    counts all links.
    """

    adjacency: SparseMatrix
    degrees: Float[Array, " rows"]

    def index(self, device: torch.device) -> Int[Tensor, "2 E"]:
        """Pairs of a neighbor and the row that it is a neighbor of."""
        rows = np.repeat(np.arange(len(self.degrees)), np.diff(self.adjacency.indptr))
        pairs = np.stack([self.adjacency.indices.astype(np.int64), rows])
        return torch.from_numpy(pairs).to(device)

    @property
    def cut_off(self) -> Bool[Array, " rows"]:
        """Rows at the edge of a batch: they have neighbors, but none of them was drawn."""
        return (np.diff(self.adjacency.indptr) == 0) & (self.degrees > 0)


def edges_of_graph(graph: Graph) -> Edges:
    """All links; a heavy one stands for several, a light one for a part of one."""
    times = np.ones(len(graph.indices), np.float32)
    if graph.weights is not None:
        times = row_shares(graph) * np.repeat(graph.degrees, graph.degrees).astype(np.float32)
    size = (graph.num_nodes, graph.num_nodes)
    adjacency = csr_array((times, graph.indices, graph.indptr), shape=size)
    return Edges(adjacency, graph.degrees.astype(np.float32))


def edges_of_hops(hops: Sequence[Hop], num_rows: int) -> Edges:
    """The union of all draws of a batch, among the inputs of its first hop.

    A node that was drawn for in several hops has all of its draws as neighbors. Without hops
    there are no links.
    """
    drawn = [hop.mean.tocoo() for hop in hops]
    rows, columns = (
        np.concatenate([np.empty(0, int), *(getattr(one, axis) for one in drawn)])
        for axis in ("row", "col")
    )
    shares = np.concatenate([np.empty(0, np.float32), *(one.data for one in drawn)])
    degrees = (hops[0].degrees if hops else np.zeros(num_rows)).astype(np.float32)
    times = np.bincount(rows, weights=shares, minlength=num_rows)  # draws for each row
    shares = shares * (degrees / np.maximum(times, 1)).astype(np.float32)[rows]
    return Edges(csr_array((shares, (rows, columns)), shape=(num_rows,) * 2), degrees)


def with_generated(edges: Edges, of: Int[Array, " generated"]) -> Edges:
    """The same with more rows, each linked both ways to the row it belongs to."""
    before, more = len(edges.degrees), len(of)
    new = before + np.arange(more)
    held = edges.adjacency.tocoo()
    values = np.concatenate([held.data, np.ones(2 * more, np.float32)])
    rows = np.concatenate([held.row, of, new])
    columns = np.concatenate([held.col, new, of])
    added = np.bincount(of, minlength=before).astype(np.float32)
    degrees = np.concatenate([edges.degrees + added, np.ones(more, np.float32)])
    return Edges(csr_array((values, (rows, columns)), shape=(before + more,) * 2), degrees)


def smoothed(h: Hidden, edges: Edges) -> Hidden:
    r"""Each row with its neighbors' rows mixed in.

    :math:`\tilde D^{-1/2} \tilde A \tilde D^{-1/2} h`, where :math:`\tilde A` has a link from
    every row to itself, and :math:`\tilde D` its degrees
    (Kipf and Welling, 2017, https://arxiv.org/abs/1609.02907).
    """
    scale = torch.from_numpy((edges.degrees + 1) ** -0.5)[:, None].to(h.device)
    scaled = h * scale
    return (sparse_product(edges.adjacency, scaled) + scaled) * scale
