"""Graphs with planted communities, power-law degrees and topic-like features, of any size.

Every step is a few vectorized operations on many nodes or links at once, but on no more than
a cache can hold together with the intermediate results.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from fedsage.config import SyntheticConfig
from fedsage.graph.arrays import chunks, distinct, paired, parted
from fedsage.graph.graph import Graph
from fedsage.rng import generator
from fedsage.shapes import Array, EdgeIndex, NodeIds

USUAL = SyntheticConfig()
COMMUNITIES_PER_CLASS = 4
DEGREE_EXPONENT = 2.5  # of the power law of the expected degrees
WORD_EXPONENT = 1.1  # of Zipf's law for the words


def synthetic(
    nodes: int = USUAL.nodes,
    degree: float = USUAL.degree,
    classes: int = USUAL.classes,
    features: int = USUAL.features,
    words: float = USUAL.words,
    homophily: float = USUAL.homophily,
    topicality: float = USUAL.topicality,
    seed: int = USUAL.seed,
) -> Graph:
    """A graph whose classes are visible in its links and its features.

    Args:
        nodes: |V|.
        degree: Mean number of neighbors, so that |E| = nodes · degree / 2.
        classes: Number of classes; each consists of a few communities.
        features: d_x, the number of words.
        words: Mean number of words drawn for a node.
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
    order = draws.permutation(nodes)  # so that a node's index reveals nothing about its class
    links = order.astype(np.int32)[links]
    node = np.argsort(order)
    x = x[node]
    return Graph.from_arrays(x, links, y[node], names, name="synthetic")


def planted_links(
    community: NodeIds, num_links: int, homophily: float, draws: np.random.Generator
) -> EdgeIndex:
    """Distinct links between nodes of power-law propensity, mostly inside a community.

    ``community`` must be sorted. Ends are drawn by propensity; duplicates and loops are
    drawn again as long as there is room.
    """
    num_nodes = len(community)
    num_links = min(num_links, num_nodes * (num_nodes - 1) // 4)
    propensity = (1 - draws.random(num_nodes)) ** (-1 / (DEGREE_EXPONENT - 1))
    cumulated = np.cumsum(np.minimum(propensity, np.sqrt(num_nodes)))
    begin = beginnings(cumulated)
    first = np.searchsorted(community, np.arange(community[-1] + 2))
    below = np.append(0.0, cumulated)[first]  # below each community
    keys = np.empty(0, dtype=np.int64)
    for _ in range(50):
        wanted = num_links - len(keys)
        if wanted <= 0:
            break
        sources = drawn_in_order(cumulated, draws.random(wanted + wanted // 8 + 1))
        insides = draws.random(len(sources)) < homophily
        found = [keys]
        for some in chunks(len(sources)):
            source, inside = sources[some], insides[some]
            low = np.where(inside, below[community[source]], 0.0)
            high = np.where(inside, below[community[source] + 1], cumulated[-1])
            at = low + draws.random(len(source)) * (high - low)
            target = draw_nodes(cumulated, begin, at)
            pair = paired(np.minimum(source, target), np.maximum(source, target))
            found.append(pair[source != target])
        keys = np.concatenate(found)
        del found  # frees memory
        keys = distinct(keys)
    surplus = draws.choice(len(keys), max(len(keys) - num_links, 0), replace=False)
    return parted(np.delete(keys, surplus))


def drawn_in_order(cumulated: Float[Array, " V"], chance: Float[Array, " n"]) -> NodeIds:
    """The nodes in whose share of the cumulative propensity the chances fall, sorted."""
    chance.sort()
    chance *= cumulated[-1]
    last = np.append(np.searchsorted(chance, cumulated[:-1]), len(chance))
    return np.repeat(np.arange(len(last), dtype=np.int32), np.diff(last, prepend=0))


def beginnings(cumulated: Float[Array, " V"]) -> NodeIds:
    """The node at which each of V equal steps of the cumulative propensity begins.

    Steps begin a little early, because a number's step may be rounded up.
    """
    steps = np.arange(len(cumulated) + 1) - 1e-3
    return np.searchsorted(cumulated, steps * (cumulated[-1] / len(cumulated)), side="right")


def draw_nodes(
    cumulated: Float[Array, " V"], begin: NodeIds, at: Float[Array, " n"]
) -> NodeIds:
    """The nodes in whose share of the cumulative propensity the numbers ``at`` fall.

    The search starts where the table ``begin`` says and goes on node by node. A share is at
    least a third of the mean, so this takes few steps; a binary search would read from all
    over memory.
    """
    at = np.minimum(at, np.nextafter(cumulated[-1], 0))  # rounding may give the very end
    node = begin[(at * (len(cumulated) / cumulated[-1])).astype(np.int64)]
    behind = np.flatnonzero(cumulated[node] <= at)
    while len(behind):
        node[behind] += 1
        behind = behind[cumulated[node[behind]] <= at[behind]]
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

    Each topic ranks the words in its own order; the background is one more such order.
    """
    zipf = np.cumsum(1 / np.arange(1, num_words + 1) ** WORD_EXPONENT)
    orders = np.stack([draws.permutation(num_words) for _ in range(num_classes + 1)])
    counts = np.maximum(draws.poisson(words_per_node, len(y)), 1)
    parts = list(chunks(len(y), words_per_node))
    ranks, short = [], np.min_scalar_type(num_words)
    for some in parts:
        chance = draws.random(counts[some].sum())
        ranks.append(np.searchsorted(zipf, chance * zipf[-1]).astype(short))
    columns, lengths = [], []
    for some, rank in zip(parts, ranks, strict=True):
        topical = draws.random(len(rank)) < topicality
        topic = np.repeat(y[some], counts[some])
        word = orders[np.where(topical, topic, num_classes), rank.clip(max=num_words - 1)]
        node = np.repeat(np.arange(len(counts[some])), counts[some])
        keys = distinct(paired(node, word))
        columns.append(keys.astype(np.int32))
        lengths.append(np.bincount(keys >> 32))
    indices = np.concatenate(columns)
    pointers = np.append(0, np.cumsum(np.concatenate(lengths))).astype(np.int32)
    ones = np.ones(len(indices), dtype=np.float32)
    return csr_array((ones, indices, pointers), shape=(len(y), num_words))
