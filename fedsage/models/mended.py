"""The classifier on a batch whose nodes have just been given generated neighbors.

The same sums as Eq. (1) on G'_i, with a gradient in the generated features: that is how the
classifier teaches the generator (Eq. 5).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from torch import Tensor

from fedsage.graph.sampling import Hop
from fedsage.models.graphsage import GraphSage
from fedsage.models.parameters import Hidden, Inputs, Logits
from fedsage.models.sparse import product, sparse_product
from fedsage.shapes import Array, NodeIds


def mended_logits(
    model: GraphSage,
    h: Inputs,
    hops: Sequence[Hop],
    degrees: NodeIds,
    generated: Float[Tensor, "rows d_x"],
    of: Int[Array, " rows"],
) -> Logits:
    """h^K of the batch on the mended graph, from sampled real and all generated neighbors.

    Args:
        model: F.
        h: Features of the first hop's inputs.
        hops: Neighborhoods of the batch, first layer first.
        degrees: How many real neighbors each node of the batch has, drawn or not.
        generated: Features of the generated neighbors.
        of: The node of the batch that each of them hangs on.

    Note:
        Real neighbors keep the weight of all their number: with m real and n generated ones
        the aggregate is (m · mean of the drawn + sum of the generated) / (m + n). A generated
        node has one neighbor, its own v.
    """
    batch = len(degrees)
    num_generated = np.bincount(of, minlength=batch)
    total = np.maximum(degrees + num_generated, 1).astype(np.float32)
    weight = csr_array(
        (1 / total[of], (of, np.arange(len(of)))), shape=(batch, len(of)), dtype=np.float32
    )
    real_share = torch.from_numpy(degrees.astype(np.float32) / total)[:, None].to(model.device)
    parent = torch.from_numpy(of).to(model.device)
    h_generated: Hidden = generated
    for k, (layer, hop) in enumerate(zip(model.sage_layers, hops, strict=True)):
        targets = hop.mean.shape[0]
        near = product(h, layer.phi_neighbors)
        near_generated = h_generated @ layer.phi_neighbors
        aggregated = sparse_product(hop.mean, near)
        mended = aggregated[:batch] * real_share + sparse_product(weight, near_generated)
        aggregated = torch.cat([mended, aggregated[batch:]])
        own = product(h[:targets], layer.phi_own)
        h_generated = model.activate(
            h_generated @ layer.phi_own + near[:batch][parent] + layer.bias, k
        )
        h = model.activate(own + aggregated + layer.bias, k)
    logits: Logits = model.head(h)
    return logits
