"""What ``fedsage.run`` and ``fedsage.compare`` give back."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import fedsage as fs
from fedsage.errors import optional
from fedsage.runs import notebook

pytestmark = pytest.mark.slow

FEW: dict[str, Any] = {
    "classifier": {"rounds_c": 3, "eta": 0.03, "batch_size": 8},
    "model": {"widths": [16, 8]},
}


@pytest.fixture(scope="module")
def result(graph: fs.Graph, owners: fs.Partition) -> fs.RunResult:
    return fs.run(owners, "fedsage+", evaluate_on=graph, settings=FEW)


@pytest.fixture(scope="module")
def comparison(graph: fs.Graph, owners: fs.Partition) -> fs.Comparison:
    methods = ["locsage", "fedsage", "globsage"]
    return fs.compare(owners, methods, seeds=3, evaluate_on=graph, settings=FEW)


def test_a_result_is_saved_and_loaded_with_all_its_settings(
    result: fs.RunResult, graph: fs.Graph, tmp_path: Path
) -> None:
    result.save(tmp_path / "kept")
    back = fs.load_result(tmp_path / "kept")
    assert back.history == result.history and isinstance(back.history, fs.History)
    assert back.accuracy == result.accuracy
    assert back.settings == result.settings and back.settings["classifier"]["rounds_c"] == 3
    assert torch.equal(back.model.logits(graph), result.model.logits(graph))
    with pytest.raises(fs.FedSageError, match="holds another run"):
        result.save(tmp_path / "kept")
    result.save(tmp_path / "kept", force=True)


def test_a_result_says_what_it_is_in_a_line(result: fs.RunResult) -> None:
    shares = [f"{result.accuracy[name]:.4f} {name}" for name in ("global", "local")]
    words = f"fedsage+, 3 random owners, seed 0: accuracy {', '.join(shares)}"
    assert repr(result) == f"RunResult({words})"
    assert shares[0].split()[0] in result._repr_html_()


def test_history_is_a_list_and_a_table(result: fs.RunResult) -> None:
    pandas = pytest.importorskip("pandas")
    assert result.history[-1].round == 2 and list(result.history) == result.history
    assert repr(result.history).startswith("History(3 rounds, last: loss ")
    table = result.history.to_pandas()
    assert isinstance(table, pandas.DataFrame) and len(table) == 3
    assert table["validation"].tolist() == [line.validation for line in result.history]
    assert table["bytes_up"].is_monotonic_increasing
    assert result.history._repr_html_().count("<tr>") == 4


def test_differences_are_paired_by_seed_with_student_s_interval(
    comparison: fs.Comparison,
) -> None:
    assert comparison.seeds == [0, 1, 2] and comparison.methods[0] == "locsage"
    first, second = comparison.differences()
    assert (second.method, second.against, second.measure) == ("globsage", "locsage", "global")
    ours, base = (comparison.values(name, "global") for name in ("fedsage", "locsage"))
    np.testing.assert_allclose(first.each, np.subtract(ours, base))
    truth = stats.ttest_rel(ours, base).confidence_interval(0.95)
    np.testing.assert_allclose((first.low, first.high), (truth.low, truth.high))
    narrow = comparison.differences("fedsage", "local", confidence=0.5)[0]
    assert (
        narrow.method == "locsage"
        and narrow.measure == "local"
        and narrow.high is not None
        and narrow.low is not None
    )
    wide = comparison.differences("fedsage", "local", confidence=0.99)[0]
    assert wide.high is not None and wide.high > narrow.high > narrow.mean > narrow.low
    with pytest.raises(fs.FedSageError, match=r"'oracle' was not compared. Choose"):
        comparison.differences("oracle")


def test_a_comparison_is_a_table_of_methods_runs_or_differences(
    comparison: fs.Comparison,
) -> None:
    pytest.importorskip("pandas")
    methods, runs = comparison.to_pandas(), comparison.to_pandas("runs")
    assert methods["method"].tolist() == comparison.methods and len(runs) == 9
    means = runs.groupby("method", sort=False)["global"].mean()
    np.testing.assert_allclose(methods["global_mean"], means)
    assert comparison.to_pandas("differences")["mean"].tolist() == [
        one.mean for one in comparison.differences()
    ]
    with pytest.raises(fs.FedSageError, match="Unknown table 'rows'"):
        comparison.to_pandas("rows")


def test_a_comparison_is_shown_as_a_table(comparison: fs.Comparison) -> None:
    lines = repr(comparison).splitlines()
    assert lines[0] == "Comparison: 3 random owners, 3 seeds"
    assert lines[1].split() == ["method", "global", "local", "global", "−", "locsage"]
    assert len(lines) == 5 and "±" in lines[2] and "[" in lines[3]
    assert comparison._repr_html_().count("<tr>") == 4


def test_with_a_partition_owners_stay_and_with_a_graph_each_seed_cuts_anew(
    graph: fs.Graph, owners: fs.Partition
) -> None:
    given = {"methods": ["fedsage"], "seeds": [4, 7], "settings": FEW}
    same = fs.compare(owners, evaluate_on=graph, **given).records["fedsage"]
    assert same[0].missing_links == same[1].missing_links == owners.missing_links
    assert same[1].model_sha256 == fs.run(owners, "fedsage", seed=7, settings=FEW).record.model_sha256  # fmt: skip  # noqa: E501
    anew = fs.compare(graph, num_owners=2, how="random", **given).records["fedsage"]
    cuts = [fs.partition(graph, 2, "random", seed).missing_links for seed in (4, 7)]
    assert [one.missing_links for one in anew] == cuts
    assert anew[0].accuracy["global"] is not None


def test_a_comparison_is_kept_in_a_folder_and_resumed(
    owners: fs.Partition, tmp_path: Path
) -> None:
    given = {"methods": ["fedsage"], "seeds": 2, "settings": FEW, "out": tmp_path / "c"}
    first = fs.compare(owners, **given)
    assert (tmp_path / "c" / "fedsage-seed1" / "result.json").is_file()
    assert (tmp_path / "c" / "compare.json").is_file()
    with pytest.raises(fs.FedSageError, match="holds another run"):
        fs.compare(owners, **given)
    again = fs.compare(owners, **given, resume=True)
    assert again.records == first.records and again.measure == "local"


def test_what_cannot_be_compared_is_said(owners: fs.Partition, graph: fs.Graph) -> None:
    for given, words in (
        ({"methods": ["fedsagee"]}, "Did you mean 'fedsage'"),
        ({"methods": ["fedsage", "fedsage"]}, "given twice"),
        ({"methods": "fedsage"}, r"Give a list: \['fedsage'\]"),
        ({"methods": []}, "methods is empty"),
        ({"seeds": 0}, "seeds is 0"),
        ({"num_owners": 3}, "a partition and num_owners"),
    ):
        with pytest.raises(fs.FedSageError, match=words):
            fs.compare(owners, **given)
    with pytest.raises(fs.FedSageError, match="Add num_owners=3"):
        fs.compare(graph, ["fedsage"])
    one = fs.compare(owners, ["fedsage", "locsage"], seeds=1, settings=FEW)
    assert one.differences()[0].low is None and "[" not in str(one.differences()[0])


def test_a_tracker_needs_a_folder(owners: fs.Partition, tmp_path: Path) -> None:
    with pytest.raises(fs.FedSageError, match="Add out="):
        fs.run(owners, "fedsage", settings=FEW, track=["tensorboard"])


def test_progress_is_silent_in_scripts_and_shown_when_asked_for(
    owners: fs.Partition, capsys: pytest.CaptureFixture[str]
) -> None:
    fs.run(owners, "fedsage", settings=FEW)
    assert capsys.readouterr().err == ""
    fs.run(owners, "fedsage", settings=FEW, progress=True)
    assert "fedsage, seed 0: 3/3 rounds" in capsys.readouterr().err


def test_a_notebook_has_one_line_that_is_written_anew(
    owners: fs.Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Handle:
        def update(self, line: str) -> None:
            seen.append(line)

    def display(line: str, display_id: bool) -> Handle:
        seen.append(line)
        return Handle()

    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    here = SimpleNamespace(display=display, HTML=str)
    monkeypatch.setitem(sys.modules, "IPython.display", here)
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    assert notebook.in_notebook()
    fs.run(owners, "fedsage", settings=FEW)
    assert "0/3 rounds, starting" in seen[0] and "3/3 rounds, training, loss" in seen[-1]
    count = len(seen)
    fs.run(owners, "fedsage", settings=FEW, progress=False)
    assert len(seen) == count


def test_a_package_that_is_missing_is_named_with_how_to_install_it() -> None:
    with pytest.raises(fs.FedSageError, match=r"needs the package nowhere.*'fedsage\[onnx\]'"):
        optional("nowhere.deep", "to_onnx", "fedsage[onnx]")
    assert optional("scipy.stats", "a test", "scipy") is stats


def test_public_names_are_there() -> None:
    for name in fs.__all__:
        assert getattr(fs, name) is not None
    assert {"Split", "Comparison", "compare", "History", "load_result"} <= set(fs.__all__)
