"""A linear classifier of each node's own features, whose answers are propagated along links.

What private runs train: a node is one record there, and its links are not used until the model
is queried.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import nn

from fedsage.models.backbone import Backbone, Shape, backbone
from fedsage.models.edges import Edges
from fedsage.models.parameters import Inputs, Logits, Stacked
from fedsage.models.propagate import propagated
from fedsage.models.sparse import product

LOUDNESS = 6.0  # length of a row's scores by the logarithm of the number of classes


@backbone("linear")
class Linear(Backbone):
    """Softmax regression on rows of unit length; answers are propagated along links."""

    trains_on_links: ClassVar[bool] = False

    def __init__(self, shape: Shape, generator: np.random.Generator) -> None:
        super().__init__(shape, generator)
        self.weight = nn.Parameter(torch.zeros(shape.num_features, shape.num_classes))
        self.bias = nn.Parameter(torch.zeros(shape.num_classes))

    @property
    def reach(self) -> int | None:
        """A hop for each step, and one more for degrees."""
        return self.shape.model.steps + 1

    def on_edges(
        self, h: Inputs, edges: Edges, generator: np.random.Generator | None = None
    ) -> Logits:
        """The scores of all rows; in queries mixed by PageRank, as in ``propagate``.

        All rows have an equal say in that. Where there are no links, scores stay as they are.
        """
        own = product(unit_rows(h), self.weight) + self.bias
        if generator is not None or not edges.adjacency.nnz:
            return own
        how = self.shape.model
        return propagated(with_equal_say(own), edges, how.teleport, how.steps)


def with_equal_say(scores: Logits) -> Logits:
    """Every row's scores around their mean, all of one length: noise makes some rows loud."""
    around = scores - scores.mean(dim=1, keepdim=True)
    return LOUDNESS * math.log(scores.shape[1]) * nn.functional.normalize(around, dim=1)


def unit_rows(h: Inputs) -> Inputs:
    """The root of every feature, with its sign, and every row scaled to length one.

    It depends on the row alone, so that no node has a part in another's record.
    """
    if isinstance(h, Stacked):
        return Stacked(unit_rows(h.real), rooted(h.generated))
    if not isinstance(h, csr_array):
        return rooted(h)
    rows = np.repeat(np.arange(h.shape[0]), np.diff(h.indptr))
    size = np.sqrt(np.bincount(rows, np.abs(h.data), h.shape[0]))
    roots = np.sign(h.data) * np.sqrt(np.abs(h.data)) / np.maximum(size, 1e-12)[rows]
    return csr_array((roots.astype(np.float32), h.indices, h.indptr), shape=h.shape)


def rooted(h: torch.Tensor) -> torch.Tensor:
    """The same for dense rows."""
    return nn.functional.normalize(torch.sign(h) * h.abs().sqrt(), dim=1)
