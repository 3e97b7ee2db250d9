"""Sums over remote neighbors: what they show by themselves of single rows of other owners."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csr_array, diags_array, vstack
from scipy.sparse.csgraph import connected_components

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.graph.feature_forms import lengths_of
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import home_of, known_links
from fedsage.mending.links.groups import ALONE, Guesses, class_guesses, safe_groups
from fedsage.mending.links.likely_rows import likely_rows
from fedsage.mending.links.received import HeldMeans
from fedsage.mending.links.summed_rows import (
    may_be_summed,
    summed_rows,
    usual_count,
    usual_values,
    words_from,
)
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
    """Rows of other owners, solved for from sums, or told apart in them by their values."""
    if not case.setup.way.abroad or case.setup.graph is None:
        return ATTEMPT.not_run("this run does not use known links")
    rebuilt = members = 0
    for i in case.attacked if case.quick else range(len(case.graphs)):
        got = sums_of(case, case.setup.graph, i)
        member = members_of(got.group)
        members += int((got.group != ALONE).sum())
        rebuilt += int((solved(member, got.rows) | told_apart(member, got.rows)).sum())
    note = f"of {members} rows that are in sums"
    return ATTEMPT.found(rebuilt, 0, rebuilt > 0, note=note)


@dataclass(frozen=True, slots=True, eq=False)
class GotSums:
    """What an owner has after the exchange, and the truth: the rows that are in its sums."""

    group: NodeIds  # of each node of G, or ALONE
    rows: SparseMatrix  # of each node of G, as it is summed
    own: SparseMatrix  # its own, in the same form
    near: SparseMatrix  # nodes of G × own nodes: 1 where it knows a link
    likely: SparseMatrix  # of each node of G, what the owner takes its row to be


def sums_of(case: Case, graph: Graph, owner: int) -> GotSums:
    """What an owner asked for and got."""
    setup, parts = case.setup, case.graphs
    nodes, config = setup.owners.nodes, setup.config.links
    words = min(words_from(part.x, setup.form) for part in parts)
    usual = int(np.median([usual_count(part.x, words) for part in parts]))
    shown = [csr_array(summed_rows(part.x, words, usual)) for part in parts]
    rows = vstack(shown).tocsr()[np.argsort(np.concatenate(nodes))]
    fits = [may_be_summed(part.x, words, usual) for part in parts]
    found = np.concatenate([ids[some] for ids, some in zip(nodes, fits, strict=True)])
    links = known_links(graph, nodes, config.share, case.plan.seed)[owner]
    there = np.array([int(name) for name in links.there], dtype=np.int64)
    real, own, whose = np.isin(there, found), parts[owner], home_of(nodes, graph.num_nodes)
    here, there = links.here[real], there[real]
    guesses = class_guesses(own.x, own.y, setup.splits[owner].train, own.num_classes)
    group = safe_groups(here, there, whose, own.x, guesses, config.at_least)
    shape = graph.num_nodes, own.num_nodes
    near = csr_array((np.ones(len(here), np.float32), (there, here)), shape=shape)
    kept = without_alike(group, rows, words)
    likely = taken_to_be(kept, rows, near, own.x, guesses, words)
    return GotSums(kept, rows, shown[owner], near, likely)


def taken_to_be(
    group: NodeIds,
    rows: SparseMatrix,
    near: SparseMatrix,
    x: NodeFeatures,
    guesses: Guesses,
    words: int,
) -> SparseMatrix:
    """The rows that an owner attaches for the nodes in its sums, in the form that is summed."""
    member = members_of(group)
    nodes, usual = np.unique(member.indices), diags_array(usual_values(x, words))
    at = csr_array(member[:, nodes].T).indices  # the sum that each node is in
    size = np.asarray(member.sum(axis=1)).reshape(-1)
    means = csr_array(diags_array(1 / size) @ member @ rows @ usual)
    links = near[nodes].tocoo()
    held = HeldMeans(nodes, at.astype(np.int64), means)
    found = csr_array(likely_rows(held, links.col, links.row, x, guesses, words))
    place = csr_array(
        (np.ones(len(nodes)), (nodes, np.arange(len(nodes)))), shape=(len(group), len(nodes))
    )
    return csr_array(place @ found @ diags_array(1 / usual.diagonal()))


def without_alike(group: NodeIds, rows: NodeFeatures, words: int) -> NodeIds:
    """The groups whose masks come off: no two rows have a sketch in common."""
    nodes = np.flatnonzero(group != ALONE)
    nodes = nodes[np.argsort(group[nodes], kind="stable")]
    sketch, name = sketches(rows[nodes], words), group[nodes]
    hidden = np.zeros(group.max(initial=ALONE) + 1, bool)
    for step in range(1, int(np.bincount(name).max(initial=1))):
        alike = (sketch[:-step] == sketch[step:]).any(axis=1) & (name[:-step] == name[step:])
        hidden[name[step:][alike]] = True
    return np.where((group != ALONE) & ~np.append(hidden, False)[group], group, ALONE)


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

    A sum has few values then. A guess has all places with some of these values, and there is
    one guess for every choice of values.
    """
    nodes = np.unique(member.indices)
    at = csr_array(member[:, nodes].T).indices  # the sum that each node is in
    truth, sums = csr_array(x[nodes]), csr_array(csr_array(member) @ csr_array(x))[at]
    lengths, found = lengths_of(truth), np.zeros(len(nodes), bool)
    for row in range(len(nodes)):
        places = slice(*sums.indptr[row : row + 2])
        values, level = np.unique(np.round(sums.data[places], DIGITS), return_inverse=True)
        if len(values) > LEVELS:
            continue
        mine = truth[[row]].toarray().reshape(-1)[sums.indices[places]]
        inside, count = np.bincount(level, mine), np.bincount(level)
        some = choices(len(values))
        found[row] = (some @ inside > CLOSE * lengths[row] * np.sqrt(some @ count)).any()
    return found


def choices(count: int) -> Float[Array, "choices count"]:
    """All ways to take some of so many things."""
    return np.array(list(product((0.0, 1.0), repeat=count)))[1:]


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
