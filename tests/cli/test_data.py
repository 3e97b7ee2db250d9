from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from fedsage.data.load import load, load_owner_tables
from fedsage.data.npz import content_sha256
from fedsage.graph.partition import partition
from fedsage.graph.split import split_labels
from fedsage.models.classifier import load_models
from fedsage.tables.schema import read_schema
from fedsage.tables.tables import graph_of, pooled_scale, read_tables
from tests.cli.conftest import SMALL, Call
from tests.tables.test_tables import FINE, folder_of, nodes


def test_check_tells_all_problems_of_a_folder_at_once(fedsage: Call) -> None:
    bad = nodes("50,", "fifty,")["nodes"].replace("ill,train", "il,train")
    folder_of(Path("a"), nodes=bad, edges="source,target\np1,p9\n")
    done = fedsage("data", "check", "a")
    assert done.code == 2 and done.out == ""
    lines = done.err.splitlines()
    assert lines[0] == "Error: a has 3 problems:"
    for place in ("line 3, column age", "line 2, column label", "edges.csv, line 2"):
        assert any(place in line for line in lines[1:])


def test_other_verbs_tell_the_first_problem_in_one_line(fedsage: Call) -> None:
    folder_of(Path("a"), **nodes("50,", "fifty,"), edges="source,target\np1,p9\n")
    done = fedsage("data", "info", "a")
    assert done.code == 2 and len(done.err.splitlines()) == 1
    assert "2 problems, the first" in done.err and "'fedsage data check a'" in done.err


def test_check_takes_one_folder_or_all_owners(fedsage: Call) -> None:
    folder_of(Path("all/a"))
    folder_of(Path("all/b"))
    done = fedsage("data", "check", "all/a")
    assert done.out == "all/a is fine: 4 nodes, 2 links, 6 features, 2 classes\n"
    done = fedsage("data", "check", "all")
    assert done.out == "all is fine: 2 owners, 8 nodes, 4 links, 6 features, 2 classes\n"
    folder_of(Path("all/b"), **nodes("50,", "x,"))
    done = fedsage("data", "check", "all")
    assert done.code == 2 and "- b/nodes.csv, line 3, column age: 'x'" in done.err


def test_check_refuses_a_folder_without_a_graph(fedsage: Call) -> None:
    Path("empty").mkdir()
    done = fedsage("data", "check", "empty")
    assert done.code == 2 and "there is no nodes.csv, nodes.parquet or graph.npz" in done.err


def test_init_writes_a_schema_that_fits_the_tables(fedsage: Call) -> None:
    folder = folder_of(Path("a"))
    (folder / "schema.toml").unlink()
    done = fedsage("data", "init", "a", "--at-least", "1")
    assert done.code == 0, done.err
    assert "a/schema.toml: 3 features, 2 sparse, 2 classes" in done.out
    assert "name: ignored, 4 different texts" in done.out
    assert (
        "age: number, 20 to 50" in done.out and "dose: number, 0.5 to 1.5, 1 empty" in done.out
    )
    schema = read_schema(folder / "schema.toml")
    assert schema.class_names == ("ill", "well") and schema.ignored == ("name",)
    kinds = {f.name: (f.kind, f.missing) for f in schema.columns}
    assert kinds["age"] == ("number", "refused") and kinds["dose"] == ("number", "mean")
    shared = (folder / "schema.toml").read_text()
    assert "20" not in shared and "50" not in shared, "what others read holds no values"
    assert fedsage("data", "check", "a").code == 0
    again = fedsage("data", "init", "a")
    assert again.code == 2 and "--force" in again.err
    assert fedsage("data", "init", "a", "--force").code == 0


def test_init_takes_classes_from_the_column_one_names(fedsage: Call) -> None:
    folder_of(Path("a"), **nodes("0.5,,", "0.5,ill,"))
    words = ("--label-column", "ward", "--out", "schema.toml", "--at-least", "1")
    done = fedsage("data", "init", "a", *words)
    assert done.code == 0, done.err
    schema = read_schema(Path("schema.toml"))
    assert schema.label == "ward" and schema.class_names == ("north", "south")
    assert read_tables("a", schema).y.tolist() == [0, 1, 0, 1]
    done = fedsage("data", "init", "a", "--label-column", "wrd", "--out", "other.toml")
    assert done.code == 2 and "Did you mean 'ward'" in done.err


def test_init_says_when_it_sees_no_classes_or_codes_for_numbers(fedsage: Call) -> None:
    Path("a").mkdir()
    Path("a/nodes.csv").write_text("id,grade\n" + "".join(f"{i},{i % 5}\n" for i in range(9)))
    done = fedsage("data", "init", "a")
    assert "no classes found: name the column with --label-column" in done.out
    assert "a category, if these numbers are codes" in Path("a/schema.toml").read_text()


def test_tables_are_checked_with_a_schema_elsewhere(fedsage: Call) -> None:
    rows = "".join(f"p{i},{'ab'[i % 2]},{(37.5, '37,5', '37 C')[i % 3]}\n" for i in range(30))
    for name in ("h/east", "h/west"):
        Path(name).mkdir(parents=True)
        Path(name, "nodes.csv").write_text("id;sort;pulse\n" + rows.replace(",a,", ";a;")
                                           .replace(",b,", ";b;"))  # fmt: skip
        Path(name, "edges.csv").write_text("source,target\np1,p99\n")
    done = fedsage("data", "init", "h/east", "--out", "draft.toml")
    assert "(sort, pulse hold few different words)" in done.out
    check = "fedsage data check h/east --schema draft.toml"
    assert f"1 problem that no schema can solve: {check}" in done.out
    done = fedsage(*check.split()[1:])
    assert done.code == 2 and "'p99' is not the id" in done.err
    text = 'classes = ["a", "b"]\nlabel = "sort"\n[features]\npulse = { kind = "number" }\n'
    Path("other.toml").write_text(text)
    done = fedsage("data", "check", "h", "--schema", "other.toml")
    assert "east/nodes.csv, column pulse: '37,5' is not a number; 10 cells" in done.err
    assert "east/nodes.csv, column pulse: '37 C' is not a number; 10 cells" in done.err
    assert "west/nodes.csv" in done.err


@pytest.mark.parametrize("format", ["tables", "parquet", "npz"])
def test_what_split_writes_is_read_back_bit_by_bit(fedsage: Call, format: str) -> None:
    words = ("--owners", "3", "--out", "o", "--format", format)
    assert fedsage("split", *SMALL[:8], *words).code == 0
    assert fedsage("data", "check", "o").code == 0
    whole = load("synthetic", nodes=90, features=40, classes=3)
    part = partition(whole, 3, "louvain", 0)
    for i, subgraph in enumerate(part.subgraphs):
        assert content_sha256(load(f"o/owner-{i}")) == content_sha256(subgraph)
    if format == "npz":
        return
    for i, tables in enumerate(load_owner_tables("o")):
        assert tables.ids == tuple(str(v) for v in part.nodes[i])
        split = split_labels(part.subgraphs[i].y, 0.6, 0.2, 0, i)
        assert tables.split is not None
        for name in ("train", "val", "test"):
            assert np.array_equal(getattr(tables.split, name), getattr(split, name))


@pytest.mark.dataset
def test_cora_survives_its_split_bit_by_bit(fedsage: Call) -> None:
    assert fedsage("split", "--dataset", "cora", "--out", "o").code == 0
    for i, subgraph in enumerate(partition(load("cora"), 3, "louvain", 0).subgraphs):
        assert content_sha256(load(f"o/owner-{i}")) == content_sha256(subgraph)


def test_split_leaves_no_file_of_another_format(fedsage: Call) -> None:
    for format in ("npz", "parquet", "tables"):
        words = ("--out", "o", "--force", "--format", format)
        assert fedsage("split", *SMALL[:8], *words).code == 0
    names = {path.name for path in Path("o/owner-0").iterdir()}
    assert names == {"schema.toml", "nodes.csv", "edges.csv", "features.csv"}
    done = fedsage("split", *SMALL[:8], "--out", "p", "--format", "parqet")
    assert done.code == 2 and "Did you mean 'parquet'" in done.err


def many() -> Path:
    """Forty patients: a number, a category, some without a class."""
    rows = [
        f"p{i},{20 + i},{('north', 'south')[i % 2]},{('ill', 'well', '')[i % 3]}\n"
        for i in range(40)
    ]
    text = FINE["schema.toml"].replace('sparse = ["aspirin", "iron"]\n', "")
    schema = "\n".join(line for line in text.splitlines() if not line.startswith("dose"))
    links = "".join(f"p{i},p{(i * 7 + 1) % 40}\n" for i in range(40))
    folder = folder_of(
        Path("many"),
        schema=schema,
        nodes="id,age,ward,label\n" + "".join(rows),
        edges="source,target\n" + links,
    )
    (folder / "features.csv").unlink()
    return folder


def test_split_keeps_ids_columns_and_schema_of_own_tables(fedsage: Call) -> None:
    folder = many()
    done = fedsage("split", "--dataset", "many", "--owners", "2", "--out", "o")
    assert done.code == 0, done.err
    whole, owners = read_tables(folder), load_owner_tables("o")
    assert sorted(v for one in owners for v in one.ids) == sorted(whole.ids)
    assert {one.schema for one in owners} == {whole.schema}
    agreed = pooled_scale(owners)
    assert agreed.mean == pytest.approx(pooled_scale([whole]).mean, rel=1e-12)
    assert agreed.std == pytest.approx(pooled_scale([whole]).std, rel=1e-12)


TRAIN = (
    "--set model.widths=[8,4] --set classifier.rounds_c=2 --owners 2 --method fedsage".split()
)


def test_predictions_on_tables_go_by_id(fedsage: Call) -> None:
    many()
    done = fedsage("run", "--dataset", "many", *TRAIN, "--out", "m")
    assert done.code == 0, done.err
    done = fedsage("predict", "--model", "m", "--data", "many", "--out", "p.csv")
    assert done.code == 0, done.err
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    assert [row["id"] for row in rows] == [f"p{i}" for i in range(40)]
    assert {row["predicted"] for row in rows} <= {"ill", "well"}


def test_a_model_predicts_with_the_scale_it_was_trained_with(fedsage: Call) -> None:
    tables = read_tables(many())
    assert fedsage("run", "--dataset", "many", *TRAIN, "--out", "m").code == 0
    scale = pooled_scale([tables])
    back = load_models(Path("m"))[0]
    assert back.schema == tables.schema and back.scale is not None
    assert np.array_equal(back.scale.mean, scale.mean)
    assert np.array_equal(back.scale.std, scale.std)
    few = tables.induced(np.arange(7))
    assert content_sha256(back.graph_of(few)) == content_sha256(graph_of(few, scale))
    done = fedsage("predict", "--model", "m", "--data", "many", "--out", "p.csv")
    assert done.code == 0 and done.err == ""


def test_tables_with_another_schema_than_the_model_s_are_refused(fedsage: Call) -> None:
    many()
    assert fedsage("run", "--dataset", "many", *TRAIN, "--out", "m").code == 0
    text = Path("many/schema.toml").read_text().replace('"north", "south"', '"south", "north"')
    Path("many/schema.toml").write_text(text)
    words = ("predict", "--model", "m", "--data", "many", "--out", "p.csv")
    done = fedsage(*words)
    assert done.code == 2 and "another schema.toml" in done.err
    card = json.loads(Path("m/model.json").read_text())
    card["scale"]["mean"].append(0.0)
    Path("m/model.json").write_text(json.dumps(card))
    done = fedsage(*words)
    assert done.code == 2 and "cannot be read" in done.err
