from __future__ import annotations

import numpy as np
import pytest

from fedsage.data.load import load
from fedsage.data.synthetic import synthetic
from fedsage.errors import ConfigError, DataError
from fedsage.graph.assign import assign
from fedsage.graph.graph import Graph
from fedsage.graph.partition import by_owner, label_skew_of, missing_links, partition
from fedsage.rng import generator

WAYS = ("louvain", "metis", "random", "label")


@pytest.fixture(scope="module")
def larger() -> Graph:
    return synthetic(nodes=600, classes=4, features=50)


@pytest.mark.parametrize("how", WAYS)
def test_every_node_has_one_owner_and_every_link_is_kept_or_missing(
    larger: Graph, how: str
) -> None:
    part = partition(larger, 5, how, seed=1)
    nodes = np.concatenate(part.nodes)
    assert sorted(nodes.tolist()) == list(range(larger.num_nodes))
    kept = sum(graph.num_links for graph in part.subgraphs)
    assert kept + part.missing_links == larger.num_links
    for graph, ids in zip(part.subgraphs, part.nodes, strict=True):
        assert (graph.y == larger.y[ids]).all()


@pytest.mark.parametrize("how", WAYS)
def test_owners_depend_on_the_seed_alone(larger: Graph, how: str) -> None:
    first, again, other = (assign(larger, 4, how, seed) for seed in (3, 3, 4))
    assert (first == again).all()
    assert (first != other).any()


def test_missing_links_are_those_between_owners(graph: Graph) -> None:
    owner = np.arange(graph.num_nodes) % 2
    slow = sum(owner[a] != owner[b] for a, b in graph.links.T)
    assert missing_links(graph, by_owner(graph, owner, 2, "by hand", 0).subgraphs) == slow


@pytest.mark.parametrize("how", ["louvain", "metis"])
@pytest.mark.parametrize("owners", [3, 5, 10])
def test_communities_make_owners_of_similar_size_with_few_missing_links(
    larger: Graph, how: str, owners: int
) -> None:
    part = partition(larger, owners, how, seed=0)
    sizes = np.array([len(ids) for ids in part.nodes])
    assert sizes.max() / sizes.mean() <= 1.15
    assert sizes.min() / sizes.mean() >= 0.5
    assert part.missing_links < 0.8 * partition(larger, owners, "random", 0).missing_links


@pytest.mark.dataset
@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "msacademic"])
@pytest.mark.parametrize("how", ["louvain", "metis"])
def test_real_graphs_are_cut_into_owners_of_similar_size(name: str, how: str) -> None:
    graph = load(name)
    for owners in (3, 5, 10):
        sizes = np.bincount(assign(graph, owners, how, 0))
        assert sizes.max() / sizes.mean() <= 1.15


def test_one_clique_is_cut_though_it_has_one_community() -> None:
    pairs = np.array([(a, b) for a in range(20) for b in range(a)]).T
    clique = Graph.from_arrays(np.eye(20, dtype=np.float32), pairs, np.arange(20) % 2)
    part = partition(clique, 2, "louvain", 0)
    assert [len(ids) for ids in part.nodes] == [10, 10]


def test_a_smaller_concentration_skews_labels_more(larger: Graph) -> None:
    mild, strong = (label_skew_of(partition(larger, 3, f"label:{b}")) for b in (100, 0.3))
    assert strong.mean() > 2 * mild.mean()


@pytest.mark.parametrize(
    ("owners", "how", "says"),
    [
        (3, "louvian", "Did you mean 'louvain'"),
        (13, "random", "60 nodes cannot be cut for 13 owners"),
        (0, "random", "Ask for 1 to 12 owners"),
        (3, "label:zero", "must be a number above 0"),
        (3, "random:2", "takes no parameter"),
        (12, "label:0.001", "fewer owners or a larger"),
    ],
)
def test_what_cannot_be_cut_is_refused(graph: Graph, owners: int, how: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        partition(graph, owners, how)


@pytest.mark.parametrize("how", ["louvain", "metis", "random"])
def test_no_owner_is_too_small_however_many_there_are(how: str) -> None:
    for nodes in (60, 84):
        graph = synthetic(nodes=nodes, classes=3, features=20)
        for owners in range(1, nodes // 5 + 1):
            sizes = np.bincount(assign(graph, owners, how, 0), minlength=owners)
            assert sizes.min() >= 5


def test_owners_hold_what_their_nodes_induce(graph: Graph) -> None:
    owner = generator(0, "owners").integers(4, size=graph.num_nodes)
    part = by_owner(graph, owner, 5, "by hand", 0)  # the fifth has nothing
    for i, (ids, cut) in enumerate(zip(part.nodes, part.subgraphs, strict=True)):
        expected = graph.adjacency[ids][:, ids].tocsr()
        expected.sort_indices()
        assert ids.tolist() == np.flatnonzero(owner == i).tolist()
        assert cut.indptr.tolist() == expected.indptr.tolist()
        assert cut.indices.tolist() == expected.indices.tolist()
        assert cut.y.tolist() == graph.y[ids].tolist() and (cut.x != graph.x[ids]).nnz == 0
    assert part.missing_links == sum(owner[a] != owner[b] for a, b in graph.links.T)


def test_owners_can_be_ones_own(larger: Graph) -> None:
    names = np.array(["south", "north", "west"])[np.arange(600) % 3]
    by_name, by_number = (
        partition(larger, owner=names),
        partition(larger, owner=(names == "west") + 0),
    )
    assert by_name.num_owners == 3 and by_name.how == "own"
    assert [set(names[ids]) for ids in by_name.nodes] == [{"north"}, {"south"}, {"west"}]
    assert by_number.num_owners == 2
    own = assign(larger, 4, "random", 0)
    ours = partition(larger, 4, "random", 0)
    for mine, theirs in zip(partition(larger, owner=list(own)).nodes, ours.nodes, strict=True):
        assert np.array_equal(mine, theirs)


def test_what_is_wrong_with_owners_of_ones_own_is_said(larger: Graph) -> None:
    with pytest.raises(DataError, match=r"owner has shape \(3,\), but the graph has 600 nodes"):
        partition(larger, owner=[0, 1, 2])
    with pytest.raises(DataError, match="owner is -1 at node 5"):
        partition(larger, owner=np.where(np.arange(600) == 5, -1, 0))
    with pytest.raises(DataError, match=r"type float64.*whole numbers or names"):
        partition(larger, owner=np.full(600, np.nan))
    with pytest.raises(DataError, match="names 2 owners, but num_owners is 3"):
        partition(larger, 3, owner=np.arange(600) % 2)
    with pytest.raises(ConfigError, match="num_owners=3, or owner=vector"):
        partition(larger)


def test_a_partition_and_a_graph_say_what_they_are_in_a_line(larger: Graph) -> None:
    part = partition(larger, 9, "random", 0)
    assert repr(part).startswith("Partition(9 random owners of 67, 67, 67, 67, 67, …, 66 nodes")
    assert f"{part.missing_links:,} links between owners)" in repr(part)
    assert repr(larger).startswith("Graph(600 nodes, ")
    assert "50 features (sparse), 4 classes)" in repr(larger)
    assert "Split(1 train, 0 val, 2 test)" in repr(larger.with_split([0], [], [1, 2]))
    for shown in (part._repr_html_(), larger._repr_html_()):
        assert shown.count("<tr>") == shown.count("</tr>") > 4 and len(shown) < 2000
