"""Which remote nodes are summed together, so that no sums show a single row.

The remote nodes of a receiver are cut into groups that do not overlap. It gets the sum of each
group and nothing else: whatever it computes from them has all nodes of a group, with the same
weight. Groups are chosen so that a group's mean stands for each of its nodes: those that have a
neighbor of the receiver in common, and those whose neighbors there look alike, by features and
by the class that features suggest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, diags_array, hstack, issparse

from fedsage.graph.feature_forms import lengths_of
from fedsage.rng import Stream, generator
from fedsage.shapes import Array, NodeFeatures, NodeIds, NodeLabels, SparseMatrix

ALONE = -1  # in no group
NEAREST = 8  # nodes that each one may be grouped with, at a time
LOOKS = 0.5  # what neighbors with alike features weigh beside common ones
CLASSES = 1.0  # what neighbors of alike classes weigh
BLOCK = 1024  # nodes that are compared with each other
PASSES = 3  # of choosing partners among those who have none yet


Guesses: TypeAlias = Float[Array, "V d_y"]


@dataclass(frozen=True, slots=True, eq=False)
class Remote:
    """The remote nodes of a receiver: their owners, neighbors, and what those look like."""

    owner: NodeIds
    near: SparseMatrix  # nodes × own nodes: 1 where there is a link
    looks: NodeFeatures  # directions of the sums of those neighbors' features and guesses

    def score(self, first: NodeIds, second: NodeIds) -> Float[Array, " pairs"]:
        """How well one node of each pair stands for the other."""
        degree = np.diff(self.near.indptr)
        common = 2 * inner(self.near, first, second) / (degree[first] + degree[second])
        found: Array = common + LOOKS * inner(self.looks, first, second)
        return found


def safe_groups(
    here: NodeIds,
    there: NodeIds,
    owner: NodeIds,
    x: NodeFeatures,
    guesses: Guesses,
    at_least: int,
) -> NodeIds:
    """The group of each remote node by number, or ``ALONE``.

    Args:
        here: The own end of each known link.
        there: The other end, by number.
        owner: Whose node each number is.
        x: The features of own nodes.
        guesses: What class each of them may have.
        at_least: The fewest nodes of a group, all at different owners.
    """
    nodes, place = np.unique(there, return_inverse=True)
    shape = len(nodes), x.shape[0]
    near = csr_array((np.ones(len(here)), (place.reshape(-1), here)), shape=shape)
    near.sum_duplicates()
    near.data[:] = 1
    classes = unit_rows(near @ guesses) * np.sqrt(CLASSES / LOOKS)
    looks = hstack([csr_array(unit_rows(near @ unit_rows(x))), csr_array(classes)]).tocsr()
    if not issparse(x):
        looks = looks.toarray()
    found = np.full(len(owner), ALONE)
    found[nodes] = grouped(Remote(owner[nodes], near, looks), at_least)
    return found


def class_guesses(x: NodeFeatures, y: NodeLabels, train: NodeIds, num_classes: int) -> Guesses:
    """What class each own node may have: how near it is to the mean of each class.

    A training node's own class does not count: what is attached to training nodes must be no
    better than what others get.
    """
    rows, known = csr_array(unit_rows(x)), np.zeros((x.shape[0], num_classes))
    known[train, y[train]] = 1
    means = np.asarray((rows.T @ csr_array(known)).toarray())
    near = (rows @ means - known) / np.maximum(np.linalg.norm(means, axis=0), 1e-9)
    spread = near.std(axis=1, keepdims=True)
    sharp = np.exp((near - near.mean(axis=1, keepdims=True)) / np.maximum(spread, 1e-9))
    guesses: Guesses = sharp / sharp.sum(axis=1, keepdims=True)
    return guesses


def grouped(remote: Remote, at_least: int) -> NodeIds:
    """Groups of at least so many nodes, the best pairs first; who finds no partner is alone."""
    groups, everyone = Joined(remote.owner.tolist()), np.arange(len(remote.owner))
    draws = generator(0, "order of remote nodes")  # the same groups after a restart
    pairs = ranked(remote, with_common_neighbors(remote.near))
    groups.join(pairs, lambda one, other: one + other <= at_least)
    for _ in range(PASSES):
        free = np.flatnonzero(groups.sizes() < at_least)
        pairs = ranked(remote, looking_alike(remote, free, draws))
        groups.join(pairs, lambda one, other: one + other <= at_least)
    last = np.concatenate([pairs, looking_alike(remote, everyone, draws)], axis=1)
    groups.join(ranked(remote, last), lambda one, other: min(one, other) < at_least)
    large, found = groups.sizes() >= at_least, np.full(len(everyone), ALONE)
    found[large] = np.unique(groups.roots()[large], return_inverse=True)[1].reshape(-1)
    return found


class Joined:
    """Nodes that are joined to groups of different owners, each by itself at first."""

    def __init__(self, owner: list[int]) -> None:
        self.root, self.owners = list(range(len(owner))), [{one} for one in owner]

    def top(self, node: int) -> int:
        """The node that a group is called by."""
        while self.root[node] != node:
            self.root[node] = node = self.root[self.root[node]]
        return node

    def join(self, pairs: NodeIds, fits: Callable[[int, int], bool]) -> None:
        """Join the groups of each pair in turn, if their sizes fit."""
        for a, b in pairs.T.tolist():
            one, other = self.top(a), self.top(b)
            owners = self.owners[one], self.owners[other]
            if owners[0].isdisjoint(owners[1]) and fits(*map(len, owners)):
                self.root[other] = one
                owners[0].update(owners[1])

    def roots(self) -> NodeIds:
        """What the group of each node is called."""
        return np.array([self.top(node) for node in range(len(self.root))], dtype=np.int64)

    def sizes(self) -> NodeIds:
        """How large the group of each node is."""
        count = np.array([len(one) for one in self.owners], dtype=np.int64)
        return count[self.roots()]


def ranked(remote: Remote, pairs: NodeIds) -> NodeIds:
    """Pairs of nodes at different owners, each once, the best first."""
    low, high = np.sort(pairs, axis=0)
    apart = remote.owner[low] != remote.owner[high]
    codes = np.unique(low[apart] * len(remote.owner) + high[apart])
    found = np.stack(np.divmod(codes, max(len(remote.owner), 1)))
    return found[:, np.argsort(-remote.score(*found), kind="stable")]


def with_common_neighbors(near: SparseMatrix) -> NodeIds:
    """Pairs of nodes with a common neighbor: each node with some of the others of that list."""
    lists = csr_array(near.T)
    lists.sort_indices()
    nodes = lists.indices.astype(np.int64)
    which = np.repeat(np.arange(lists.shape[0]), np.diff(lists.indptr))
    found = [
        np.stack([nodes[:-step], nodes[step:]])[:, which[:-step] == which[step:]]
        for step in range(1, min(2 * NEAREST, len(nodes)))
    ]
    return np.concatenate([*found, np.empty((2, 0), np.int64)], axis=1)


def looking_alike(remote: Remote, nodes: NodeIds, draws: Stream) -> NodeIds:
    """Each of some nodes with those at other owners whose neighbors look most alike."""
    found = [np.empty((2, 0), np.int64)]
    for block in blocks_of(remote.looks, nodes, draws):
        rows = remote.looks[block]
        alike = (rows @ rows.T).toarray() if issparse(rows) else rows @ rows.T
        alike[remote.owner[block][:, None] == remote.owner[block]] = -1
        count = min(NEAREST, len(block))
        best = np.argpartition(-alike, count - 1, axis=1)[:, :count]
        found.append(np.stack([np.repeat(block, best.shape[1]), block[best.reshape(-1)]]))
    return np.concatenate(found, axis=1)


def blocks_of(looks: NodeFeatures, nodes: NodeIds, draws: Stream) -> Iterator[NodeIds]:
    """Nodes in blocks of which each looks alike: halved by the difference of two of them."""
    if len(nodes) <= BLOCK:
        yield from [nodes] if len(nodes) else []
        return
    rows = looks[draws.choice(nodes, 2, replace=False)]
    one, other = rows.toarray() if issparse(rows) else rows
    order = nodes[np.argsort(looks[nodes] @ (one - other), kind="stable")]
    for half in np.array_split(order, 2):
        yield from blocks_of(looks, half, draws)


def inner(rows: NodeFeatures, first: NodeIds, second: NodeIds) -> Float[Array, " pairs"]:
    """The inner product of two rows, for each pair."""
    if issparse(rows):
        return np.asarray(rows[first].multiply(rows[second]).sum(axis=1)).reshape(-1)
    found: Array = np.einsum("ij,ij->i", rows[first], rows[second])
    return found


def unit_rows(rows: NodeFeatures) -> NodeFeatures:
    """Rows of length one; zero stays zero."""
    lengths = lengths_of(rows)
    return diags_array(1 / np.where(lengths > 0, lengths, 1)) @ rows
