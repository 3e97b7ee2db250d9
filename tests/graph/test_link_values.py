"""Weights and times of links: against slow loops, and nothing where there are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedsage as fs
from fedsage.config import ModelConfig
from fedsage.data.npz import load_graph, save_graph
from fedsage.errors import ConfigError, DataError, DataErrors
from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated, mend
from fedsage.graph.sampling import full_mean, sample_hop
from fedsage.graph.surroundings import with_surroundings
from fedsage.models.backbone import Shape, feature_rows, new_model
from fedsage.rng import generator
from fedsage.tables.schema import read_schema
from fedsage.tables.tables import read_tables
from fedsage.tables.write import write_tables

PAIRS = [(0, 1), (1, 2), (2, 0), (3, 1), (4, 3), (5, 2), (1, 5)]
WEIGHTS = [2.0, 0.5, 1.0, 4.0, 1.5, 3.0, 0.25]
DAYS = [1.0, 2.0, 3.0, np.nan, 5.0, 6.0, 7.0]


def small(weights: Any = WEIGHTS, times: Any = None) -> Graph:
    x = np.arange(12, dtype=float).reshape(6, 2) ** 1.5 / 10
    y = np.array([0, 1, 0, 1, 0, 1])
    given = [None if one is None else np.array(one) for one in (weights, times)]
    return Graph.from_arrays(x, np.array(PAIRS).T, y, (), "small", *given)


def weight_of(a: int, b: int) -> float | None:
    for (u, v), weight in zip(PAIRS, WEIGHTS, strict=True):
        if {a, b} == {u, v}:
            return weight
    return None


def slow_means(graph: Graph, ids: list[int]) -> np.ndarray:
    """The weighted mean over neighbors, by loops over the list of links."""
    found = np.zeros((len(ids), graph.x.shape[1]))
    for i, a in enumerate(ids):
        near = [(j, w) for j, b in enumerate(ids) if (w := weight_of(a, b)) is not None]
        for j, weight in near:
            found[i] += weight * graph.x[j] / sum(w for _, w in near)
    return found


def test_means_over_all_neighbors_are_weighted() -> None:
    graph = small()
    np.testing.assert_allclose(
        full_mean(graph) @ graph.x, slow_means(graph, list(range(6))), rtol=1e-6
    )


@pytest.mark.parametrize("nodes", [[5, 1, 0, 3], [0, 1, 2, 3], [2]])
def test_a_part_of_a_graph_keeps_the_weights_of_its_links(nodes: list[int]) -> None:
    part = small().induced(np.array(nodes))
    np.testing.assert_allclose(full_mean(part) @ part.x, slow_means(part, nodes), rtol=1e-6)


def test_neighbors_are_drawn_as_often_as_their_links_weigh() -> None:
    graph, draws = small(), 40_000
    hop = sample_hop(graph, np.arange(6), draws, generator(0, "draws"))
    drawn = hop.mean.toarray()[:, np.argsort(hop.inputs)]
    np.testing.assert_allclose(drawn, full_mean(graph).toarray(), atol=0.015)


@pytest.mark.slow
@pytest.mark.parametrize("same", [1.0, 0.3])
def test_weights_that_are_all_the_same_change_no_bit(same: float) -> None:
    plain, weighted = small(None), small([same] * len(PAIRS))
    assert weighted.weights is None and plain.same_nodes(weighted)
    settings = {"model": {"widths": [8, 4]}, "classifier": {"rounds_c": 2}}
    owner = [0, 0, 0, 1, 1, 1]
    split = [np.arange(4), np.array([4]), np.array([5])]
    found = [
        fs.run(
            fs.partition(graph.with_split(*split), owner=owner), "fedsage", settings=settings
        ).record.model_sha256
        for graph in (plain, weighted)
    ]
    assert found[0] == found[1]


def test_a_link_that_is_listed_twice_has_its_largest_weight_and_earliest_time() -> None:
    links = np.array([[0, 1, 0, 2, 2], [1, 0, 1, 1, 2]])
    graph = Graph.from_arrays(
        np.eye(3), links, np.zeros(3, int), weights=np.array([1, 5, 2, 3, 9]),
        times=np.array([4, np.nan, 2, np.nan, 1]),
    )  # fmt: skip
    assert graph.links.tolist() == [[0, 1], [1, 2]]
    values = graph.link_values
    assert values.weights is not None and values.weights.tolist() == [5, 3]
    assert values.times is not None and values.times[0] == 2 and np.isnan(values.times[1])


@pytest.mark.parametrize("bad", [[0.0], [-1.0], [np.nan], [np.inf], [1.0, 2.0]])
def test_other_numbers_are_no_weights(bad: list[float]) -> None:
    with pytest.raises(DataError, match="weight"):
        ends = np.array([[0], [1]])
        Graph.from_arrays(np.eye(2), ends, np.zeros(2, int), weights=np.array(bad))


def test_a_generated_neighbor_weighs_like_the_others_of_its_node() -> None:
    graph = small()
    made = mend(graph, Generated(np.array([0, 0, 3]), np.ones((3, 2), np.float32)))
    mean = full_mean(made).toarray()
    np.testing.assert_allclose(mean[0, [6, 7]], 1 / 4)  # two real ones, two generated
    np.testing.assert_allclose(mean[0, :6], full_mean(graph).toarray()[0] / 2, rtol=1e-6)
    np.testing.assert_allclose(mean[3, 8], 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(mean[8, 3], 1)


def test_new_nodes_bring_the_weights_of_their_links() -> None:
    graph = small()
    into = np.array([[0, 0], [1, 4]])
    around = with_surroundings(
        graph, np.zeros((1, 2), np.float32), np.array([-1]), np.zeros((2, 0), int), into, 2,
        np.array([3.0, 1.0]),
    )  # fmt: skip
    mean = full_mean(around).toarray()
    assert sorted(mean[0][mean[0] > 0].tolist()) == [0.25, 0.75]
    whole = with_surroundings(
        graph, np.zeros((1, 2), np.float32), np.array([-1]), np.zeros((2, 0), int), into, None,
        np.array([3.0, 1.0]),
    )  # fmt: skip
    row = full_mean(whole).toarray()[2]  # node 1, after the new one
    total = 2 + 0.5 + 4 + 0.25 + 3
    np.testing.assert_allclose(row, np.array([3, 2, 0, 0.5, 4, 0, 0.25]) / total, rtol=1e-6)


@pytest.mark.parametrize("backbone", ["graphsage", "gcn", "gat", "propagate", "mix"])
@pytest.mark.parametrize("kernel", ["auto", "torch"])
def test_queries_on_all_neighbors_are_what_many_draws_come_to(
    backbone: str, kernel: Any
) -> None:
    graph = small()
    model = ModelConfig(backbone=backbone, widths=(8, 4), heads=2)
    made = new_model(Shape(2, 2, model), generator(0, "phi"), "cpu", kernel)
    full, draws = made.on_graph(graph), 20_000
    hops = [sample_hop(graph, np.arange(6), draws, generator(1, "draws"))]
    hops = [replace(hops[0], inputs=hops[0].inputs)] * 2
    assert hops[0].inputs.tolist() == list(range(6))
    with torch.no_grad():
        sampled = made.on_hops(feature_rows(graph.x, hops[0].inputs, made.device), hops)
    torch.testing.assert_close(full, sampled, rtol=0.03, atol=0.03)
    unweighted = made.on_graph(small(None))
    assert not torch.allclose(full, unweighted, atol=1e-3)
    torch.testing.assert_close(made.on_graph(graph, np.array([3, 1])), full[[3, 1]])


def test_files_keep_weights_and_times(tmp_path: Path) -> None:
    graph = small(times=DAYS)
    save_graph(graph, tmp_path / "graph.npz")
    assert load_graph(tmp_path / "graph.npz").same_nodes(graph)
    assert not small().same_nodes(graph)


def test_as_of_a_day_later_links_are_not_there_yet() -> None:
    graph = small(times=DAYS)
    then = graph.as_of(3.0)
    kept = sorted(map(tuple, np.sort(then.links.T, axis=1).tolist()))
    assert kept == [(0, 1), (0, 2), (1, 2), (1, 3)]  # the last one's time is not known
    assert graph.as_of(99).same_nodes(graph)
    nodes = full_mean(then).toarray()[1]
    np.testing.assert_allclose(nodes, np.array([2, 0, 0.5, 4, 0, 0]) / 6.5, rtol=1e-6)
    with pytest.raises(DataError, match="does not know when its links came to be"):
        small().as_of(3.0)


SCHEMA = """classes = ["a", "b"]
weight = "hours"
time = "since"
[features]
age = { kind = "number", scaling = "none" }
"""


def write_owner(folder: Path, rows: str, schema: str = SCHEMA) -> Path:
    folder.mkdir(parents=True)
    (folder / "schema.toml").write_text(schema)
    nodes = "\n".join(f"p{i},{i},{'ab'[i % 2]}" for i in range(6))
    (folder / "nodes.csv").write_text(f"id,age,label\n{nodes}\n")
    (folder / "edges.csv").write_text(f"source,target,hours,since\n{rows}")
    return folder


GOOD = "p0,p1,2,2000-01-02\np1,p2,0.5,2000-01-03 12:00\np3,p1,4,\n"


def test_tables_have_columns_of_weights_and_times(tmp_path: Path) -> None:
    tables = read_tables(write_owner(tmp_path / "a", GOOD))
    assert tables.values.weights is not None and tables.values.weights.tolist() == [2, 0.5, 4]
    assert tables.values.times is not None and tables.values.times[:2].tolist() == [1, 2.5]
    write_tables(tables, tmp_path / "b")
    again = read_tables(tmp_path / "b")
    assert again.sha256 == tables.sha256
    graph = fs.load(str(tmp_path / "a"))
    assert graph.same_nodes(fs.load(str(tmp_path / "b"))) and graph.weights is not None
    part = tables.induced(np.array([1, 3]))
    assert part.values.weights is not None and part.values.weights.tolist() == [4]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("p0,p1,0,2000-01-02\n", "'0' is not a weight. Give a number above 0."),
        ("p0,p1,-3,2000-01-02\n", "'-3' is not a weight"),
        ("p0,p1,,2000-01-02\n", "is empty. Give every link a weight"),
        ("p0,p1,much,2000-01-02\n", "'much' is not a number"),
        ("p0,p1,1,soon\n", "'soon' is not a date"),
    ],
)
def test_what_is_no_weight_or_no_date_is_named(row: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataErrors) as caught:
        read_tables(write_owner(tmp_path / "a", row))
    assert len(caught.value.lines) == 1 and says in caught.value.lines[0]


def test_a_table_without_the_column_of_weights_is_refused(tmp_path: Path) -> None:
    folder = write_owner(tmp_path / "a", GOOD)
    (folder / "edges.csv").write_text("source,target,since\np0,p1,2000-01-02\n")
    with pytest.raises(DataErrors, match="has no column 'hours'"):
        read_tables(folder)
    twice = SCHEMA.replace('time = "since"', 'time = "hours"')
    (folder / "schema.toml").write_text(twice)
    with pytest.raises(DataErrors, match="the name is already in use"):
        read_schema(folder / "schema.toml")


def test_compiled_steps_know_no_weights_and_say_so() -> None:
    parts = fs.partition(small(), owner=[0, 0, 0, 1, 1, 1])
    with pytest.raises(ConfigError, match="'fused', but that kernel does not support weights"):
        fs.run(parts, "fedsage", settings={"run": {"kernel": "fused"}})
