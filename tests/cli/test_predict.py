"""Answers after a run: those of predictions.csv, in a table that people expect."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedsage.data.npz import load_graph, save_graph
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.methods import all_methods
from fedsage.models.classifier import load_models
from fedsage.runs.predictions import csv_of, predictions
from fedsage.runs.result import load_result
from fedsage.runs.run import run
from fedsage.runs.stored_graph import load_answering, places
from tests.cli.conftest import Call

FEW = {
    "model": {"widths": [8, 4]},
    "classifier": {"rounds_c": 2},
    "neighgen": {"rounds_gen": 1, "widths": [8, 6], "hidden": [10], "batch_size": 16},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", all_methods())
def test_predict_gives_the_answers_of_the_run(
    method: str, graph: Graph, owners: Partition, tmp_path: Path
) -> None:
    backbone = {"feddep": "fusing"}.get(method, "graphsage")
    few = FEW | {"model": FEW["model"] | {"backbone": backbone}}
    run(owners, method, evaluate_on=graph, settings=few, out=tmp_path)
    models, where = load_models(tmp_path), places(tmp_path)
    assert list(where) == (["all"] if method == "globsage" else ["0", "1", "2"])
    for i, place in enumerate(where.values()):
        model = models[i if len(models) > 1 else 0]
        found = csv_of(predictions(model, load_answering(place)))
        assert found == (place / "predictions.csv").read_text()


@pytest.mark.parametrize("sampled", [False, True])
def test_answers_are_those_that_the_accuracy_counts(
    sampled: bool, graph: Graph, owners: Partition, tmp_path: Path
) -> None:
    inference = {"evaluation": {"inference": "sampled" if sampled else "full"}}
    settings = FEW | inference
    result = run(owners, "fedsage+copy", evaluate_on=graph, settings=settings, out=tmp_path)
    if sampled:  # draws depend on which nodes are asked for, so only the file can agree
        for place in places(tmp_path).values():
            found = predictions(result.model, load_answering(place))
            assert csv_of(found) == (place / "predictions.csv").read_text()
        return
    rows = [row for place in places(tmp_path).values() for row in rows_in(place)]
    asked = [row for row in rows if row["split"] == "test"]
    right = sum(row["predicted"] == row["label"] for row in asked)
    assert right / len(asked) == pytest.approx(result.accuracy["local"])


def rows_in(place: Path, name: str = "predictions.csv") -> list[dict[str, str]]:
    return list(csv.DictReader((place / name).read_text().splitlines()))


@pytest.fixture(scope="module")
def kept(graph: Graph, owners: Partition, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose owners query both graphs."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    settings = FEW | {"mend": {"queries": "both"}}
    run(owners, "fedsage+subspace", settings=settings, out=folder)
    return folder


def test_the_table_has_all_that_an_answer_rests_on(
    kept: Path, graph: Graph, owners: Partition
) -> None:
    rows, own = rows_in(kept / "owners" / "1"), owners.subgraphs[1]
    names = list(graph.class_names)
    assert [row["id"] for row in rows] == [str(v) for v in owners.nodes[1]]
    each = np.array([[float(row[f"probability_{name}"]) for name in names] for row in rows])
    assert each.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert [names[c] for c in each.argmax(axis=1)] == [row["predicted"] for row in rows]
    assert [float(row["probability"]) for row in rows] == each.max(axis=1).tolist()
    assert [row["label"] for row in rows] == [names[c] for c in own.y]
    assert {row["split"] for row in rows} == {"train", "val", "test"}
    assert [int(row["neighbors"]) for row in rows] == own.degrees.tolist()
    assert {row["generated"] for row in rows} == {"2"}


def test_predict_asks_whose_nodes_and_writes_either_format(
    kept: Path, fedsage: Call, tmp_path: Path
) -> None:
    words = ("predict", "--model", str(kept), "--out")
    done = fedsage(*words, f"{tmp_path}/p.csv")
    assert done.code == 2 and "--owner: 0, 1, 2" in done.err
    assert "no such owner" in fedsage(*words, f"{tmp_path}/p.csv", "--owner", "east").err
    assert "'.xls'" in fedsage(*words, f"{tmp_path}/p.xls", "--owner", "2").err
    for name in ("p.csv", "p.parquet"):
        assert fedsage(*words, f"{tmp_path}/{name}", "--owner", "2").code == 0
    text = (kept / "owners" / "2" / "predictions.csv").read_text()
    assert (tmp_path / "p.csv").read_text() == text
    table = pq.read_table(tmp_path / "p.parquet").to_pylist()
    rows = rows_in(tmp_path, "p.csv")
    assert [row["id"] for row in table] == [row["id"] for row in rows]
    assert [row["probability"] for row in table] == [float(row["probability"]) for row in rows]


def test_a_graph_that_the_run_keeps_is_answered_as_in_the_run(
    kept: Path, owners: Partition, fedsage: Call, tmp_path: Path
) -> None:
    own = owners.subgraphs[0]
    save_graph(own, tmp_path / "same.npz")
    words = ("predict", "--model", str(kept), "--data", f"{tmp_path}/same.npz", "--out")
    done = fedsage(*words, f"{tmp_path}/p.csv")
    assert done.code == 0 and done.err == ""
    text = (kept / "owners" / "0" / "predictions.csv").read_text()
    assert (tmp_path / "p.csv").read_text() == text
    save_graph(own.induced(np.arange(9)), tmp_path / "same.npz")
    done = fedsage(*words, f"{tmp_path}/p.csv")
    assert done.code == 0 and "without generated neighbors" in done.err
    assert {row["generated"] for row in rows_in(tmp_path, "p.csv")} == {"0"}


def test_a_folder_without_graphs_asks_for_one(
    kept: Path, fedsage: Call, tmp_path: Path
) -> None:
    for name in ("model.json", "model.safetensors"):
        (tmp_path / name).write_bytes((kept / name).read_bytes())
    done = fedsage("predict", "--model", str(tmp_path), "--out", f"{tmp_path}/p.csv")
    assert done.code == 2 and "Add --data" in done.err


def test_a_loaded_result_keeps_what_answers_come_from(kept: Path, tmp_path: Path) -> None:
    load_result(kept).save(tmp_path)
    for name in ("predictions.csv", "queries.json"):
        for i in "012":
            path = Path("owners") / i / name
            assert (tmp_path / path).read_text() == (kept / path).read_text()


def test_another_run_in_the_folder_removes_only_what_runs_write(
    kept: Path, tmp_path: Path
) -> None:
    result = load_result(kept)
    result.save(tmp_path)
    (tmp_path / "owners" / "1" / "mine.txt").write_text("mine")
    one = result.answering[:1]
    type(result)(result.record, result.history, result.models, result.settings, one).save(
        tmp_path, force=True
    )
    assert list(places(tmp_path)) == ["0"]
    left = sorted(path.name for path in (tmp_path / "owners").rglob("*.*"))
    assert left == [
        "mended.npz",
        "mine.txt",
        "predictions.csv",
        "queries.json",
        "subspace.safetensors",
    ]


def test_damaged_files_are_named(kept: Path, fedsage: Call, tmp_path: Path) -> None:
    load_result(kept).save(tmp_path / "run")
    place = tmp_path / "run" / "owners" / "0"
    words = (
        "predict",
        "--model",
        f"{tmp_path}/run",
        "--owner",
        "0",
        "--out",
        f"{tmp_path}/p.csv",
    )
    card = json.loads((place / "queries.json").read_text())
    (place / "queries.json").write_text(json.dumps(card | {"nodes": 3}))
    assert "cannot be read" in fedsage(*words).err
    (place / "queries.json").write_text("{")
    assert "cannot be read" in fedsage(*words).err
    assert isinstance(load_graph(place / "mended.npz"), Graph)
