"""Graphs with planted communities, power-law degrees and topic-like features, of any size.

Every step is a few vectorized operations on all nodes or links at once.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from fedsage.graph.graph import Graph
from fedsage.rng import generator
from fedsage.shapes import Array, EdgeIndex, NodeIds

COMMUNITIES_PER_CLASS = 4
DEGREE_EXPONENT = 2.5  # of the power law that the expected degrees follow
WORD_EXPONENT = 1.1  # of Zipf's law for the words


def synthetic(
    nodes: int = 3000,
    degree: float = 4.0,
    classes: int = 7,
    features: int = 1000,
    words: float = 18.0,
    homophily: float = 0.8,
    topicality: float = 0.25,
    seed: int = 0,
) -> Graph:
    """A graph whose classes show in its links and its features.

    Args:
        nodes: |V|.
        degree: Mean number of neighbors, so that |E| = nodes · degree / 2.
        classes: Number of classes; each is made of a few communities.
        features: d_x, the number of words.
        words: Mean number of distinct draws of words for a node.
        homophily: Share of links drawn inside a community.
        topicality: Share of words drawn from the topic of the node's class.
        seed: All draws come from it.
    """
    draws = generator(seed, "synthetic")
    num_communities = min(classes * COMMUNITIES_PER_CLASS, max(nodes // 5, classes))
    community = np.sort(draws.integers(num_communities, size=nodes))
    y = community % classes
    links = planted_links(community, round(nodes * degree / 2), homophily, draws)
    x = topic_features(y, classes, features, words, topicality, draws)
    names = [f"topic {c}" for c in range(classes)]
    order = draws.permutation(nodes)  # so that a node's index says nothing about its class
    return Graph.from_arrays(
        x[np.argsort(order)], order[links], y[np.argsort(order)], names, name="synthetic"
    )


def planted_links(
    community: NodeIds, num_links: int, homophily: float, draws: np.random.Generator
) -> EdgeIndex:
    """Distinct links between nodes of power-law propensity, mostly inside a community.

    ``community`` must be sorted. Ends are drawn by propensity; what comes out double or as
    a loop is drawn again, so long as there is room for it.
    """
    num_nodes = len(community)
    num_links = min(num_links, num_nodes * (num_nodes - 1) // 4)
    propensity = (1 - draws.random(num_nodes)) ** (-1 / (DEGREE_EXPONENT - 1))
    cumulated = np.cumsum(np.minimum(propensity, np.sqrt(num_nodes)))
    first = np.searchsorted(community, community, side="left")
    last = np.searchsorted(community, community, side="right") - 1
    below = np.where(first > 0, cumulated[first - 1], 0.0)
    keys = np.empty(0, dtype=np.int64)
    for _ in range(50):
        wanted = num_links - len(keys)
        if wanted <= 0:
            break
        at = np.sort(draws.random(wanted + wanted // 8 + 1)) * cumulated[-1]  # in order: cached
        source = draw_nodes(cumulated, at)
        inside = draws.random(len(source)) < homophily
        low = np.where(inside, below[source], 0.0)
        high = np.where(inside, cumulated[last[source]], cumulated[-1])
        target = draw_nodes(cumulated, low + draws.random(len(source)) * (high - low))
        pair = np.minimum(source, target) * num_nodes + np.maximum(source, target)
        keys = distinct(np.concatenate([keys, pair[source != target]]))
    surplus = draws.choice(len(keys), max(len(keys) - num_links, 0), replace=False)
    return np.stack(np.divmod(np.delete(keys, surplus), num_nodes))


def distinct(keys: Int[Array, " n"]) -> Int[Array, " m"]:
    """The sorted distinct keys; for many millions of them faster than ``np.unique``."""
    ordered = np.sort(keys)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]]


def draw_nodes(cumulated: Float[Array, " V"], at: Float[Array, " n"]) -> NodeIds:
    """The nodes in whose share of the cumulated propensity the numbers ``at`` fall.

    From a table of where to begin, one node on until it is found. A share is at least a
    third of the mean, so that is a few steps; a binary search reads from all over memory.
    """
    scale = len(cumulated) / cumulated[-1]
    begin = np.searchsorted(cumulated, np.arange(len(cumulated) + 1) / scale, side="right")
    node = begin[np.maximum((at * scale).astype(np.int64) - 1, 0)]  # whatever was rounded
    ends = np.append(cumulated[:-1], np.inf)
    while (behind := ends[node] <= at).any():
        node += behind
    return node


def topic_features(
    y: Int[Array, " V"],
    num_classes: int,
    num_words: int,
    words_per_node: float,
    topicality: float,
    draws: np.random.Generator,
) -> csr_array:
    """0/1 features: words by Zipf's law, some of them from the topic of the node's class.

    A topic is an order of the words of its own; the background is one more order.
    """
    zipf = np.cumsum(1 / np.arange(1, num_words + 1) ** WORD_EXPONENT)
    orders = np.stack([draws.permutation(num_words) for _ in range(num_classes + 1)])
    count = np.maximum(draws.poisson(words_per_node, len(y)), 1)
    node = np.repeat(np.arange(len(y)), count)
    rank = np.searchsorted(zipf, draws.random(len(node)) * zipf[-1]).clip(max=num_words - 1)
    topical = draws.random(len(node)) < topicality
    word = orders[np.where(topical, y[node], num_classes), rank]
    pair = distinct(node * np.int64(num_words) + word)
    row, column = np.divmod(pair, num_words)
    pointer = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(y)))])
    ones = np.ones(len(pair), dtype=np.float32)
    return csr_array(
        (ones, column.astype(np.int32), pointer.astype(np.int32)), shape=(len(y), num_words)
    )
