"""Stress: owners whose features, links or labels are missing or wrong, as far as one asks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from fedsage.config import DataConfig
from fedsage.graph.arrays import frozen
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, missing_links
from fedsage.graph.split import Split
from fedsage.rng import generator
from fedsage.shapes import NodeFeatures, NodeIds


def stressed(
    graph: Graph, owners: Partition, splits: list[Split], data: DataConfig, seed: int
) -> tuple[Graph, Partition, list[Split]]:
    """The same owners in a worse world; who owns what, and who is tested, stays.

    Every value of a feature and every link is lost with the probability that ``data`` names.
    Of each owner's training nodes, ``few_labels`` are not trained on, and ``noisy_labels`` of
    the others get another class, any with the same probability. Labels of validation and test
    nodes stay true. What is lost at a higher level contains what is lost at a lower one.
    """
    fewer = [fewer_labels(split, data.few_labels, seed, i) for i, split in enumerate(splits)]
    train = np.concatenate(
        [ids[split.train] for ids, split in zip(owners.nodes, fewer, strict=True)]
    )
    worse = replace(
        without_links(graph, data.missing_links, seed),
        x=without_values(graph.x, data.missing_features, seed),
        y=with_noise(graph, train, data.noisy_labels, seed),
    )
    subgraphs = worse.cut(owners.nodes)
    cut = replace(owners, subgraphs=subgraphs, missing_links=missing_links(worse, subgraphs))
    return worse, cut, fewer


def fewer_labels(split: Split, share: float, seed: int, owner: int) -> Split:
    """Without a share of the training nodes, but with one at least."""
    order = generator(seed, "stress", "labels", owner).permutation(split.train)
    kept = max(len(order) - round(share * len(order)), min(1, len(order)))
    return replace(split, train=frozen(np.sort(order[:kept])))


def without_values(x: NodeFeatures, share: float, seed: int) -> NodeFeatures:
    """Features with a share of the values that are not zero set to zero."""
    stream = generator(seed, "stress", "features")
    if isinstance(x, csr_array):
        kept = stream.random(x.nnz) >= share
        rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))[kept]
        indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=x.shape[0])))
        made = csr_array((x.data[kept], x.indices[kept], indptr), shape=x.shape)
        for array in (made.data, made.indices, made.indptr):
            array.flags.writeable = False
        return made
    return frozen(np.where(stream.random(x.shape) >= share, x, 0).astype(x.dtype))


def without_links(graph: Graph, share: float, seed: int) -> Graph:
    """The graph without a share of its links."""
    links = graph.links
    kept = generator(seed, "stress", "links").random(links.shape[1]) >= share
    made = Graph.from_arrays(graph.x, links[:, kept], graph.y, graph.class_names)
    return replace(made, split=graph.split)


def with_noise(graph: Graph, train: NodeIds, share: float, seed: int) -> NodeIds:
    """Labels, of which a share of those of ``train`` are wrong."""
    stream = generator(seed, "stress", "noise")
    order, shifts = stream.permutation(len(train)), stream.random(len(train))
    wrong = train[order[: round(share * len(train))]]
    y, others = graph.y.copy(), graph.num_classes - 1
    y[wrong] += 1 + (shifts[: len(wrong)] * others).astype(y.dtype)
    y[wrong] %= graph.num_classes
    return frozen(y)
