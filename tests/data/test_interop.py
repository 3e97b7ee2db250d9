from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import torch

from fedsage.data.npz import content_sha256
from fedsage.errors import DataError, DataErrors
from fedsage.graph.graph import Graph
from fedsage.graph.partition import partition
from fedsage.tables.schema import Feature, Schema


def pyg(graph: Graph, **changes: object) -> SimpleNamespace:
    """What ``torch_geometric.data.Data`` would hold: every link in both directions."""
    links = torch.from_numpy(np.concatenate([graph.links, graph.links[::-1]], axis=1))
    x = torch.from_numpy(graph.x.toarray())
    held = {"x": x, "edge_index": links, "y": torch.from_numpy(graph.y.copy())} | changes
    return SimpleNamespace(**held)


def test_a_pyg_graph_is_the_same_graph(graph: Graph) -> None:
    back = Graph.from_pyg(pyg(graph), graph.class_names)
    assert np.array_equal(back.x, graph.x.toarray())
    assert np.array_equal(back.indices, graph.indices) and np.array_equal(back.y, graph.y)


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_features_of_pyg_stay_sparse(graph: Graph, layout: str) -> None:
    x = torch.from_numpy(graph.x.toarray())
    x = x.to_sparse_coo() if layout == "coo" else x.to_sparse_csr()
    back = Graph.from_pyg(pyg(graph, x=x), graph.class_names)
    assert content_sha256(back) == content_sha256(graph)


def test_pyg_labels_may_be_a_column_or_missing(graph: Graph) -> None:
    column = torch.from_numpy(graph.y.copy())[:, None]
    assert np.array_equal(Graph.from_pyg(pyg(graph, y=column)).y, graph.y)
    assert (Graph.from_pyg(pyg(graph, y=None)).y == -1).all()


def test_a_pyg_graph_without_links_says_what_is_missing(graph: Graph) -> None:
    with pytest.raises(DataError, match=r"has no edge_index.*to_homogeneous"):
        Graph.from_pyg(pyg(graph, edge_index=None))


def club() -> nx.Graph:
    network = nx.karate_club_graph()
    for node, held in network.nodes(data=True):
        held["x"] = [float(node), 1.0]
        held["age"] = 20 + node
    return network


def test_a_networkx_graph_keeps_nodes_links_and_classes() -> None:
    network = club()
    del network.nodes[3]["club"]
    graph = Graph.from_networkx(network, label="club")
    assert graph.num_nodes == 34 and graph.num_links == network.number_of_edges()
    assert graph.class_names == ("Mr. Hi", "Officer") and graph.y[3] == -1
    assert graph.x[7].tolist() == [7, 1]
    assert Graph.from_networkx(network, ["age", "x"], "club").x[7].tolist() == [27, 7, 1]


def test_directed_and_double_links_count_once() -> None:
    network = nx.MultiDiGraph()
    network.add_node("a", x=[1.0])
    network.add_node("b", x=[2.0])
    network.add_edges_from([("a", "b"), ("b", "a"), ("a", "b")])
    assert Graph.from_networkx(network).num_links == 1


def test_what_a_network_lacks_is_named() -> None:
    network = club()
    with pytest.raises(DataError, match=r"Node 0 has no attribute 'agee'. Did you mean 'age'"):
        Graph.from_networkx(network, ["agee"])
    with pytest.raises(DataError, match=r"Unknown class 'Officer'"):
        Graph.from_networkx(network, label="club", class_names=["Mr. Hi"])
    network.nodes[5]["x"] = [1.0]
    with pytest.raises(DataError, match="equally many numbers"):
        Graph.from_networkx(network)
    with pytest.raises(DataError, match="no nodes"):
        Graph.from_networkx(nx.Graph())


NODES = {
    "id": [1, 2, 3, 4],
    "age": [30.0, 50.0, 40.0, None],
    "ward": ["north", "south", "north", "south"],
    "label": ["ill", None, "well", "ill"],
}
EDGES = {"source": [1, 2], "target": [2, 4]}


@pytest.mark.parametrize("wrap", [dict, pa.table], ids=["dict", "arrow"])
def test_tables_in_memory_make_a_graph(wrap: type) -> None:
    graph = Graph.from_tables(wrap(NODES), wrap(EDGES))
    assert graph.class_names == ("ill", "well") and graph.y.tolist() == [0, -1, 1, 0]
    assert graph.links.tolist() == [[0, 1], [1, 3]]
    scaled = (np.array([30, 50, 40]) - 40) / np.std([30, 50, 40])
    np.testing.assert_allclose(graph.x[:, 0], [*scaled, 0], rtol=1e-6)
    assert graph.x[:, 1:].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]


def test_pandas_tables_make_the_same_graph() -> None:
    pandas = pytest.importorskip("pandas")
    nodes = pandas.DataFrame(NODES).astype({"ward": "category"})
    graph = Graph.from_tables(nodes, pandas.DataFrame(EDGES))
    assert content_sha256(graph) == content_sha256(Graph.from_tables(NODES, EDGES))


def test_numpy_columns_and_sparse_features_are_taken() -> None:
    nodes = {"id": np.arange(3), "label": np.array(["a", "b", "a"])}
    sparse = {"id": [0, 2], "feature": ["iron", "zinc"], "value": np.array([1.5, 2.0])}
    graph = Graph.from_tables(nodes, {"source": [0], "target": [1]}, sparse)
    assert graph.x.toarray().tolist() == [[1.5, 0], [0, 0], [0, 2]]


def test_tables_in_memory_are_checked_by_row() -> None:
    schema = Schema((Feature("age", "number"),), ("ill", "well"), ignored=("ward",))
    with pytest.raises(DataErrors, match="nodes, row 4, column age: is empty"):
        Graph.from_tables(NODES, EDGES, schema=schema)
    with pytest.raises(DataErrors, match="edges, row 1, column target: '7' is not the id"):
        Graph.from_tables(NODES, {"source": [1], "target": [7]})
    with pytest.raises(DataErrors, match="edges: int is not a table"):
        Graph.from_tables(NODES, 3)


def thirds(graph: Graph) -> dict[str, torch.Tensor]:
    """Masks as PyG has them."""
    third = torch.arange(graph.num_nodes) % 3
    return {f"{part}_mask": third == k for k, part in enumerate(("train", "val", "test"))}


def test_masks_of_pyg_become_the_split_of_every_owner(graph: Graph) -> None:
    whole = Graph.from_pyg(pyg(graph, **thirds(graph)), graph.class_names)
    assert whole.split is not None and whole.split.val.tolist() == list(range(1, 60, 3))
    part = partition(whole, 3, "random", 0)
    for ids, split in zip(part.nodes, part.splits, strict=True):
        assert split is not None
        assert set(ids[split.train] % 3) == {0} and set(ids[split.test] % 3) == {2}
    assert sum(len(split.val) for split in part.splits if split) == 20
    assert Graph.from_pyg(pyg(graph, **thirds(graph)), split=None).split is None


def test_of_several_splits_one_is_chosen_and_the_others_are_named(graph: Graph) -> None:
    masks = {
        name: torch.stack([mask, mask.roll(1)], dim=1) for name, mask in thirds(graph).items()
    }
    with pytest.warns(UserWarning, match=r"left out: 1 more split \(took split 1\)"):
        second = Graph.from_pyg(pyg(graph, **masks), split=1)
    assert second.split is not None and second.split.train[0] == 1
    with pytest.raises(DataError, match=r"the masks hold 2 splits. Take 0 to 1, or None"):
        Graph.from_pyg(pyg(graph, **masks), split=2)
    masks["test_mask"] = torch.zeros(60, dtype=torch.bool)  # the same in all splits
    with pytest.warns(UserWarning, match="1 more split"):
        assert repr(Graph.from_pyg(pyg(graph, **masks)).split).endswith("0 test)")


def test_what_a_pyg_graph_loses_is_said(graph: Graph) -> None:
    links = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 3]])
    data = pyg(graph, edge_index=links, edge_weight=torch.ones(4), pos=torch.zeros(60, 2))
    words = "left out: edge_weight, pos, 1 link from a node to itself, directions of links"
    with pytest.warns(UserWarning, match=words):
        assert Graph.from_pyg(data).num_links == 2


def test_a_split_of_ones_own_is_checked(graph: Graph) -> None:
    with pytest.raises(DataError, match=r"mask train has shape \(3,\).*60 nodes"):
        graph.with_split([True, False, True], [], [])
    with pytest.raises(DataError, match=r"1 node in more than one part.*node 3 \(in train and"):
        graph.with_split([1, 3], [3], [4])
    with pytest.raises(DataError, match="test names node 60, but nodes are numbered 0 to 59"):
        graph.with_split([1], [2], [60])
    with pytest.raises(DataError, match="Give a mask of True and False, or a list"):
        graph.with_split([0.5], [2], [3])
    bare = replace(graph, y=np.where(np.arange(60) == 7, -1, graph.y))
    with pytest.raises(DataError, match=r"val holds 1 node without a label.*node 7"):
        bare.with_split([1], [7], [3])


@pytest.mark.slow
def test_a_graph_goes_to_pyg_and_back(graph: Graph) -> None:
    pytest.importorskip("torch_geometric")
    whole = graph.with_split(range(20), range(20, 40), range(40, 60))
    for dense in (True, False):
        data = whole.to_pyg(dense)
        data.validate()
        assert data.num_edges == 2 * graph.num_links and data.is_undirected()
        back = Graph.from_pyg(data, graph.class_names)
        assert np.array_equal(back.indices, graph.indices) and np.array_equal(back.y, graph.y)
        x = back.x if dense else back.x.toarray()
        assert np.array_equal(x, graph.x.toarray())
        assert back.split is not None and back.split.test.tolist() == list(range(40, 60))
    assert partition(whole, 2, "random").subgraphs[0].to_pyg().train_mask.sum() > 0
