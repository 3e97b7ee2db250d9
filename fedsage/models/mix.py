"""Two classifiers in one: GraphSage, and a linear one whose answers travel along links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedsage.config import ClassifierConfig
from fedsage.graph.graph import Graph
from fedsage.models import compiled
from fedsage.models.backbone import Backbone, Shape, backbone
from fedsage.models.edges import Edges
from fedsage.models.graphsage import GraphSage
from fedsage.models.linear import Linear, unit_rows
from fedsage.models.parameters import Inputs, Logits
from fedsage.models.propagate import propagated
from fedsage.models.sparse import product
from fedsage.models.team import Team
from fedsage.shapes import NodeIds

LENGTH = 10.0  # of the linear classifier's rows: with it, both learn at the same η


class Regression(Linear):
    """Softmax regression on rows of one length, whose answers are propagated in queries."""

    def on_edges(
        self, h: Inputs, edges: Edges, generator: np.random.Generator | None = None
    ) -> Logits:
        """The scores of all rows; in queries mixed by PageRank, as in ``propagate``."""
        own = product(unit_rows(h), self.weight * LENGTH) + self.bias
        if generator is not None:
            return own
        return propagated(own, edges, self.shape.model.teleport, self.shape.model.steps)

    def uncompiled(self) -> str | None:
        """GPUs."""
        return None if self.device.type == "cpu" else f"device '{self.device}'"

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
class Mix(Team):
    """GraphSage and a linear classifier whose answers are propagated; both answers mixed."""

    def __init__(self, shape: Shape, generator: np.random.Generator) -> None:
        super().__init__(shape, generator)
        self.sage = GraphSage(shape, generator)
        self.linear = Regression(shape, generator)

    @property
    def members(self) -> Sequence[Backbone]:
        """Both; the linear one learns from each node alone."""
        return [self.sage, self.linear]

    @property
    def shares(self) -> Sequence[float]:
        """Of the linear one ``model.share``, of GraphSage the rest."""
        share = self.shape.model.share
        return [1 - share, share]
