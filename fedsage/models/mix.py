"""Two classifiers in one: GraphSage, and a linear one whose answers travel along links.

They are trained together, each by its own loss, and their answers are mixed. Where they make
different mistakes, that is better than either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedsage.config import ClassifierConfig
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import Hop
from fedsage.models import compiled
from fedsage.models.backbone import Backbone, Shape, backbone
from fedsage.models.edges import Edges
from fedsage.models.graphsage import GraphSage
from fedsage.models.linear import unit_rows
from fedsage.models.losses import ClassWeights
from fedsage.models.parameters import Inputs, Logits
from fedsage.models.propagate import propagated
from fedsage.models.sparse import product
from fedsage.shapes import Array, NodeIds

LENGTH = 10.0  # of the linear classifier's rows: with it, both learn at the same η


class Regression(Backbone):
    """Softmax regression on rows of one length, whose answers are propagated in queries."""

    trains_on_links: ClassVar[bool] = False

    def __init__(self, shape: Shape, generator: np.random.Generator) -> None:
        super().__init__(shape, generator)
        self.weight = nn.Parameter(torch.zeros(shape.num_features, shape.num_classes))
        self.bias = nn.Parameter(torch.zeros(shape.num_classes))

    def on_edges(
        self, h: Inputs, edges: Edges, generator: np.random.Generator | None = None
    ) -> Logits:
        """The scores of all rows; in queries mixed by PageRank, as in ``propagate``."""
        own = product(unit_rows(h), self.weight * LENGTH) + self.bias
        if generator is not None:
            return own
        return propagated(own, edges, self.shape.model.teleport, self.shape.model.steps)

    def compiled_epoch(
        self,
        optimizer: torch.optim.Optimizer,
        graph: Graph,
        order: NodeIds,
        classifier: ClassifierConfig,
        generator: np.random.Generator,
    ) -> float:
        """``torch_epoch`` by compiled code; it draws nothing."""
        given = optimizer, graph, order, classifier
        return compiled.linear_epoch([self.weight, self.bias], LENGTH, *given)


@backbone("mix")
class Mix(Backbone):
    """GraphSage and a linear classifier whose answers are propagated; both answers mixed."""

    def __init__(self, shape: Shape, generator: np.random.Generator) -> None:
        super().__init__(shape, generator)
        self.sage = GraphSage(shape, generator)
        self.linear = Regression(shape, generator)

    @property
    def reach(self) -> int | None:
        """That of the propagated answers, or of the layers, if they are more."""
        return max(len(self.shape.model.widths), self.shape.model.steps + 1)

    @property
    def head(self) -> nn.Module:
        """GraphSage's: what goes into it is a node's embedding."""
        return self.sage.head

    def mixed(self, sage: Logits, linear: Logits) -> Logits:
        r"""The logarithms of both answers, mixed; s is ``model.share``.

        .. math::
            (1 - s) \log \mathrm{Softmax}(h^K) + s \log \mathrm{Softmax}(z)
        """
        share = self.shape.model.share
        return (1 - share) * sage.log_softmax(dim=1) + share * linear.log_softmax(dim=1)

    def on_hops(
        self, rows: Inputs, hops: Sequence[Hop], generator: np.random.Generator | None = None
    ) -> Logits:
        """Both answers for a batch, mixed."""
        given = rows, hops, generator
        return self.mixed(self.sage.on_hops(*given), self.linear.on_hops(*given))

    def on_graph(self, graph: Graph, nodes: NodeIds | None = None) -> Logits:
        """Both answers from all neighbors, mixed."""
        self.sage.kernel = self.kernel
        return self.mixed(self.sage.on_graph(graph, nodes), self.linear.on_graph(graph, nodes))

    def on_mended(
        self,
        rows: Inputs,
        hops: Sequence[Hop],
        generated: Float[Tensor, "generated d_x"],
        of: Int[Array, " generated"],
    ) -> Logits:
        """Both answers for a batch with generated neighbors, mixed."""
        given = rows, hops, generated, of
        return self.mixed(self.sage.on_mended(*given), self.linear.on_mended(*given))

    def batch_loss(
        self,
        rows: Inputs,
        hops: Sequence[Hop],
        y: Int[Tensor, " batch"],
        weights: ClassWeights | None,
        generator: np.random.Generator,
    ) -> Float[Tensor, ""]:
        """The sum of both losses: neither learns from what the other answers."""
        own = rows[: len(y)]  # the linear one uses no links in training
        sage = self.sage.batch_loss(rows, hops, y, weights, generator)
        return sage + self.linear.batch_loss(own, (), y, weights, generator)

    def uncompiled(self) -> str | None:
        """As for GraphSage."""
        return self.sage.uncompiled()

    def compiled_epoch(
        self,
        optimizer: torch.optim.Optimizer,
        graph: Graph,
        order: NodeIds,
        classifier: ClassifierConfig,
        generator: np.random.Generator,
    ) -> float:
        """``torch_epoch`` by compiled code: all batches of one, then the same of the other.

        They share no weights, so that this gives what steps of both together do.
        """
        given = optimizer, graph, order, classifier, generator
        return self.sage.compiled_epoch(*given) + self.linear.compiled_epoch(*given)
