from __future__ import annotations

import numpy as np

from fedsage.config import ModelConfig
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import Hop, full_mean
from fedsage.models.backbone import Shape


def shape_of(graph: Graph, **settings: object) -> Shape:
    """The shape of a small model for ``graph``."""
    model = ModelConfig(**{"widths": (8, 4), "head": "relu"} | settings)  # type: ignore[arg-type]
    return Shape(graph.num_features, graph.num_classes, model)


def everyone(graph: Graph) -> Hop:
    """All nodes with all of their neighbors."""
    return Hop(np.arange(graph.num_nodes), full_mean(graph), graph.degrees)
