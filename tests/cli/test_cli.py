from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from fedsage.data.load import load
from fedsage.data.npz import save_graph
from fedsage.data.synthetic import synthetic
from fedsage.runs.folder import read_result
from tests.cli.conftest import SMALL, Call

PROMISED = {
    "method": "fedsage+", "dataset": "synthetic", "owners": 3, "partition": "louvain",
    "seed": 0, "preset": "best", "engine": "inprocess",
}  # fmt: skip


def test_run_prints_the_promised_object_and_writes_the_promised_files(fedsage: Call) -> None:
    done = fedsage("run", *SMALL, "--out", "out", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert {key: found[key] for key in PROMISED} == PROMISED
    assert set(found["accuracy"]) == {"global", "local"}
    phases = {"total", "load", "partition", "mending", "training", "evaluation"}
    assert set(found["seconds"]) == phases
    assert set(found["bytes"]["mending"]) == {"up", "down"}
    assert found["bytes"]["training"]["up"] > 0
    assert found["graph"] == {"nodes": 90, "links": 180, "features": 40, "classes": 3}
    for key in ("macro_f1", "cpu_seconds", "peak_rss_mb", "missing_links"):
        assert found[key] > 0
    assert len(found["model_sha256"]) == 64
    kept = read_result(Path("out"))
    assert {key: kept[key] for key in found} == found
    assert kept["config"]["classifier"]["rounds_c"] == 2
    assert kept["versions"]["torch"] and kept["machine"]["cpus"]
    lines = [json.loads(line) for line in Path("out/history.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1]
    assert set(lines[0]) >= {"phase", "round", "loss", "validation", "bytes", "seconds"}
    assert {p.name for p in Path("out").iterdir()} == {
        "result.json", "history.jsonl", "model.safetensors", "model.json", "owners",
    }  # fmt: skip


def test_results_go_to_stdout_and_progress_to_stderr(fedsage: Call) -> None:
    done = fedsage("run", *SMALL)
    assert "accuracy, global" in done.out and "rounds" not in done.out
    assert "2/2 rounds, training, loss" in done.err and "s left" in done.err


@pytest.mark.slow
def test_the_same_command_gives_the_same_model(fedsage: Call) -> None:
    def sha(*more: str) -> str:
        return str(json.loads(fedsage("run", *SMALL, "--json", *more).out)["model_sha256"])

    assert sha() == sha() == sha("--set", "run.workers=3")
    assert sha() != sha("--seed", "1")


@pytest.mark.slow
def test_compare_has_a_row_for_each_method_with_every_seed(fedsage: Call) -> None:
    done = fedsage(
        "compare",
        *SMALL,
        "--methods",
        "locsage,fedsage",
        "--seeds",
        "2",
        "--out",
        "c",
        "--json",
    )
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert [row["method"] for row in rows] == ["locsage", "fedsage"]
    for row in rows:
        assert row["seeds"] == [0, 1]
        assert row["global"]["mean"] == pytest.approx(np.mean(row["global"]["each"]))
        assert row["global"]["std"] == pytest.approx(np.std(row["global"]["each"], ddof=1))
        assert row["paper"] is None
    assert json.loads(Path("c/compare.json").read_text())["rows"] == rows
    alone = json.loads(fedsage("run", *SMALL, "--seed", "1", "--json").out)
    assert alone["accuracy"]["global"] == rows[1]["global"]["each"][1]


def test_the_paper_s_value_stands_beside_its_cell() -> None:
    from fedsage.paper import paper_accuracy

    assert paper_accuracy("fedsage", "cora", 3, "louvain") == 0.8656
    assert paper_accuracy("fedsage+", "msacademic", 10, "louvain") == 0.9314
    assert paper_accuracy("fedsage", "cora", 3, "random") is None
    assert paper_accuracy("fedsage", "cora", 4, "louvain") is None
    assert paper_accuracy("oracle", "cora", 3, "louvain") is None


def test_predict_writes_a_class_for_every_node(fedsage: Call) -> None:
    fedsage("run", *SMALL, "--out", "m")
    done = fedsage("predict", "--model", "m", "--data", "synthetic", "--out", "p.csv")
    assert done.code == 0, done.err
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    assert len(rows) == 90
    graph = synthetic(nodes=90, features=40, classes=3)
    assert {row["predicted"] for row in rows} <= set(graph.class_names)
    assert all(0 < float(row["probability"]) <= 1 for row in rows)


def test_predict_asks_whose_model_where_there_are_several(fedsage: Call) -> None:
    fedsage("run", *SMALL, "--method", "locsage", "--out", "m")
    words = ("predict", "--model", "m", "--data", "synthetic", "--out", "p.csv")
    done = fedsage(*words)
    assert done.code == 2 and "--owner 0 to --owner 2" in done.err
    assert fedsage(*words, "--owner", "2").code == 0


def test_split_writes_a_folder_for_each_owner(fedsage: Call) -> None:
    done = fedsage("split", *SMALL[:8], "--owners", "3", "--out", "o")
    assert done.code == 0, done.err
    for word in ("|V_i|", "|E_i|", "ΔE", "label skew"):
        assert word in done.out
    graphs = [load(f"o/owner-{i}") for i in range(3)]
    assert sum(graph.num_nodes for graph in graphs) == 90
    assert fedsage("data", "check", "o/owner-1").code == 0
    assert fedsage("split", *SMALL[:8], "--out", "o").code == 2


def test_data_list_and_info_show_graphs(fedsage: Call) -> None:
    assert "msacademic" in fedsage("data", "list").out
    done = fedsage("data", "info", "synthetic", "--owners", "4", "--partition", "random")
    assert done.code == 0, done.err
    assert "3,000" in done.out and "4 random owners" in done.out


@pytest.mark.slow
def test_settings_are_printed_as_a_file_that_config_takes(fedsage: Call) -> None:
    Path("all.toml").write_text(fedsage("settings", "--preset", "paper").out)
    done = fedsage("run", *SMALL, "--config", "all.toml", "--json")
    assert json.loads(done.out)["preset"] == "paper"


@pytest.mark.slow
def test_force_replaces_a_run(fedsage: Call) -> None:
    assert fedsage("run", *SMALL, "--out", "out").code == 0
    refused = fedsage("run", *SMALL, "--out", "out")
    assert refused.code == 2 and "holds another run" in refused.err
    assert fedsage("run", *SMALL, "--out", "out", "--force", "--seed", "5").code == 0
    assert read_result(Path("out"))["seed"] == 5
    assert len(Path("out/history.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_refused_run_keeps_the_run_that_force_would_replace(fedsage: Call) -> None:
    assert fedsage("run", *SMALL, "--out", "out").code == 0
    before = Path("out/result.json").read_bytes()
    bad = ("run", *SMALL, "--partition", "metiss", "--out", "out", "--force")
    assert fedsage(*bad).code == 2
    assert Path("out/result.json").read_bytes() == before
    assert fedsage("run", *SMALL, "--partition", "metiss").code == 2
    assert not Path("runs").exists(), "and leaves no folder behind"


def test_split_with_force_leaves_no_owner_of_before(fedsage: Call) -> None:
    for owners in ("5", "3"):
        words = ("split", *SMALL[:8], "--owners", owners, "--out", "o", "--force")
        assert fedsage(*words).code == 0
    assert sorted(p.name for p in Path("o").iterdir()) == ["owner-0", "owner-1", "owner-2"]


def test_a_method_named_twice_is_run_once(fedsage: Call) -> None:
    words = ("compare", *SMALL, "--methods", "fedsage,fedsage", "--seeds", "1", "--json")
    assert [row["method"] for row in json.loads(fedsage(*words).out)["rows"]] == ["fedsage"]


@pytest.mark.slow
def test_predict_takes_a_graph_without_labels(fedsage: Call) -> None:
    fedsage("run", *SMALL, "--out", "m")
    graph = synthetic(nodes=90, features=40, classes=3)
    np.savez("unlabelled.npz", x=graph.x.toarray(), edge_index=graph.links)
    words = ("predict", "--model", "m", "--data", "unlabelled.npz", "--out", "p.csv")
    assert fedsage(*words).code == 0
    assert len(Path("p.csv").read_text().splitlines()) == 91


@pytest.mark.parametrize("harm", ["card", "result", "number", "file", "head"])
def test_a_harmed_model_is_refused(fedsage: Call, harm: str) -> None:
    fedsage("run", *SMALL, "--out", "m")
    card = json.loads(Path("m/model.json").read_text())
    if harm == "card":
        card["shape"]["widths"] = [8, 5]
    elif harm == "number":
        card["models"] = 2
    elif harm == "head":
        card["shape"]["head"] = "direct"
    elif harm == "result":
        Path("m/result.json").write_text("[1]")
    Path("m/model.json").write_text(json.dumps(card))
    folder = "m/model.json" if harm == "file" else "m"
    done = fedsage("predict", "--model", folder, "--data", "synthetic", "--out", "p.csv")
    assert done.code == 2 and "Traceback" not in done.err
    assert not Path("p.csv").exists()


def test_the_version_is_told(fedsage: Call) -> None:
    import fedsage as package

    assert fedsage("--version").out == f"fedsage {package.__version__}\n"


def test_help_names_the_defaults(fedsage: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = fedsage("run", "--help").out
    for words in ("default: cora", "default: 3", "default: louvain", "default: best"):
        assert words in shown


BAD = {
    "unknown verb": ("rnu", "Did you mean 'run'"),
    "unknown flag": ("run --datset cora", "--dataset"),
    "unknown dataset": ("run --dataset coral", "Did you mean 'cora'"),
    "no such file": ("run --dataset here/there.npz", "no such file"),
    "unknown method": ("run --method fedsagee", "Did you mean 'fedsage'"),
    "unknown method in a list": ("compare --methods fedsage,glob", "Did you mean 'globsage'"),
    "no method": ("compare --methods ,", "names no method"),
    "unknown partition": ("run --dataset synthetic --partition metiss", "'metis'"),
    "unknown preset": ("run --preset fast", "Did you mean 'best'"),
    "unknown engine": ("run --engine carrier-pigeon", "inprocess"),
    "engine of compare": ("compare --engine nvflare", "one process"),
    "engine and tracking": ("run --engine nvflare --track tensorboard", "combined"),
    "federated globsage": ("federation try --method globsage", "cannot be run between"),
    "a kit that is none": ("federation start .", "is not a startup kit"),
    "no run to resume": ("run --resume --out nowhere", "holds no run"),
    "resume without a folder": ("run --resume", "needs --out"),
    "unknown key": ("run --set model.width=3", "Did you mean 'widths'"),
    "bad value": ("run --set model.dropout=2", "model.dropout' is 2"),
    "not a number": ("run --owners three", "'--owners': Input should be a valid integer"),
    "no settings file": ("run --config none.toml", "no such file"),
    "too many owners": ("run --dataset synthetic --owners 1000", "Ask for 1 to 600"),
    "no owners": ("run --owners 0", "greater than 0"),
    "a missing flag": ("predict --model m --data cora", "--out"),
    "no model": ("predict --model m --data synthetic --out p.csv", "holds no trained model"),
    "a width beyond reason": ("run --set model.widths=[100000000,32]", "less than or equal"),
    "an infinite rate": ("run --set classifier.eta=inf", "finite"),
    "an odd device": ("run --set run.device=meta", "run.device"),
    "a name too long": (f"run --dataset synthetic --out {'x' * 300}", "File name too long"),
    "unknown suite": ("bench --suite stap", "Did you mean 'step'"),
    "unknown dataset to get": ("data get citesser", "Did you mean 'citeseer'"),
}


@pytest.mark.parametrize(("words", "says"), BAD.values(), ids=BAD.keys())
def test_a_user_s_error_is_one_line_that_helps_and_exit_code_2(
    fedsage: Call, words: str, says: str
) -> None:
    done = fedsage(*words.split())
    assert done.code == 2
    assert done.out == ""
    assert says in done.err
    assert done.err.startswith("Error: ") and len(done.err.strip().splitlines()) == 1
    assert "Traceback" not in done.err


@pytest.mark.parametrize("bad", ["nan", "label", "link"])
def test_a_broken_graph_file_is_refused(fedsage: Call, bad: str) -> None:
    graph = synthetic(nodes=60, features=20, classes=3)
    save_graph(graph, Path("g.npz"))
    arrays = dict(np.load("g.npz"))
    if bad == "nan":
        arrays["x_data"][3] = np.nan
    elif bad == "label":
        arrays["y"][5] = 99
    else:
        arrays["edge_index"][0, 0] = 60
    np.savez("g.npz", **arrays)
    says = {"nan": "NaN", "label": "99, at node 5", "link": "do not exist"}[bad]
    for words in (("run", "--dataset", "g.npz"), ("data", "check", "g.npz")):
        done = fedsage(*words)
        assert done.code == 2 and says in done.err


def test_a_refused_run_leaves_no_folder_that_looks_like_a_run(fedsage: Call) -> None:
    fedsage("run", "--dataset", "nothing.npz", "--out", "out")
    assert not Path("out/result.json").exists()
    assert fedsage("run", *SMALL, "--out", "out").code == 0


def test_an_interrupt_is_exit_code_130(fedsage: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **keywords: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsage.runs.run.run_config", interrupted)
    done = fedsage("run", *SMALL)
    assert done.code == 130 and "Traceback" not in done.err
    assert done.err == "Interrupted before anything was saved. Start it again.\n"
