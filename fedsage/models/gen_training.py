"""One optimizer step of NeighGen with the local classifier (Eq. 5), and generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.sparse import issparse, vstack
from torch import Tensor, nn

from fedsage.config import NeighGenConfig
from fedsage.errors import ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated, Impaired
from fedsage.graph.sampling import Hop, sample_hops
from fedsage.models.backbone import Backbone, feature_rows
from fedsage.models.losses import (
    classification_loss,
    degree_loss,
    feature_loss,
    joint_loss,
    neighgen_loss,
)
from fedsage.models.neighgen import Embeddings, NeighGen
from fedsage.models.parameters import Inputs
from fedsage.models.row_form import ROWS_AT_A_TIME, like_real_rows, row_form_of
from fedsage.shapes import Array, NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """V_i^t with its neighborhoods on Ḡ_i, and the features of all nodes there."""

    nodes: NodeIds
    hops: Sequence[Hop]
    x: Inputs


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """The terms of Eq. (5) for one batch, without what other owners add."""

    joint: Float[Tensor, ""]
    degree: Float[Tensor, ""]
    feature: Float[Tensor, ""]
    classification: Float[Tensor, ""]


def draw_batch(
    impaired: Impaired,
    batch_size: int,
    fanouts: Sequence[int],
    device: torch.device,
    generator: np.random.Generator,
) -> Batch:
    """Procedure C's V_i^t: random nodes of Ḡ_i, without repetition."""
    count = min(batch_size, len(impaired.kept))
    nodes = generator.permutation(len(impaired.kept))[:count]
    hops = sample_hops(impaired.graph, nodes, fanouts, generator)
    x = feature_rows(impaired.graph.x, hops[0].inputs, device)
    return Batch(nodes, hops, x)


def embed(neighgen: NeighGen, batch: Batch) -> Embeddings:
    """Z_i^t: H^e on the batch's neighborhoods."""
    return neighgen.encoder.on_hops(batch.x, batch.hops)


def joint_losses(
    neighgen: NeighGen,
    classifier: Backbone,
    impaired: Impaired,
    batch: Batch,
    is_train: Bool[Array, " V"],
    settings: NeighGenConfig,
    generator: np.random.Generator,
) -> Losses:
    """Eq. (5) on one batch; uses only the labels of training nodes.

    Args:
        neighgen: H^e and H^g.
        classifier: The owner's own F, trained together with them; it never leaves.
        impaired: Ḡ_i and what was hidden.
        batch: V_i^t.
        is_train: Which nodes of G_i are training nodes.
        settings: The λs.
        generator: The stream for the noise.
    """
    z = embed(neighgen, batch)
    num_missing = torch.from_numpy(impaired.num_missing[batch.nodes].astype(np.float32))
    degree = degree_loss(neighgen.hg.dgen(z), num_missing.to(z.device))
    generated, of = neighgen.hg(z, generator)
    feature = feature_loss(generated, of, impaired.missing[batch.nodes], impaired.x_hidden)
    classification = z.new_zeros(())
    known = torch.from_numpy(is_train[impaired.kept[batch.nodes]])
    if known.any():
        logits = classifier.on_mended(batch.x, batch.hops, generated, of)
        y = torch.from_numpy(impaired.graph.y[batch.nodes])[known].to(z.device)
        classification = classification_loss(logits[known.to(z.device)], y)
    both = neighgen_loss(degree, feature, settings.lambda_d, settings.lambda_f)
    joint = joint_loss(both, classification, settings.lambda_c)
    return Losses(joint, degree, feature, classification)


@torch.no_grad()
def generated_neighbors(
    neighgen: NeighGen, graph: Graph, settings: NeighGenConfig, generator: np.random.Generator
) -> Generated:
    """The neighbors that NeighGen attaches to the nodes of G_i (Sec. 4.1).

    Nodes are processed in batches, so that at most a few thousand dense rows are in memory at
    a time.
    """
    z = neighgen.encoder.on_graph(graph)
    per_batch = max(1, ROWS_AT_A_TIME // settings.at_most)
    form = row_form_of(graph.x, settings.keep_words, settings.match_norms)
    parents, parts = [], []
    for start in range(0, graph.num_nodes, per_batch):
        part = z[start : start + per_batch]
        generated, of = neighgen.hg(part, generator)
        parents.append(of + start)
        parts.append(like_real_rows(generated, form))
    x = vstack(parts).tocsr() if issparse(graph.x) else np.concatenate(parts)
    return Generated(np.concatenate(parents), x)


def add_gradients(module: nn.Module, gradients: dict[str, Tensor], weight: float) -> None:
    """Add ``weight`` times the gradients to those already there."""
    parameters = dict(module.named_parameters())
    for name, gradient in gradients.items():
        parameter = parameters.get(name)
        if parameter is None or parameter.shape != gradient.shape:
            raise ProtocolError(
                f"A gradient came back for {name}, shape {tuple(gradient.shape)}, which H^g "
                "does not have. Do all parties use the same settings?"
            )
        extra = gradient.to(parameter.device) * weight
        parameter.grad = extra if parameter.grad is None else parameter.grad + extra
