from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, issparse

from fedsage.data.load import load, load_owner_tables, owner_folders, tables_folder
from fedsage.data.npz import content_sha256, load_graph, save_graph
from fedsage.data.owned import load_owners
from fedsage.errors import DataError, DataErrors
from fedsage.graph.graph import Graph
from fedsage.graph.split import split_labels
from fedsage.rng import generator
from fedsage.tables.files import read_cells
from fedsage.tables.schema import Feature, Schema
from fedsage.tables.tables import (
    Tables,
    column_squares,
    column_sums,
    graph_of,
    mean_of,
    pooled_scale,
    read_tables,
    scale_of,
)
from fedsage.tables.write import tables_of, write_tables

FINE = {
    "schema.toml": """
classes = ["ill", "well"]
sparse = ["aspirin", "iron"]
ignored = ["name"]
[features]
age = { kind = "number" }
ward = { kind = "category", categories = ["north", "south"] }
dose = { kind = "number", scaling = "none", missing = "mean" }
""",
    "nodes.csv": """id,name,age,ward,dose,label,split
p1,Ann,30,north,1.5,ill,train
p2,"Bo, jr.",50,south,,well,val
p3,Cy,40,north,0.5,,
p4,Di,20,south,1,ill,test
""",
    "edges.csv": "source,target\np1,p2\np3,p4\np2,p1\n",
    "features.csv": "id,feature,value\np1,iron,2\np4,aspirin,0.5\n",
}


def folder_of(where: Path, **changes: str) -> Path:
    """The fine tables, with some files replaced; keywords are names without their ends."""
    where.mkdir(parents=True, exist_ok=True)
    for name, text in FINE.items():
        (where / name).write_text(changes.get(name.split(".")[0], text), encoding="utf-8")
    return where


def one_graph(tables: Tables) -> Graph:
    return graph_of(tables, pooled_scale([tables]))


def test_fine_tables_make_the_graph_they_describe(tmp_path: Path) -> None:
    tables = read_tables(folder_of(tmp_path))
    assert tables.ids == ("p1", "p2", "p3", "p4")
    assert tables.split is not None
    parts = (tables.split.train, tables.split.val, tables.split.test)
    assert [part.tolist() for part in parts] == [[0], [1], [3]]
    graph = one_graph(tables)
    assert graph.y.tolist() == [0, 1, -1, 0] and graph.class_names == ("ill", "well")
    assert graph.links.tolist() == [[0, 2], [1, 3]]
    std = np.std([30, 50, 40, 20])
    expected = [
        [(30 - 35) / std, 1, 0, 1.5, 0, 2],
        [(50 - 35) / std, 0, 1, 1.0, 0, 0],
        [(40 - 35) / std, 1, 0, 0.5, 0, 0],
        [(20 - 35) / std, 0, 1, 1.0, 0.5, 0],
    ]
    np.testing.assert_allclose(graph.x.toarray(), expected, rtol=1e-6)
    assert content_sha256(load(str(tmp_path))) == content_sha256(graph)


def test_a_schema_beside_the_folders_serves_all_owners(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a")
    (folder / "schema.toml").rename(tmp_path / "schema.toml")
    assert read_tables(folder).num_nodes == 4


def dense(num_nodes: int = 40) -> Graph:
    draws = generator(0, "dense")
    x = draws.normal(size=(num_nodes, 6)).astype(np.float32)
    links = draws.integers(num_nodes, size=(2, 90))
    return Graph.from_arrays(x, links, draws.integers(-1, 3, num_nodes), ["c", "a", "b"])


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_a_graph_survives_its_tables_bit_by_bit(
    tmp_path: Path, graph: Graph, format: str, kind: str
) -> None:
    whole = graph if kind == "sparse" else dense()
    split = split_labels(whole.y, 0.6, 0.2, 0, 0)
    ids = [f"n{v}" for v in range(whole.num_nodes)]
    write_tables(tables_of(whole, ids, split), tmp_path, format)  # type: ignore[arg-type]
    tables = read_tables(tmp_path)
    back = one_graph(tables)
    assert tables.ids == tuple(ids)
    assert content_sha256(back) == content_sha256(whole)
    assert back.class_names == whole.class_names and issparse(back.x) == issparse(whole.x)
    assert np.array_equal(back.indices, whole.indices)
    assert tables.split is not None
    for part in ("train", "val", "test"):
        assert np.array_equal(getattr(tables.split, part), getattr(split, part))


@pytest.mark.dataset
@pytest.mark.parametrize("name", ["cora", "pubmed"])
def test_a_dataset_survives_its_tables_bit_by_bit(tmp_path: Path, name: str) -> None:
    whole = load(name)
    ids = [str(v) for v in range(whole.num_nodes)]
    write_tables(tables_of(whole, ids), tmp_path)
    assert content_sha256(load(str(tmp_path))) == content_sha256(whole)


def test_rows_of_tables_make_the_induced_graph(tmp_path: Path) -> None:
    tables = read_tables(folder_of(tmp_path))
    scale = pooled_scale([tables])
    nodes = np.array([3, 0, 1])
    part = graph_of(tables.induced(nodes), scale)
    assert content_sha256(part) == content_sha256(graph_of(tables, scale).induced(nodes))


tiny = 1e-20  # squares below the last digit of sums are rounded off
values = st.one_of(
    st.floats(-1e6, 1e6, width=32).map(lambda v: 0.0 if abs(v) < tiny else v),
    st.just(float("nan")),
)


@pytest.mark.slow
@given(st.lists(st.lists(values, min_size=1, max_size=8), min_size=1, max_size=5))
def test_owners_agree_on_the_scale_of_the_pooled_table(owners: list[list[float]]) -> None:
    def tables(column: list[float]) -> Tables:
        n = len(column)
        return Tables(
            schema=Schema((Feature("f", "number", missing="mean"),), ("a",)),
            ids=tuple(map(str, range(n))),
            numbers=np.array(column, dtype=np.float64)[:, None],
            codes=np.zeros((n, 0), dtype=np.int64),
            sparse=tables_of(dense(n), [""] * n).sparse,
            y=np.full(n, -1),
            links=np.zeros((2, 0), dtype=np.int64),
            split=None,
        )

    each = [tables(column) for column in owners]
    counts, totals = zip(*(column_sums(one) for one in each), strict=True)
    count, total = sum(counts), sum(totals)
    mean = mean_of(count, total)
    agreed = scale_of(count, total, sum(column_squares(one, mean) for one in each))
    pooled = pooled_scale([tables([v for column in owners for v in column])])
    numbers = [v for column in owners for v in column if v == v]
    if numbers:
        largest = np.abs(numbers).max() + 1
        assert abs(agreed.mean[0] - np.mean(numbers)) <= 1e-12 * largest
        assert agreed.mean == pytest.approx(pooled.mean, rel=1e-12, abs=1e-12 * largest)
        assert agreed.std == pytest.approx(pooled.std, rel=1e-12, abs=1e-9 * largest)
    assert (agreed.std > 0).all()


def test_a_constant_column_is_scaled_to_zero(tmp_path: Path) -> None:
    nodes = "id,age,ward,dose\n" + "".join(f"p{i},0.1,north,1\n" for i in range(1, 8))
    tables = read_tables(folder_of(tmp_path, nodes=nodes))
    assert pooled_scale([tables]).std.tolist() == [1, 1]
    assert np.abs(one_graph(tables).x.toarray()[:, 0]).max() < 1e-12


def line(number: int, column: str, file: str = "nodes.csv") -> str:
    return f"{file}, line {number}, column {column}: "


def nodes(old: str, new: str) -> dict[str, str]:
    return {"nodes": FINE["nodes.csv"].replace(old, new)}


def edges(text: str) -> dict[str, str]:
    return {"edges": text}


def sparse(text: str) -> dict[str, str]:
    return {"features": f"id,feature,value\n{text}"}


MALFORMED: dict[str, tuple[dict[str, str], str]] = {
    "no id": (nodes("p3,", ","), line(4, "id") + "is empty"),
    "an id twice": (
        nodes("p3,", "p1,"),
        line(4, "id") + "'p1' appears twice, first in line 2",
    ),
    "an unknown class": (
        nodes("ill,train", "il,train"),
        line(2, "label") + "'il' is not a known class. Did you mean 'ill'?",
    ),
    "a word for a number": (nodes("50,", "fifty,"), line(3, "age") + "'fifty' is not a number"),
    "NaN": (nodes("50,", "NaN,"), line(3, "age") + "is empty. Fill it in, or give the"),
    "infinity": (nodes("50,", "inf,"), line(3, "age") + "'inf' is not a number"),
    "a decimal comma": (nodes("50,", '"5,0",'), line(3, "age") + "'5,0' is not a number"),
    "a thousands' mark": (nodes("50,", "1_000,"), line(3, "age") + "'1_000' is not a number"),
    "a unit": (nodes("50,", "50 kg,"), line(3, "age") + "'50 kg' is not a number"),
    "a number too large": (nodes("50,", "1e39,"), line(3, "age") + "'1e39' is too large"),
    "a number beyond all": (nodes("50,", "1e999,"), line(3, "age") + "'1e999' is too large"),
    "an empty number": (
        nodes("50,", ","),
        line(3, "age") + "is empty. Fill it in, or give the",
    ),
    "an empty category": (nodes("40,north", "40,"), line(4, "ward") + "is empty"),
    "an unknown category": (
        nodes("40,north", "40,nord"),
        line(4, "ward") + "'nord' is not a known category. Did you mean 'north'?",
    ),
    "an unknown split": (nodes(",val", ",valid"), line(3, "split") + "'valid' is not a part"),
    "a split without a class": (
        nodes("0.5,,", "0.5,,test"),
        line(4, "split") + "is 'test', but the node has no label",
    ),
    "a column not in the schema": (
        nodes("name", "weight"),
        "nodes.csv, column weight: is not in the schema. Add it to [features]",
    ),
    "a misspelt column": (nodes("dose", "doze"), "nodes.csv: has no column 'dose'"),
    "a column twice": (nodes("name", "age"), line(1, "age") + "appears twice"),
    "a column without a name": (nodes("name", ""), "nodes.csv, line 1, column 2: has no name"),
    "no column of ids": (nodes("id,", "patient,"), "nodes.csv: has no column 'id'"),
    "another separator": (
        {"nodes": FINE["nodes.csv"].replace(",", "/")},
        "nodes.csv: has no column 'id'. It has id/name/age/ward/dose/label/split",
    ),
    "too few cells": (
        nodes("p3,Cy,40,north,0.5,,", "p3,Cy,40"),
        "nodes.csv, line 4: has 3 cells, but the header has 7",
    ),
    "too many cells": (
        nodes('"Bo, jr."', "Bo, jr."),
        "nodes.csv, line 3: has 8 cells, but the header has 7",
    ),
    "an open quote": (nodes("Cy", '"Cy'), "nodes.csv, line 4: unreadable"),
    "an empty file": ({"nodes": ""}, "nodes.csv: is empty"),
    "no rows": ({"nodes": "id,age,ward,dose\n"}, "nodes.csv: has no rows"),
    "a link to nowhere": (
        edges("source,target\np1,p2\np1,p9\n"),
        line(3, "target", "edges.csv") + "'p9' is not the id of a node",
    ),
    "half a link": (
        edges("source,target\n,p2\n"),
        line(2, "source", "edges.csv") + "'' is not the id of a node",
    ),
    "links without targets": (edges("source\np1\n"), "edges.csv: has no column 'target'"),
    "weighted links": (
        edges("source,target,weight\np1,p2,3\n"),
        "edges.csv, column weight: is not in the schema. Name it in the schema as weight",
    ),
    "an unknown sparse feature": (
        sparse("p1,irn,1\n"),
        line(2, "feature", "features.csv")
        + "'irn' is not a known feature. Did you mean 'iron'",
    ),
    "a sparse feature of nobody": (
        sparse("p1,iron,1\np7,iron,1\n"),
        line(3, "id", "features.csv") + "'p7' is not the id of a node",
    ),
    "a sparse feature twice": (
        sparse("p1,iron,1\np1,iron,1\n"),
        line(3, "feature", "features.csv") + "node 'p1' has 'iron' twice",
    ),
    "a sparse value that is none": (
        sparse("p1,iron,much\n"),
        line(2, "value", "features.csv") + "'much' is not a number",
    ),
    "a sparse value that is empty": (
        sparse("p1,iron,\n"),
        line(2, "value", "features.csv") + "is empty",
    ),
    "a sparse table without a schema": (
        {"schema": FINE["schema.toml"].replace('sparse = ["aspirin", "iron"]', "")},
        "features.csv: is not in the schema",
    ),
}


@pytest.mark.parametrize(("changes", "says"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_tables_are_refused_by_file_row_and_column(
    tmp_path: Path, changes: dict[str, str], says: str
) -> None:
    with pytest.raises(DataErrors) as caught:
        read_tables(folder_of(tmp_path, **changes))
    assert any(found.startswith(says) for found in caught.value.lines), str(caught.value)
    assert all(". " in found for found in caught.value.lines), "says what to do"


def test_bytes_that_are_no_text_are_refused_by_line(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "nodes.csv").write_bytes(FINE["nodes.csv"].replace("Cy", "Zoé").encode("latin-1"))
    with pytest.raises(
        DataErrors, match=r"nodes\.csv, line 4: is not UTF-8 text \(byte 0xe9\)"
    ):
        read_tables(folder)


@pytest.mark.parametrize("name", ["nodes.csv", "edges.csv", "features.csv"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path)
    (folder / name).unlink()
    with pytest.raises(DataErrors, match=f"{name}: no such file"):
        read_tables(folder)


def test_a_parquet_file_that_is_none_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "nodes.csv").rename(folder / "nodes.parquet")
    with pytest.raises(DataErrors, match=r"nodes\.parquet: cannot be read as parquet"):
        read_tables(folder)


def test_two_files_of_one_table_are_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "edges.parquet").write_bytes(b"")
    with pytest.raises(DataErrors, match=r"there is also edges\.parquet"):
        read_tables(folder)


def test_all_problems_are_told_at_once_and_the_many_are_counted(tmp_path: Path) -> None:
    rows = "".join(f"p{i},x{i},north,1\n" for i in range(1, 51))
    folder = folder_of(
        tmp_path, nodes="id,age,ward,dose\n" + rows, edges="source,target\np1,q\n"
    )
    with pytest.raises(DataErrors) as caught:
        read_tables(folder)
    ages, link = (found for found in caught.value.lines if not found.startswith("features.csv"))
    assert ages.startswith(
        "nodes.csv, column age: 'x1' is not a number; 50 cells are like this (lines 2, 3, 4, …)"
    )
    assert link.startswith("edges.csv, line 2, column target: 'q' is not the id of a node")
    assert caught.value.count == 51
    assert (
        "51 problems" in caught.value.in_one_line and "data check" in caught.value.in_one_line
    )


def test_every_wrong_value_of_every_column_is_shown_most_frequent_first(tmp_path: Path) -> None:
    wards = ["nord"] * 30 + ["sued"] * 20 + ["north"] * 50
    labels = ["il"] * 25 + ["well"] * 75
    doses = ["none"] * 5 + ["much"] * 4 + ["1"] * 91
    rows = [
        f"p{i},30,{w},{d},{c}"
        for i, (w, d, c) in enumerate(zip(wards, doses, labels, strict=True), 1)
    ]
    text = "\n".join(["id,age,ward,dose,label", *rows, ""])
    with pytest.raises(DataErrors) as caught:
        read_tables(folder_of(tmp_path, nodes=text))
    starts = [found.split(" (")[0] for found in caught.value.lines]
    assert starts[:3] == [
        "nodes.csv, column ward: 'nord' is not a known category; 30 cells hold it",
        "nodes.csv, column label: 'il' is not a known class; 25 cells hold it",
        "nodes.csv, column ward: 'sued' is not a known category; 20 cells hold it",
    ]
    assert "(lines 32, 33, 34, …)" in caught.value.lines[2]
    assert any(found.startswith("nodes.csv, column dose: 'much'") for found in starts)


def test_values_beyond_the_tenth_of_a_column_share_a_line(tmp_path: Path) -> None:
    rows = [f"p{i},30,w{i % 15},1" for i in range(1, 61)]
    text = "\n".join(["id,age,ward,dose", *rows, ""])
    with pytest.raises(DataErrors) as caught:
        read_tables(folder_of(tmp_path, nodes=text))
    wards = [found for found in caught.value.lines if "column ward" in found]
    assert len(wards) == 11 and caught.value.count == 60
    assert "5 more values have the same problem, unknown category; 20 cells" in wards[0]


def test_problems_come_whole_out_of_another_process(tmp_path: Path) -> None:
    with pytest.raises(DataErrors) as caught:
        read_tables(folder_of(tmp_path, **nodes("50,", "x,")))
    back = pickle.loads(pickle.dumps(caught.value))
    assert str(back) == str(caught.value) and back.lines == caught.value.lines


def test_a_folder_that_is_called_as_a_dataset_is_not_read_for_it(tmp_path: Path) -> None:
    folder_of(tmp_path / "synthetic")  # tests run in tmp_path
    assert tables_folder("synthetic") is None and tables_folder("./synthetic") is not None
    assert load("synthetic", nodes=30).num_nodes == 30 and load("./synthetic").num_nodes == 4


def test_lines_are_counted_right_behind_cells_of_several_lines(tmp_path: Path) -> None:
    changes = nodes("Ann", '"Ann\nof Oz"')
    changes["nodes"] = changes["nodes"].replace("40,", "old,").replace("p4", "\n\np4")
    with pytest.raises(DataErrors, match="line 5, column age: 'old'"):
        read_tables(folder_of(tmp_path, **changes))
    fine = changes["nodes"].replace("old", "40")
    assert read_tables(folder_of(tmp_path, nodes=fine)).ids == ("p1", "p2", "p3", "p4")


def test_a_mark_at_the_start_windows_lines_and_spaces_do_no_harm(tmp_path: Path) -> None:
    text = "\ufeff" + FINE["nodes.csv"].replace(",", " , ").replace('"Bo ,  jr."', "Bo")
    folder = folder_of(tmp_path)
    (folder / "nodes.csv").write_bytes(text.replace("\n", "\r\n").encode())
    plain = read_tables(folder_of(tmp_path / "plain"))
    assert content_sha256(one_graph(read_tables(folder))) == content_sha256(one_graph(plain))


def test_owners_are_found_in_the_order_people_count(tmp_path: Path, graph: Graph) -> None:
    for name in ("owner-10", "owner-2", "owner-1"):
        folder_of(tmp_path / name)
    save_graph(graph, tmp_path / "owner-3" / "graph.npz")
    (tmp_path / "notes").mkdir()
    names = [folder.name for folder in owner_folders(tmp_path)]
    assert names == ["owner-1", "owner-2", "owner-3", "owner-10"]
    assert owner_folders(tmp_path / "owner-1") == [] == owner_folders(tmp_path / "nowhere")
    with pytest.raises(
        DataError, match="the graphs of 4 owners, not one graph: owner-1 to owner-10"
    ):
        load(str(tmp_path))


@pytest.mark.parametrize("read", [load_owner_tables, load_owners])
def test_problems_of_all_owners_are_told_together(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    folder_of(tmp_path / "a", **nodes("50,", "x,"))
    folder_of(tmp_path / "b", **nodes("40,", "y,"))
    with pytest.raises(DataErrors) as caught:
        read(tmp_path)
    assert [found.split(",")[0] for found in caught.value.lines] == [
        "a/nodes.csv",
        "b/nodes.csv",
    ]


def test_every_table_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        folder_of(tmp_path / name)
    read: list[str] = []
    monkeypatch.setattr(
        "fedsage.tables.source.read_cells",
        lambda path, *more: read.append(str(path)) or read_cells(path, *more),
    )
    load_owners(tmp_path)
    assert len(read) == len(set(read)) == 6


def test_owners_share_one_schema(tmp_path: Path) -> None:
    folder_of(tmp_path / "a")
    assert [t.num_nodes for t in load_owner_tables(tmp_path)] == [4]
    folder_of(tmp_path / "b", schema=FINE["schema.toml"].replace('"well"]', '"well", "new"]'))
    with pytest.raises(DataError, match="has other features or classes than a"):
        load_owner_tables(tmp_path)


def test_a_split_stands_beside_a_graph_in_its_file(tmp_path: Path, graph: Graph) -> None:
    save_graph(graph, tmp_path / "g.npz")
    assert load_graph(tmp_path / "g.npz").split is None
    split = split_labels(graph.y, 0.6, 0.2, 0, 0)
    save_graph(graph.with_split(split.train, split.val, split.test), tmp_path / "g.npz")
    back = load_graph(tmp_path / "g.npz").split
    assert back is not None and np.array_equal(back.val, split.val)


def test_many_categories_are_kept_sparse_and_are_the_same_columns() -> None:
    names = tuple(f"c{i}" for i in range(50))
    few, many = (
        Schema((Feature("f", "category", categories=c),), ("a",)) for c in (names[:3], names)
    )
    codes = np.array([[2], [0], [1]])
    graphs = []
    for schema in (few, many):
        none = np.zeros((3, 0))
        tables = Tables(
            schema, ("1", "2", "3"), none, codes, csr_array(none), np.full(3, -1),
            np.zeros((2, 0), dtype=np.int64), None,
        )  # fmt: skip
        graphs.append(one_graph(tables))
    assert not issparse(graphs[0].x) and issparse(graphs[1].x)
    assert np.array_equal(graphs[1].x.toarray()[:, :3], graphs[0].x)
    assert graphs[1].x.toarray()[:, 3:].sum() == 0
