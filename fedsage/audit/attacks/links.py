"""Links: do the classifier's predictions reveal which nodes are linked, beyond features?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.audit.scores import auc_of
from fedsage.graph.graph import Graph
from fedsage.models.classifier import build
from fedsage.protocol.procedures import in_private
from fedsage.rng import Stream
from fedsage.shapes import Array

MOST_PAIRS = 2000
POINTS = 0.02  # of AUC above features alone that count as a leak
Pairs = Int[Array, "2 pairs"]
Vectors = Float[Array, "nodes size"]
ATTEMPT = Attempt(
    "links",
    "anybody",
    "the released classifier and rows, without their links",
    "AUC (chance: from features alone)",
)


@attack("links")
def links(case: Case) -> Finding:
    """Are these two nodes linked? By how similar their rows and their predictions are."""
    if in_private(case.plan.config):
        return ATTEMPT.not_run("no link enters the training of a private run")
    model = build(case.plan.shape, case.phi, "cpu", "torch")
    alone, both = [], []
    for i in case.attacked:
        graph = case.graphs[i]
        pairs, truth = some_pairs(graph, case.stream("pairs", i))
        if not truth.any():
            continue
        rows = np.unique(pairs)
        place = np.searchsorted(rows, pairs)
        bare = without_links(graph.induced(rows))
        features = alike(bare.x.toarray() if hasattr(bare.x, "toarray") else bare.x, place)
        answers = alike(model.on_graph(bare).softmax(dim=1).numpy(), place)
        alone.append(auc_of(features, truth))
        together = rankdata(features) + rankdata(answers)
        both.append(max(alone[-1], auc_of(together, truth)))
    if not both:
        return ATTEMPT.not_run("the owner has no link")
    value, chance = float(np.mean(both)), float(np.mean(alone))
    return ATTEMPT.found(value, chance, value > chance + POINTS)


def some_pairs(graph: Graph, stream: Stream) -> tuple[Pairs, Array]:
    """Links, as many pairs of nodes without one, and which is which."""
    real = graph.links
    real = real[:, stream.permutation(real.shape[1])[: MOST_PAIRS // 2]].astype(np.int64)
    drawn = stream.integers(graph.num_nodes, size=(2, 2 * real.shape[1]))
    linked = np.asarray(graph.adjacency[drawn[0], drawn[1]]).reshape(-1) > 0
    free = drawn[:, ~linked & (drawn[0] != drawn[1])][:, : real.shape[1]]
    pairs = np.concatenate([real, free], axis=1)
    return pairs, np.arange(pairs.shape[1]) < real.shape[1]


def without_links(graph: Graph) -> Graph:
    """All nodes of a graph, and none of its links."""
    none = np.empty((2, 0), dtype=np.int64)
    return Graph.from_arrays(graph.x, none, graph.y, graph.class_names)


def alike(vectors: Vectors, pairs: Pairs) -> Float[Array, " pairs"]:
    """The cosine of each pair."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
    unit = (vectors / lengths).astype(np.float64)
    return np.asarray((unit[pairs[0]] * unit[pairs[1]]).sum(axis=1))
