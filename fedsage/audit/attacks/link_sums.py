"""Sums over remote neighbors: combined, they may show single rows of other owners."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, vstack

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.graph.graph import Graph
from fedsage.graph.known import known_links
from fedsage.mending.link_parts import bounded, lengths_of, may_be_summed
from fedsage.mending.link_rows import Sums, safe_sums
from fedsage.shapes import Array, NodeFeatures, SparseMatrix

ATTEMPT = Attempt(
    "link-sums",
    "curious owner",
    "the sums over remote neighbors that it got, and which nodes are in them",
    "rows with cosine > 0.99",
)
CLOSE = 0.99


@attack("link-sums")
def link_sums(case: Case) -> Finding:
    """Rows of other owners, solved for from sums."""
    if not case.setup.way.abroad or case.setup.graph is None:
        return ATTEMPT.not_run("this run does not use known links")
    rebuilt = members = 0
    for i in case.attacked:
        sums, x = sums_of(case, case.setup.graph, i)
        members += len(sums.nodes)
        rebuilt += count_shown(sums, x)
    note = f"of {members} rows that are in sums"
    return ATTEMPT.found(rebuilt, 0, rebuilt > 0, note=note)


def sums_of(case: Case, graph: Graph, owner: int) -> tuple[Sums, NodeFeatures]:
    """What an owner asked for, and the rows of all nodes as others summed them."""
    setup = case.setup
    links = known_links(graph, setup.owners.nodes, setup.config.links.share, case.plan.seed)
    whose, found = np.empty(graph.num_nodes, np.int64), np.zeros(graph.num_nodes, bool)
    for j, (ids, part) in enumerate(zip(setup.owners.nodes, case.graphs, strict=True)):
        whose[ids], found[ids[may_be_summed(part.x)]] = j, True
    order = np.argsort(np.concatenate(setup.owners.nodes))
    rows = vstack([csr_array(bounded(part.x)) for part in case.graphs]).tocsr()[order]
    there = np.array([int(name) for name in links[owner].there], dtype=np.int64)
    real = found[there]
    here, at_least = links[owner].here[real], setup.config.links.at_least
    return safe_sums(here, there[real], whose, at_least), rows


def count_shown(sums: Sums, x: NodeFeatures) -> int:
    """How many rows the best guess finds: of all rows that fit the sums, the shortest."""
    nodes, at = np.unique(sums.nodes, return_inverse=True)
    shape = len(sums.here), len(nodes)
    member = csr_array((np.ones(len(at)), (sums.row, at)), shape=shape)
    truth = csr_array(x[nodes])
    inverse = np.linalg.pinv((member @ member.T).toarray(), hermitian=True)
    guesses = csr_array(member.T @ (inverse @ (member @ truth).toarray()))
    return int((cosines(guesses, truth) > CLOSE).sum())


def cosines(first: SparseMatrix, second: SparseMatrix) -> Float[Array, " rows"]:
    """The cosine between rows of two matrices."""
    product = np.asarray(first.multiply(second).sum(axis=1)).reshape(-1)
    lengths = lengths_of(first) * lengths_of(second)
    return np.divide(product, lengths, out=np.zeros_like(lengths), where=lengths > 0)
