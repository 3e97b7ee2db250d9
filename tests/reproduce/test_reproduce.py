from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedsage.config import load_config
from fedsage.errors import ConfigError
from fedsage.paper import paper_accuracy, paper_values
from fedsage.reproduce import cells as cells_module
from fedsage.reproduce import links
from fedsage.reproduce.cells import Cell, FinishedCell, Labels, fingerprint, run_cells
from fedsage.reproduce.figures import Panel, save_figure
from fedsage.reproduce.make import STUDIES, Study, study_named
from fedsage.reproduce.neighgen_figures import time_of
from fedsage.reproduce.studies import Options, RunCells, StudyOutput, accuracy_rows
from fedsage.reproduce.tables import Table, beside_paper, paired_difference
from fedsage.runs.folder import EARLIER
from tests.small import SMALL

if TYPE_CHECKING:
    from tests.cli.conftest import Call

PROMISED = {
    "table-datasets", "table-main", "figure-alpha", "figure-hide-ratio", "figure-labels",
    "figure-curves", "figure-dgen", "table-fgen", "table-shared-neighgen", "table-batch-size",
    "table-local-epochs", "gntk", "privacy", "links",
}  # fmt: skip


def small_cells(count: int) -> list[Cell]:
    made = []
    for seed in range(count):
        run = {"run": {"method": "fedsage", "seed": seed}}
        made.append(Cell({"method": "fedsage"}, load_config(SMALL, run)))
    return made


def test_every_promised_name_is_there() -> None:
    assert set(STUDIES) == PROMISED
    with pytest.raises(ConfigError, match="Did you mean 'table-main'"):
        study_named("table-mian")


@pytest.mark.slow
def test_a_stopped_study_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ran = cells_module.run_config, []

    def counted(config):  # type: ignore[no-untyped-def]
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(config.run.seed)
        return real(config)

    monkeypatch.setattr(cells_module, "run_config", counted)
    with pytest.raises(KeyboardInterrupt):
        run_cells(small_cells(4), tmp_path / "cells", lambda done, total, cell: None)
    monkeypatch.setattr(cells_module, "run_config", real)
    kept = run_cells(small_cells(4), tmp_path / "cells", lambda k, n, cell: None, jobs=0)
    assert [one.seed for one in kept] == [0, 1]
    told: list[int] = []
    done = run_cells(small_cells(4), tmp_path / "cells", lambda k, total, cell: told.append(k))
    assert ran == [0, 1] and told == [1, 2]
    fresh = run_cells(small_cells(4), tmp_path / "other", lambda k, total, cell: None, jobs=2)
    hashes = [[one.record["model_sha256"] for one in each] for each in (done, fresh)]
    assert hashes[0] == hashes[1] and len(set(hashes[0])) == 4


@pytest.mark.slow
def test_a_cell_that_an_earlier_version_kept_is_read_as_one_of_this_version(
    tmp_path: Path,
) -> None:
    (new,) = run_cells(small_cells(1), tmp_path, lambda k, total, cell: None)
    (path,) = tmp_path.iterdir()
    kept = json.loads(path.read_text())
    before = {now: name for name, now in EARLIER.items()}
    kept["record"]["format"] = 1
    for key in ("bytes", "seconds", "cpu_seconds_by_phase"):
        kept["record"][key] = {before.get(k, k): v for k, v in kept["record"][key].items()}
    for line in kept["history"]:
        line["phase"] = before[line["phase"]]
    path.write_text(json.dumps(kept))
    (old,) = run_cells(small_cells(1), tmp_path, lambda k, total, cell: None, jobs=0)
    assert old == new and time_of(old.history)


def test_a_cell_is_known_by_the_settings_that_its_method_uses() -> None:
    def mark(method: str, **sections: object) -> str:
        return fingerprint(load_config(SMALL, sections, {"run": {"method": method}}))

    alpha, rank = {"neighgen": {"alpha": 3}}, {"mend": {"rank": 3}}
    assert mark("fedsage") == mark("fedsage", **alpha) == mark("fedsage", **rank)
    assert mark("fedsage+copy") == mark("fedsage+copy", **alpha)
    assert mark("fedsage+copy") != mark("fedsage+copy", **rank)
    assert mark("fedsage+neighgen") != mark("fedsage+neighgen", **alpha)
    assert mark("fedsage") == mark("fedsage", run={"workers": 4})
    assert mark("fedsage") != mark("fedsage", classifier={"eta": 0.5})


def test_a_cell_beyond_two_standard_deviations_is_marked() -> None:
    assert beside_paper([0.80, 0.82], [0.81, 0.01])["marked"] == ""
    far = beside_paper([0.80, 0.82], [0.90, 0.01])
    assert far["marked"] == "differs" and far["difference"] == pytest.approx(-0.09)
    assert beside_paper([0.5], None)["paper"] is None


def test_the_interval_of_paired_differences_is_student_s() -> None:
    found = paired_difference({0: 0.5, 1: 0.7, 2: 0.6}, {0: 0.4, 1: 0.5, 2: 0.6, 3: 0.1})
    assert found["difference"] == pytest.approx(0.1) and found["seeds"] == 3
    half = 4.3027 * 0.1 / 3**0.5  # t for two degrees of freedom
    assert found["to"] - found["difference"] == pytest.approx(half, rel=1e-3)
    assert paired_difference({0: 0.5}, {0: 0.4})["from"] is None


def small_study(options: Options, run: RunCells) -> StudyOutput:
    """Two seeds of FedSage over one setting, with a made-up value in the paper's place."""
    wanted = []
    for eta in (0.01, 0.1):
        for seed in range(2):
            chosen = {"run": {"method": "fedsage", "seed": seed}, "classifier": {"eta": eta}}
            wanted.append(Cell({"method": "fedsage", "eta": eta}, load_config(SMALL, chosen)))

    def paper(labels: Labels) -> list[float] | None:
        return [0.99, 0.001] if labels["eta"] == 0.1 else None

    return StudyOutput([Table("T", accuracy_rows(run(wanted), paper))], paper=paper)


@pytest.mark.slow
def test_json_has_a_row_for_every_group_of_runs_and_the_tables(
    fedsage: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STUDIES, "small", Study("nowhere", small_study))
    done = fedsage("reproduce", "small", "--datasets", "synthetic", "--json", "--jobs", "1",
                   "--out", "out")  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    first, second = found["rows"]
    keys = {"method", "dataset", "owners", "partition", "preset", "seeds", "global", "local",
            "cpu_seconds", "paper"}  # fmt: skip
    assert keys <= set(first) and keys <= set(second)
    assert (first["method"], first["dataset"], first["owners"]) == ("fedsage", "synthetic", 3)
    assert first["seeds"] == [0, 1] and (first["eta"], second["eta"]) == (0.01, 0.1)
    assert set(first["global"]) == set(first["local"]) == {"mean", "std", "each"}
    runs = json.loads(Path("out/small.json").read_text())["runs"]
    assert first["global"]["each"] == [run["accuracy"]["global"] for run in runs[:2]]
    assert first["paper"] is None and second["paper"] == 0.99
    assert second["difference"] == pytest.approx(second["global"]["mean"] - 0.99)
    assert first["marked"] == ""
    assert found["tables"][0]["rows"][0]["ours"] == first["global"]["mean"]


@pytest.mark.slow
@pytest.mark.dataset
def test_json_of_a_study_without_runs_has_the_rows_of_its_table(fedsage: Call) -> None:
    done = fedsage("reproduce", "table-datasets", "--quick", "--json")
    found = json.loads(done.out)
    assert [row["what"] for row in found["rows"]] == ["nodes", "links", "missing"]
    assert found["rows"][0]["paper"] == 903


def test_the_paper_s_contradictions_are_data() -> None:
    also = {(one["dataset"], one["method"]): one["accuracy"]
            for one in paper_values()["table-main"]["also"]}  # fmt: skip
    assert also == {("citeseer", "fedsage"): 0.7393, ("msacademic", "fedsage+"): 0.9414}
    assert paper_accuracy("fedsage", "citeseer", 3, "louvain") == 0.7241
    assert paper_accuracy("fedsage+neighgen", "cora", 3, "louvain") == 0.8686


def test_time_adds_up_over_local_models() -> None:
    lines = [("mending", 0, 3.0), ("training", 0, 4.0), ("training", 1, 6.0),
             ("training", 0, 6.5), ("training", 1, 7.5)]  # fmt: skip
    history = [dict(zip(("phase", "round", "seconds"), one, strict=True)) for one in lines]
    assert time_of(history) == {1: 4.5, 2: 7.5}


def test_a_table_says_the_same_in_every_form() -> None:
    rows = [{"a": 1, "b": 0.25, "c": None}, {"a": 2, "b": 0.5, "c": "x"}]
    table = Table("T", rows, "words")
    assert "| 1 | 0.2500 |  |" in table.markdown() and "words" in table.markdown()
    back = list(csv.DictReader(table.csv().splitlines()))
    assert back == [{"a": "1", "b": "0.25", "c": ""}, {"a": "2", "b": "0.5", "c": "x"}]


@pytest.mark.slow
def test_figures_are_written_as_png_and_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    panels = [
        Panel("a", "x", "y", curves={"one": [(1, 2, 0.1), (2, 3, 0.1)]}, log_x=True),
        Panel("b", "x", "y", bars={"one": [1, 2]}, groups=["p", "q"]),
        Panel("c", "x", "y", counts=[[1, 0], [0, 2]]),
    ]
    written = save_figure(panels, tmp_path / "figure")
    assert [path.suffix for path in written] == [".png", ".svg"]
    assert all(path.stat().st_size > 3000 for path in written)
    again = save_figure(panels, tmp_path / "again")
    assert written[1].read_bytes() == again[1].read_bytes()


@pytest.mark.slow
@pytest.mark.dataset
@pytest.mark.parametrize("name", ["table-datasets", "table-fgen", "figure-dgen"])
def test_a_quick_study_writes_all_its_files_and_says_that_it_is_quick(
    fedsage: Call, name: str, tmp_path: Path
) -> None:
    done = fedsage("reproduce", name, "--quick", "--out", str(tmp_path / "out"))
    assert done.code == 0, done.err
    assert "do not quote its numbers" in done.out
    assert "Quick" in (tmp_path / "out" / f"{name}.md").read_text()
    kept = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert kept["quick"] is True and kept["tables"][0]["rows"]
    assert (tmp_path / "out" / f"{name}.csv").exists()
    assert (tmp_path / "out" / f"{name}.png").exists() == name.startswith("figure")


def test_private_runs_are_paired_with_fedsage_plus_on_the_same_owners() -> None:
    from fedsage.reproduce.cells import FinishedCell
    from fedsage.reproduce.privacy import OPEN, privacy

    def ran(cells: list[Cell]) -> list[FinishedCell]:
        done = []
        for cell in cells:
            lost = 0.0 if cell.labels["ε"] == OPEN else 0.1 / float(cell.labels["ε"])
            record = {
                "accuracy": {"global": 0.9 - lost, "local": 0.8 - lost}, "cpu_seconds": 1.0,
            }  # fmt: skip
            level = cell.config.privacy.level
            assert level == ("open" if cell.labels["ε"] == OPEN else "private")
            done.append(FinishedCell(cell.labels, cell.config.run.seed, "", "", record, []))
        return done

    shown = privacy(Options(seeds=2, datasets=("cora",), owners=(3, 5, 10)), ran)  # type: ignore[arg-type]
    accuracy, gaps = shown.tables
    assert {row["M"] for row in accuracy.rows} == {3, 10}
    found = {(row["M"], row["ε"], row["queries"]): row["difference"] for row in gaps.rows}
    assert found[10, 4.0, "at the owners"] == pytest.approx(-0.025)
    assert [len(points) for points in shown.panels[0].curves.values()] == [3, 3, 3, 3]


def test_known_links_are_held_against_no_links_and_the_oracle() -> None:
    options = Options(preset="best", seeds=2, datasets=("cora",))
    wanted = links.cells(options)
    assert {one.config.data.partition for one in wanted} == {"random"}
    shares = {one.labels["known"] for one in wanted if one.labels["method"] == links.LINKS}
    assert shares == {one.config.links.share for one in wanted} == set(links.SHARES)
    right = {"fedsage": 0.7, "oracle": 0.9}  # the others are in between

    def done(wanted: Sequence[Cell]) -> list[FinishedCell]:
        return [
            FinishedCell(one.labels, seed, "", "", {"accuracy": accuracy}, [])
            for one in wanted
            for seed in [one.config.run.seed]
            for local in [right.get(str(one.labels["method"]), 0.8) + 0.01 * seed]
            for accuracy in [{"global": 0.9, "local": local}]
        ]

    output = links.links(options, done)
    rows = {(row["method"], row["known"]): row for row in output.tables[0].rows}
    assert rows["fedsage", "0"]["local"] == "0.7050 ± 0.0071"
    assert rows["fedsage", "0"]["gain, local"] == ""
    assert rows["fedsage+links", "0.5"]["gain, local"] == "+10.00 ± 0.00"
    assert rows["fedsage+links", "0.5"]["of the oracle's"] == "50%"
    (panel,) = output.panels
    assert panel.curves is not None
    curve = panel.curves["FedSage+ by links"]
    assert [round(y, 3) for _, y, _ in curve] == [0.705, 0.805, 0.805, 0.805, 0.805]
