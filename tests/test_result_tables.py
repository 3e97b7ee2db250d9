"""The scripts that make tables for people out of committed results."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest

from fedsage.bench.figure import figure_of
from fedsage.bench.suites import SUITES
from fedsage.config import load_config
from fedsage.errors import DataError
from fedsage.reproduce.tables import beside_paper, paired_difference
from fedsage.runs.setup import alone

SCRIPTS = Path(__file__).parent.parent / "benchmarks"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def study(quick: bool = False) -> dict[str, object]:
    """A made-up Table 2 with one cell, as ``reproduce`` writes it."""
    ours = {
        "locsage": [0.6, 0.62],
        "locsage+": [0.6, 0.6],
        "fedsage": [0.75, 0.77],
        "fedsage+": [0.76, 0.79],
        "globsage": [0.8, 0.8],
        "oracle": [0.9, 0.92],
    }
    printed = {
        "locsage": [0.6, 0.01],
        "locsage+": [0.6, 0.01],
        "fedsage": [0.7241, 0.01],
        "fedsage+": [0.7454, 0.01],
        "globsage": [0.7561, 0.01],
    }
    where = {"dataset": "citeseer", "M": 3}
    rows = [
        where | {"method": method} | beside_paper(each, printed.get(method)) | {"local": 0.5}
        for method, each in ours.items()
    ]
    gaps = [
        where
        | {"what": f"{method} − fedsage", "queries": "global"}
        | paired_difference(dict(enumerate(ours[method])), dict(enumerate(ours["fedsage"])))
        for method in ("fedsage+", "oracle")
    ]
    return {"quick": quick, "tables": [{"rows": rows}, {"rows": gaps}]}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with results, and pages with marks."""
    for preset in ("best", "paper"):
        folder = tmp_path / "docs" / "results" / "reproduce" / preset
        folder.mkdir(parents=True)
        (folder / "table-main.json").write_text(json.dumps(study()))
    (tmp_path / "docs" / "reproduction.md").write_text(
        "c\n<!-- table-main -->\n<!-- /table-main -->\nd\n<!-- paired -->\n<!-- /paired -->\n"
        "<!-- table-best -->\n<!-- /table-best -->\n"
    )
    return tmp_path


def test_the_page_on_reproduction_is_made_from_result_files(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("result_tables")
    monkeypatch.setattr(sys, "argv", ["result_tables.py", "--root", str(tree)])
    module.main()
    page = (tree / "docs" / "reproduction.md").read_text()
    assert "| GlobSage | 0.8000 ± 0.0000 | 0.7561 ± 0.0100 | +4.4 | differs | 0.5000 |" in page
    assert "| citeseer | 3 | 0.6100 ± 0.0141 | 0.6000 ± 0.0000 | 0.7600 ± 0.0141 |" in page
    assert "| 0.7241 / 0.7393 | 0.7454 | 0.7561 |" in page
    assert "oracle" not in page.split("<!-- paired -->")[0]
    assert "Preset `paper`:" in page and "Preset `best`:" in page
    assert "| citeseer | 3 | +1.50 [-4.85, +7.85] | **+15.00 [+15.00, +15.00]** |" in page
    module.main()
    assert (tree / "docs" / "reproduction.md").read_text() == page


def test_readme_and_results_show_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    module = script("accuracy")
    (tmp_path / "docs" / "results").mkdir(parents=True)
    pages = ("README.md", "docs/results.md", "docs/features.md", "docs/tuning.md")
    before = "docs/results/accuracy-constant-rate.json"
    for name in (*pages, "docs/results/traffic.json", before):
        (tmp_path / name).write_text((module.ROOT / name).read_text())
    runs = module.read(module.KEPT)
    module.write_tables(runs, tmp_path)
    for name in pages:
        assert (tmp_path / name).read_text() == (module.ROOT / name).read_text()


def test_trials_of_a_preset_differ_in_what_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every arm of every question is another run."""
    monkeypatch.syspath_prepend(SCRIPTS)
    for arms in script("choose_preset").QUESTIONS.values():
        runs = [load_config(arm) for arm in arms.values()]
        trained = [alone(one, "whole") if one.run.method == "globsage" else one for one in runs]
        seen = {
            one.model_copy(update={"classifier": one.classifier.model_copy(
                update={"eta_whole": 0.0})}).model_dump_json()
            for one in trained
        }  # fmt: skip
        assert len(seen) == len(arms)


def test_a_quick_study_or_a_page_without_marks_is_refused(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("result_tables")
    monkeypatch.setattr(sys, "argv", ["result_tables.py", "--root", str(tree)])
    (tree / "docs" / "reproduction.md").write_text("no marks")
    with pytest.raises(DataError, match="Put the marks back"):
        module.main()
    path = tree / "docs" / "results" / "reproduce" / "best" / "table-main.json"
    path.write_text(json.dumps(study(quick=True)))
    with pytest.raises(DataError, match="quick run"):
        module.main()
    path.unlink()
    with pytest.raises(DataError, match="is not there"):
        module.main()


def test_performance_is_made_from_what_bench_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    module = script("performance")
    fast = figure_of("step, cora", [1.0, 2.0, 3.0], "ms", [8.0, 8.0, 8.0], at_least=3)
    large = figure_of("scale, all of it", [9000.0], "MB", at_most=8000)
    figures = [
        {"suite": suite, "met": one.met} | asdict(one)
        for suite, one in (("step", fast), ("scale", large))
    ]
    about = {"system": "Linux", "arch": "x86_64", "cpus": 2}
    found = {"machine": about, "versions": {"torch": "2"}, "commit": "abc", "figures": figures}
    page = (SCRIPTS.parent / "docs" / "performance.md").read_text()
    text = module.renewed(page, found)
    assert "| step, cora | 2 (1–3) ms | 8 ms | 4× (2.67–8) | ≥ 3× |" in text
    assert "| scale, all of it | 9,000 MB |  |  | **≤ 8,000 MB: missed** |" in text
    assert "1 of 2 figures" in text and module.renewed(text, found) == text
    for suite in SUITES:
        assert f"<!-- {suite} -->" in page
