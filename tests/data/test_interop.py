from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import torch

from fedsage.data.npz import content_sha256
from fedsage.errors import DataError, DataErrors
from fedsage.graph.graph import Graph
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
