"""Nodes that come after a run: their known links get what links got in the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedsage.config import MendConfig, NeighGenConfig
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import DataError
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import RemoteLinks
from fedsage.graph.mend import Generated
from fedsage.graph.partition import Partition, partition
from fedsage.graph.surroundings import with_surroundings
from fedsage.mending.links.groups import class_guesses
from fedsage.mending.links.leaves import LINKS, for_new_nodes
from fedsage.mending.links.likely_rows import likely_rows
from fedsage.mending.links.received import fingerprints
from fedsage.mending.links.steps import by_links, guesses_of, work
from fedsage.mending.way import NewNodes
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.owner import DataOwner
from fedsage.rng import generator
from fedsage.runs.stored_graph import answering_of, load_answering, save_answering
from tests.small import owners_of, small_setup

NOBODY = "nobody's"


@pytest.fixture
def parts(graph: Graph) -> Partition:
    return partition(graph, 4, how="random", seed=1)


@pytest.fixture
def owner(graph: Graph, parts: Partition) -> DataOwner:
    setup = small_setup(graph, parts, "links")
    owners = owners_of(setup)
    by_links(Exchange(InProcessEngine(owners), setup.plan))
    return owners[0]


def new_nodes(owner: DataOwner, graph: Graph, remote: RemoteLinks) -> NewNodes:
    """Two nodes that look like the first two of G; the first one is linked to a node here."""
    y, among, into = np.full(2, -1), np.empty((2, 0), np.int64), np.array([[0], [3]])
    around = with_surroundings(owner.graph, graph.x[:2], y, among, into, reach=2)
    held = answering_of(owner, "0", [], "mended", "links").graph
    settings = owner.remembered, MendConfig(), NeighGenConfig(), generator(0, "test")
    return NewNodes(around, np.arange(2), remote, held, *settings)


def rows_at(found: Generated, node: int) -> np.ndarray:
    return np.asarray(found.x[found.parents == node].toarray())


def test_a_new_link_gets_the_row_that_the_run_would_have_attached(
    graph: Graph, owner: DataOwner
) -> None:
    held, (here, node, _) = work(owner).held, work(owner).neighbors()
    names = {int(one): name for name, one in zip(
        work(owner).ends.names.tolist(), held.places(fingerprints(work(owner).ends.names)),
        strict=True)}  # fmt: skip
    both = np.flatnonzero(held.group == held.group[node[0]])  # two nodes of one sum
    there = (*(names[int(one)] for one in both), names[int(both[0])], NOBODY)
    places = np.array([0, 1, 0, 1])
    found = for_new_nodes(new_nodes(owner, graph, RemoteLinks(places, there, ("",) * 4)))

    own = owner.graph  # with the new nodes behind the others, and their links
    x = np.concatenate([own.x.toarray(), graph.x[:2].toarray()])
    y = np.concatenate([own.y, [-1, -1]])
    new = own.num_nodes + np.arange(2)
    truth = likely_rows(
        held,
        np.concatenate([here, new]),
        np.concatenate([node, both]),
        x,
        class_guesses(x, y, owner.split.train, own.num_classes),
        0,
    )
    assert found.parents.tolist() == [0, 1]  # a link that is listed twice is one
    assert np.allclose(rows_at(found, 0), truth[both[[0]]], atol=1e-6)
    assert np.allclose(rows_at(found, 1), truth[both[[1]]], atol=1e-6)
    mean = held.means[held.group[both[0]]]
    assert not np.allclose(truth[both[0]], mean) and not np.allclose(truth[both[1]], mean)
    before = likely_rows(held, here, node, own.x, guesses_of(owner), 0).toarray()
    assert not np.allclose(truth[both], before[both])  # a new neighbor says more about a node


def test_new_nodes_without_a_link_that_is_found_get_a_copy_of_themselves(
    graph: Graph, owner: DataOwner
) -> None:
    remote = RemoteLinks(np.array([1]), (NOBODY,), ("",))
    found = for_new_nodes(new_nodes(owner, graph, remote))
    assert found.parents.tolist() == [0, 1]
    assert np.array_equal(found.x.toarray(), graph.x[:2].toarray())


def test_the_heaviest_of_equal_links_counts(graph: Graph, owner: DataOwner) -> None:
    got = [one for one in work(owner).ends.names.tolist() if work(owner).held.of([one])[0] >= 0]
    there, weights = (got[0], got[0]), np.array([2.0, 5.0], np.float32)
    remote = RemoteLinks(np.zeros(2, np.int64), there, ("", ""), weights)
    found = for_new_nodes(new_nodes(owner, graph, remote))
    assert found.weights is not None
    assert found.weights[found.parents == 0].tolist() == [5.0]


def test_what_is_kept_on_disk_is_enough(
    graph: Graph, owner: DataOwner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    ids = [str(v) for v in range(owner.graph.num_nodes)]
    save_answering(answering_of(owner, "0", ids, "mended", "links"), folder)
    got = [one for one in work(owner).ends.names.tolist() if work(owner).held.of([one])[0] >= 0]
    remote = RemoteLinks(np.zeros(1, np.int64), (got[0],), ("",))
    new, kept = new_nodes(owner, graph, remote), load_answering(folder)
    later = NewNodes(new.graph, new.nodes, remote, kept.graph, kept.remembered, new.mend,
                     new.neighgen, new.stream)  # fmt: skip
    assert np.array_equal(for_new_nodes(new).x.toarray(), for_new_nodes(later).x.toarray())


def test_a_run_of_an_earlier_version_is_told_from_this_one(
    graph: Graph, owner: DataOwner
) -> None:
    asked = new_nodes(owner, graph, RemoteLinks(np.array([0]), (NOBODY,), ("",)))
    before = {name: one for name, one in asked.remembered.items() if name != LINKS}
    with pytest.raises(DataError, match=r"earlier version.*Run fedsage"):
        for_new_nodes(replace(asked, remembered=before))
