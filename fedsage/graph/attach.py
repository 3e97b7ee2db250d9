"""Attach generated neighbors: G_i → G'_i. Where they come from is another matter.

A generated neighbor is a node with features and no label, linked to one real node.
Real nodes keep their numbers, so that the split of G_i indexes G'_i as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from fedsage.graph.arrays import frozen, symmetric
from fedsage.graph.graph import Graph
from fedsage.shapes import FeatureRows, NodeFeatures, NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """Neighbors to attach: the real node that each hangs on, and its features."""

    parents: NodeIds
    x: NodeFeatures

    @classmethod
    def of(cls, parents: NodeIds, rows: FeatureRows, like: Graph) -> Generated:
        """Rows of features as ``like`` has them: sparse where those are."""
        sparse = issparse(like.x)
        x = csr_array(rows, dtype=np.float32) if sparse else np.asarray(rows, dtype=np.float32)
        return cls(np.asarray(parents), x)


def mend(graph: Graph, generated: Generated) -> Graph:
    """G'_i (Sec. 4.1): ``graph`` with the generated neighbors, linked in both directions."""
    count = len(generated.parents)
    new = graph.num_nodes + np.arange(count)
    links = np.concatenate([graph.links, np.stack([generated.parents, new])], axis=1)
    indptr, indices = symmetric(links, graph.num_nodes + count)
    both = [graph.x, generated.x]
    return Graph(
        x=vstack(both).tocsr() if issparse(graph.x) else np.concatenate(both),
        indptr=frozen(indptr),
        indices=frozen(indices),
        y=frozen(np.concatenate([graph.y, np.full(count, -1)])),
        class_names=graph.class_names,
    )
