"""A linear classifier by compiled code, on torch's own weights: an epoch."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fedsage.config import ClassifierConfig
from fedsage.graph.graph import Graph
from fedsage.kernels import door
from fedsage.models.backbone import feature_rows
from fedsage.models.compiled_sage import arrays_of, count_steps, moments_of
from fedsage.models.linear import unit_rows
from fedsage.shapes import NodeIds


def epoch(
    weights: list[Tensor],
    length: float,
    optimizer: torch.optim.Optimizer,
    graph: Graph,
    order: NodeIds,
    classifier: ClassifierConfig,
) -> float:
    """An epoch on nodes in that order, with rows of that length; returns the mean loss.

    It changes weights and moments in place.
    """
    rows = unit_rows(feature_rows(graph.x, order, torch.device("cpu")))
    rows = rows if isinstance(rows, csr_array) else csr_array(rows.numpy())
    moments, step = moments_of(optimizer, weights, classifier.optimizer)
    loss = door.linear_epoch(
        (rows.indptr, rows.indices, rows.data * np.float32(length)),
        graph.y[order],
        arrays_of(weights),
        moments,
        step,
        (classifier.optimizer, classifier.eta, classifier.weight_decay),
        classifier.batch_for(len(order)),
    )
    count_steps(optimizer, weights, step, len(order), classifier)
    return loss / len(order)
