"""How good the generated neighbors are, beside the ones that are really missing.

Needs the whole graph, so it exists in simulations alone; no training code looks here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import issparse

from fedsage.graph.arrays import squared_norms
from fedsage.graph.graph import Graph
from fedsage.graph.sampling import full_mean
from fedsage.shapes import Array, NodeFeatures, NodeIds

MOST = 20  # neighbors in the table of counts; more count as that many


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over nodes."""

    mean: float
    std: float


@dataclass(frozen=True, slots=True)
class Mending:
    """What was attached at all owners together, and how it compares with the truth."""

    generated: int  # neighbors attached
    norm_generated: float | None  # root mean square length of their features
    norm_real: float  # of real nodes
    picked: float | None  # share of nodes that were ever the nearest to a generated one
    missing: int | None = None  # neighbors that are really missing
    count_error: float | None = None  # mean |generated − missing| over nodes
    count_correlation: float | None = None  # of generated and missing, over nodes
    counts: list[list[int]] | None = None  # nodes by missing (row) and generated (column)
    distance_mended: Spread | None = None  # L2(N'_i(v), N(v))
    distance_plain: Spread | None = None  # L2(N_i(v), N(v))


def mending_from(values: Mapping[str, Any]) -> Mending:
    """The diagnostics that were written as JSON."""
    spreads = {
        key: Spread(**values[key]) if values.get(key) else None
        for key in ("distance_mended", "distance_plain")
    }
    return Mending(**{**values, **spreads})


def mending_quality(
    subgraphs: Sequence[Graph],
    mended: Sequence[Graph],
    picked: float | None,
    whole: Graph | None,
    nodes: Sequence[NodeIds],
) -> Mending:
    """Diagnostics of dGen and fGen, or of whatever made the mended graphs.

    Args:
        subgraphs: G_i of every owner.
        mended: G'_i of every owner.
        picked: Share of nodes ever picked as nearest, where there was a search.
        whole: G, where somebody holds it.
        nodes: The nodes of every owner, by index in G.
    """
    pairs = list(zip(subgraphs, mended, strict=True))
    new = [after.x[before.num_nodes :] for before, after in pairs]
    squares = np.concatenate([squared_norms(x) for x in new])
    real = np.concatenate([squared_norms(graph.x) for graph in subgraphs])
    known = Mending(
        generated=len(squares),
        norm_generated=float(np.sqrt(squares.mean())) if len(squares) else None,
        norm_real=float(np.sqrt(real.mean())),
        picked=picked,
    )
    if whole is None:
        return known
    degrees = whole.degrees
    truth = [degrees[ids] - g.degrees for g, ids in zip(subgraphs, nodes, strict=True)]
    made = [after.degrees[: before.num_nodes] - before.degrees for before, after in pairs]
    missing, generated = np.concatenate(truth), np.concatenate(made)
    plain, repaired = neighborhood_distances(pairs, whole, nodes)
    return Mending(
        generated=known.generated,
        norm_generated=known.norm_generated,
        norm_real=known.norm_real,
        picked=picked,
        missing=int(missing.sum()),
        count_error=float(np.abs(generated - missing).mean()),
        count_correlation=correlation(generated, missing),
        counts=table_of_counts(missing, generated).tolist(),
        distance_mended=Spread(float(repaired.mean()), float(repaired.std())),
        distance_plain=Spread(float(plain.mean()), float(plain.std())),
    )


def correlation(a: Int[Array, " V"], b: Int[Array, " V"]) -> float | None:
    """Pearson's; None where one of them does not vary."""
    if a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def table_of_counts(
    missing: Int[Array, " V"], generated: Int[Array, " V"]
) -> Int[Array, "rows columns"]:
    """How many nodes miss r neighbors and got c, for r and c up to ``MOST``."""
    table = np.zeros((MOST + 1, MOST + 1), dtype=np.int64)
    np.add.at(table, (missing.clip(max=MOST), generated.clip(max=MOST)), 1)
    return table


def neighborhood_distances(
    pairs: Sequence[tuple[Graph, Graph]], whole: Graph, nodes: Sequence[NodeIds]
) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
    """The paper's measure of fGen: L2 between mean neighbor features, before and after.

    For each node v that misses a neighbor, from N_i(v) and from N'_i(v) to N(v).
    """
    plain, mended = [], []
    mean, degrees = full_mean(whole), whole.degrees
    for (before, after), ids in zip(pairs, nodes, strict=True):
        misses = np.flatnonzero(degrees[ids] > before.degrees)
        truth = mean[ids[misses]] @ whole.x
        plain.append(row_norms(full_mean(before)[misses] @ before.x - truth))
        mended.append(row_norms(full_mean(after)[misses] @ after.x - truth))
    nothing = np.zeros(1)  # nobody misses a neighbor
    both = [np.concatenate(parts) for parts in (plain, mended)]
    return (both[0], both[1]) if len(both[0]) else (nothing, nothing)


def row_norms(x: NodeFeatures) -> Float[Array, " _"]:
    """The length of each row."""
    return np.sqrt(squared_norms(x.tocsr() if issparse(x) else x))
