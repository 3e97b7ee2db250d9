"""Sums over remote neighbors: combined, they may show single rows of other owners."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.graph.feature_forms import lengths_of
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import known_links
from fedsage.mending.links.groups import ALONE, class_guesses, safe_groups
from fedsage.mending.links.summed_rows import may_be_summed, summed_rows, words_from
from fedsage.privacy.unlike import sketches
from fedsage.shapes import Array, NodeFeatures, NodeIds, SparseMatrix

ATTEMPT = Attempt(
    "link-sums",
    "curious owner",
    "the sums over remote neighbors that it got, and which nodes are in them",
    "rows with cosine > 0.99",
)
CLOSE = 0.99
DIGITS, LEVELS = 3, 7  # of a value in a sum; of two or three rows with one value each


@attack("link-sums")
def link_sums(case: Case) -> Finding:
    """Rows of other owners, solved for from sums."""
    if not case.setup.way.abroad or case.setup.graph is None:
        return ATTEMPT.not_run("this run does not use known links")
    rebuilt = members = 0
    for i in case.attacked if case.quick else range(len(case.graphs)):
        group, x = groups_of(case, case.setup.graph, i)
        member = members_of(group)
        members += int((group != ALONE).sum())
        rebuilt += int((solved(member, x) | told_apart(member, x)).sum())
    note = f"of {members} rows that are in sums"
    return ATTEMPT.found(rebuilt, 0, rebuilt > 0, note=note)


def groups_of(case: Case, graph: Graph, owner: int) -> tuple[NodeIds, NodeFeatures]:
    """What an owner asked for, and the rows of all nodes as others summed them."""
    setup = case.setup
    links = known_links(graph, setup.owners.nodes, setup.config.links.share, case.plan.seed)
    words = min(words_from(part.x, setup.form) for part in case.graphs)
    whose, found = np.empty(graph.num_nodes, np.int64), np.zeros(graph.num_nodes, bool)
    for j, (ids, part) in enumerate(zip(setup.owners.nodes, case.graphs, strict=True)):
        whose[ids], found[ids[may_be_summed(summed_rows(part.x, words))]] = j, True
    order = np.argsort(np.concatenate(setup.owners.nodes))
    shown = [csr_array(summed_rows(part.x, words)) for part in case.graphs]
    rows = vstack(shown).tocsr()[order]
    there = np.array([int(name) for name in links[owner].there], dtype=np.int64)
    real = found[there]
    here, own, least = links[owner].here[real], case.graphs[owner], setup.config.links.at_least
    guesses = class_guesses(own.x, own.y, setup.splits[owner].train, own.num_classes)
    group = safe_groups(here, there[real], whose, own.x, guesses, least)
    return without_alike(group, whose, rows), rows


def without_alike(group: NodeIds, whose: NodeIds, x: NodeFeatures) -> NodeIds:
    """The groups whose masks come off: the first two owners' rows have no sketch in common."""
    nodes = np.flatnonzero(group != ALONE)
    parties, at = np.unique(np.stack([group, whose])[:, nodes], axis=1, return_inverse=True)
    shape = parties.shape[1], len(group)
    own = csr_array((np.ones(len(nodes)), (at.reshape(-1), nodes)), shape=shape) @ x
    first = np.unique(parties[0], return_index=True)[1]  # as in ``locked``
    found = sketches(own)
    alike = (found[first] == found[first + 1]).any(axis=1)
    return np.where((group != ALONE) & ~np.append(alike, False)[group], group, ALONE)


def members_of(group: NodeIds) -> SparseMatrix:
    """Sums × nodes: 1 where a node is in a sum."""
    nodes = np.flatnonzero(group != ALONE)
    _, at = np.unique(group[nodes], return_inverse=True)
    shape = int(at.max(initial=-1)) + 1, len(group)
    return csr_array((np.ones(len(nodes)), (at.reshape(-1), nodes)), shape=shape)


def solved(member: SparseMatrix, x: NodeFeatures) -> Bool[Array, " nodes"]:
    """Which rows the best linear guess finds: of all rows that fit the sums, the shortest."""
    nodes = np.unique(member.indices)
    member, truth = csr_array(member[:, nodes]), csr_array(x[nodes])
    guesses = csr_array(member.T @ inverse(csr_array(member @ member.T)) @ (member @ truth))
    return cosines(guesses, truth) > CLOSE


def told_apart(member: SparseMatrix, x: NodeFeatures) -> Bool[Array, " nodes"]:
    """Which rows are found by their values, if all values of a row are the same.

    The guess has all places where a sum has that value, or that value and another one.
    """
    nodes = np.unique(member.indices)
    at = csr_array(member[:, nodes].T).indices  # the sum that each node is in
    truth, sums = csr_array(x[nodes]), csr_array(csr_array(member) @ csr_array(x))[at]
    found = np.zeros(len(nodes), bool)
    for row in range(len(nodes)):
        total = slice(*sums.indptr[row : row + 2])
        values, level = np.unique(np.round(sums.data[total], DIGITS), return_inverse=True)
        own = truth[[row]].toarray().reshape(-1)[sums.indices[total]]
        for one in range(len(values) if len(values) <= LEVELS else 0):
            rest = np.round(values - values[one], DIGITS)
            some = (level == one) | np.isin(rest, values)[level]
            found[row] |= own @ some > CLOSE * np.linalg.norm(own) * np.sqrt(some.sum())
    return found


def inverse(gram: SparseMatrix) -> SparseMatrix:
    """The pseudoinverse, block by block: sums that share no node are solved by themselves."""
    count, label = connected_components(gram, directed=False)
    size, found = np.bincount(label, minlength=count), gram.tolil()
    single = size[label] == 1
    found.setdiag(np.where(single, 1 / np.maximum(gram.diagonal(), 1), gram.diagonal()))
    for block in np.flatnonzero(size > 1):
        rows = np.flatnonzero(label == block)
        dense = gram[rows][:, rows].toarray()
        found[np.ix_(rows, rows)] = np.linalg.pinv(dense, hermitian=True)
    return csr_array(found)


def cosines(first: SparseMatrix, second: SparseMatrix) -> Float[Array, " rows"]:
    """The cosine between rows of two matrices."""
    product = np.asarray(first.multiply(second).sum(axis=1)).reshape(-1)
    lengths = lengths_of(first) * lengths_of(second)
    return np.divide(product, lengths, out=np.zeros_like(lengths), where=lengths > 0)
