"""An owner's generator of embeddings, as FedDEP has it, and what it learns from.

Zhang et al., SDM 2024, https://arxiv.org/abs/2401.04336. What differs from the paper is said in
:mod:`fedsage.rivals.feddep`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedsage.config import NeighGenConfig
from fedsage.graph.arrays import squared_norms
from fedsage.models.backbone import Shape
from fedsage.models.edges import edges_of_hops
from fedsage.models.fusing import Fusing
from fedsage.models.gen_training import Batch
from fedsage.models.losses import (
    classification_loss,
    cross_subgraph_feature_loss,
    degree_loss,
    feature_loss,
)
from fedsage.models.neighgen import Encoder, Hg
from fedsage.shapes import Array, NodeIds, SparseMatrix

MEGABYTE = 2**20


def mean_embedding(
    generated: Float[Tensor, "rows d_z"], of: Int[Array, " rows"], nodes: int, slots: int
) -> Float[Tensor, "nodes d_z"]:
    r""":math:`\bar z_v = \frac{1}{s} \sum_p \tilde z_v^p` over s slots; empty ones are zero."""
    total = generated.new_zeros(nodes, generated.shape[1])
    return total.index_add(0, torch.from_numpy(of), generated) / slots


def prototype_loss(
    generated: Float[Tensor, "rows d_z"],
    of: Int[Array, " rows"],
    missing: SparseMatrix,
    at_home: Float[Array, "hidden d_z"],
    abroad: Sequence[Float[Array, "clusters d_z"]],
    max_bytes: int,
) -> Float[Tensor, ""]:
    r"""How far generated embeddings are from prototypes, on average over the M owners.

    .. math::
        \frac{1}{M |\bar V_i|} \sum_{v \in \bar V_i} \sum_{p \in [\tilde n_v]} \Big(
        \min_{u \in N_{G_i}(v) \cap V_i^h} \lVert \tilde z_v^p - p(u) \rVert^2
        + \sum_{j \ne i} \min_k \lVert \tilde z_v^p - P_j^k \rVert^2 \Big)

    Args:
        generated: All :math:`\tilde z_v^p`, one after the other.
        of: The v of each of them: a row of ``missing``.
        missing: Which hidden nodes are neighbors of each v.
        at_home: p(u) of every hidden node.
        abroad: :math:`P_j` of every other owner.
        max_bytes: How much memory the search may use.
    """
    total = feature_loss(generated, of, missing, at_home)
    for rows in abroad:
        near = generated, missing.shape[0], rows, squared_norms(rows), max_bytes
        total = total + cross_subgraph_feature_loss(*near)[0]
    return total / (1 + len(abroad))


class DeepGen(nn.Module):
    """An owner's generator of embeddings, with the classifier that teaches it; never leaves."""

    def __init__(
        self, shape: Shape, neighgen: NeighGenConfig, stream: np.random.Generator
    ) -> None:
        super().__init__()
        output = {"output": "tanh" if shape.model.head == "l2" else "relu"}  # as z_u are
        self.settings: NeighGenConfig = neighgen.model_copy(update=output)
        self.encoder = Encoder(shape.num_features, self.settings, stream)
        self.hg = Hg(shape.model.widths[-1], self.settings, stream)
        self.classifier = Fusing(shape, stream)

    def bar(
        self, z: Float[Tensor, "nodes d_z"], stream: np.random.Generator
    ) -> Float[Tensor, "nodes d_z"]:
        """The mean generated embedding of nodes that the encoder sees as ``z``."""
        made, of = self.hg(z, stream)
        return mean_embedding(made, of, len(z), self.settings.at_most)


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What a batch is to teach the generator."""

    batch: Batch
    num_missing: Float[Tensor, " batch"]
    missing: SparseMatrix
    known: NodeIds  # training nodes, as places in the batch
    y: Int[Tensor, " known"]


def loss_of(
    gen: DeepGen,
    lesson: Lesson,
    at_home: Float[Array, "hidden d_z"],
    abroad: Sequence[Float[Array, "clusters d_z"]],
    stream: np.random.Generator,
) -> Float[Tensor, ""]:
    r""":math:`\lambda^d L^d + \lambda^f L^p + \lambda^c L^c`, L^p by :func:`prototype_loss`."""
    how, batch = gen.settings, lesson.batch
    z = gen.encoder.on_hops(batch.x, batch.hops)
    degree = degree_loss(gen.hg.dgen(z), lesson.num_missing)
    made, of = gen.hg(z, stream)
    targets = lesson.missing, at_home, abroad, how.memory_mb * MEGABYTE
    loss = how.lambda_d * degree + how.lambda_f * prototype_loss(made, of, *targets)
    if len(lesson.known):
        rows = batch.x.shape[0]
        bar = mean_embedding(made, of, len(z), how.at_most)
        padded = torch.cat([bar, bar.new_zeros(rows - len(z), bar.shape[1])])
        logits = gen.classifier.fused(batch.x, padded, edges_of_hops(batch.hops, rows))
        found = classification_loss(logits[torch.from_numpy(lesson.known)], lesson.y)
        loss = loss + how.lambda_c * found
    return loss
