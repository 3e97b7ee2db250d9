"""What the charts and tables of the page promise to their reader."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fedsage.evaluation.paired import PairedDifference
from fedsage.report.accuracy import in_words, paper_value
from fedsage.report.bars import Series, dot_columns, heat_map
from fedsage.report.blocks import Figure, Grid, Mark, Section, Table
from fedsage.report.dots import Dots, dot_chart, in_focus
from fedsage.report.lines import Curve, line_chart
from fedsage.report.marks import LEFT, RIGHT, WIDTH, slant
from fedsage.report.mending import better_or_worse
from fedsage.report.page import page, sections_of
from fedsage.report.read import Run, by_method, read_runs
from tests.report.conftest import CHROMIUM, FLAGS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sections(compared: Path) -> list[Section]:
    return sections_of(read_runs([compared]))


def figures(sections: Sequence[Section]) -> Iterator[Figure]:
    for section in sections:
        for block in section.blocks:
            yield from block.figures if isinstance(block, Grid) else ()


def table(sections: Sequence[Section], caption: str) -> Table:
    blocks = [block for section in sections for block in section.blocks]
    return next(b for b in blocks if isinstance(b, Table) and b.caption.startswith(caption))


def colors(mark: Mark) -> set[str]:
    found = set(re.findall(r"\b[mq][0-7]\b|\btruth\b", mark.attributes.get("class", "")))
    return found.union(*(colors(one) for one in mark.inside))


def test_a_method_has_one_color_in_all_charts(sections: list[Section]) -> None:
    methods, seen = ("locsage", "fedsage+neighgen", "fedsage"), dict[str, set[str]]()
    for one in figures(sections):
        for key in one.keys:
            if key.name in methods:
                seen.setdefault(key.name, set()).update(colors(key.mark))
        if one.caption in methods:  # its confusion
            for mark in one.picture.marks:
                seen.setdefault(one.caption, set()).update(colors(mark))
    assert seen == {"locsage": {"m0"}, "fedsage+neighgen": {"m1"}, "fedsage": {"m2"}}


def test_a_legend_lists_what_is_drawn_and_nothing_else(sections: list[Section]) -> None:
    for one in figures(sections):
        drawn = set[str]().union(*(colors(mark) for mark in one.picture.marks))
        listed = [color for key in one.keys for color in colors(key.mark)]
        assert len(listed) == len(set(listed)) and set(listed) <= drawn, one.caption
        assert not listed or set(listed) == drawn, one.caption


def test_every_chart_says_what_it_means_and_brings_its_numbers(
    sections: list[Section],
) -> None:
    found = list(figures(sections))
    assert len(found) >= 12
    for one in found:
        assert one.says.endswith((".", "?")), one.caption
        assert one.sheet.rows and all(len(r) == len(one.sheet.columns) for r in one.sheet.rows)


def test_every_chart_and_table_can_be_downloaded(compared: Path) -> None:
    html = page(read_runs([compared]))
    blocks = html.count("<figure ") + html.count('<div class="table"')
    for kind in ("svg", "csv", "tex"):
        assert html.count(f'data-get="{kind}"') == blocks > 15


def test_accuracy_of_every_owner_in_every_run_is_told(
    compared: Path, sections: list[Section]
) -> None:
    runs = read_runs([compared])
    shown = table(sections, "Local accuracy of every owner")
    assert [row[0] for row in shown.rows] == [
        f"{r.method}, seed {r.result['seed']}" for r in runs
    ]
    for row, run in zip(shown.rows, runs, strict=True):
        each = [one["local"] for one in run.result["per_owner"]]
        assert list(row[1:]) == ["–" if v is None else f"{v:.4f}" for v in each]


def test_differences_are_against_the_first_federated_method(sections: list[Section]) -> None:
    shown = table(sections, "Paired differences from fedsage+neighgen")
    assert [row[0] for row in shown.rows] == ["locsage", "fedsage"]
    assert "the paper's difference" in shown.columns and "95% interval" in shown.columns


def test_the_paper_s_value_is_found_for_its_own_cells(tmp_path: Path) -> None:
    result = {"method": "fedsage", "dataset": "cora", "owners": 3, "partition": "louvain"}
    assert paper_value([Run(tmp_path, result, [])]) == 0.8656
    assert paper_value([Run(tmp_path, result | {"partition": "metis"}, [])]) is None


def test_runs_that_differ_in_more_than_the_method_are_told_apart(compared: Path) -> None:
    one = read_runs([compared / "fedsage-seed0"])[0]
    other = Run(one.folder, one.result | {"dataset": "cora", "owners": 10}, one.history)
    names = ["fedsage, synthetic, M = 3", "fedsage, cora, M = 10"]
    assert list(by_method([one, other])) == names


def dots(name: str, *values: float) -> Dots:
    return Dots(name, "m0", [("seed 0", v) for v in values], sum(values) / len(values))


def test_an_axis_shows_the_differences_and_says_that_it_is_cut() -> None:
    rows = [dots("far", 0.6, 0.63), dots("a", 0.86, 0.87), dots("b", 0.865, 0.88)]
    assert [one.name for one in in_focus(rows)] == ["a", "b"]
    picture, says = dot_chart(rows, "accuracy")
    assert says == "The axis is cut: it runs from 0.859 to 0.881. Off the axis: far."
    assert any("0.6150, off the axis" in mark.content for mark in picture.marks)
    near = [dots("a", 0.5), dots("b", 0.7), dots("c", 0.9)]
    assert in_focus(near) == near
    spread = [Dots(f"{x}", "", [], x) for x in (0.925, 0.958, 0.867, 0.95)]
    assert len(in_focus(spread)) == 3  # only one of four may be left off


def test_equal_values_still_make_a_chart() -> None:
    for rows in ([dots("a", 0.5)], [dots("a", 0.5), dots("b", 0.5), dots("c", 0.5)]):
        picture, _ = dot_chart(rows, "accuracy")
        assert picture.marks
    assert dot_columns(["x"], [Series("a", "m0", [0.0])], "recall")[0].marks
    assert heat_map([[0]], ["x"], ["x"], "true", "predicted", "m0").marks


def test_curves_that_rise_fast_leave_the_first_rounds_outside() -> None:
    y = [0.1, 0.5, *([0.8, 0.81, 0.82, 0.83] * 3)]
    rounds = list(range(1, len(y) + 1))
    _, says = line_chart([Curve("a", "m0", rounds, y, y, y)], "round", "accuracy")
    assert says.startswith("The axis is cut to 0.8–0.83")
    slow = [t / 100 for t in rounds]
    assert line_chart([Curve("a", "m0", rounds, slow, slow, slow)], "round", "x")[1] == ""


def test_it_is_said_where_mending_made_features_worse() -> None:
    worse, better = dots("neighgen", 12.0), dots("oracle", -99.0)
    says = better_or_worse([worse, better])
    assert "neighgen made features worse: neighborhoods are 12.0% further" in says
    assert "oracle brought neighborhoods 99.0% closer" in says


def test_words_about_differences_follow_the_interval() -> None:
    found = {
        "up": PairedDifference(0.1, 0.01, 0.05, 0.15, 3),
        "down": PairedDifference(-0.1, 0.01, -0.15, -0.05, 3),
        "same": PairedDifference(0.0, 0.01, -0.05, 0.05, 3),
    }
    says = in_words(found, "base")
    assert "Above base: up." in says and "Below base: down." in says
    assert "No clear difference from base, as the interval includes 0: same." in says


def test_twelve_runs_take_less_than_a_megabyte(compared: Path) -> None:
    runs = read_runs([compared, compared])
    assert len(runs) == 12 and len(page(runs).encode()) < 1_000_000


def probe(html: str, script: str, folder: Path, *flags: str) -> str:
    """What a script leaves in the title of the page, in a real browser without an error."""
    path = folder / "probe.html"
    path.write_text(html.replace("</body>", f"<script>{script}</script></body>"))
    done = subprocess.run(
        [str(CHROMIUM), *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", f"file://{path}"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r"<pre id=.found.>(.*?)</pre>", done.stdout, re.DOTALL)
    assert found is not None
    import html as entities

    return entities.unescape(found[1])


GIVE = """
const blocks = Array.from(document.querySelectorAll("figure, .table"));
const all = (kind) => blocks.map((block) => exported(block, kind)[0]);
const found = Object.fromEntries(["svg", "csv", "tex"].map((kind) => [kind, all(kind)]));
const box = document.createElement("pre");
box.id = "found";
box.textContent = JSON.stringify(found);
document.body.append(box);
"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
def test_downloads_are_whole_files_of_their_kind(compared: Path, tmp_path: Path) -> None:
    dark = "--blink-settings=preferredColorScheme=0"
    html = page(read_runs([compared]))
    found = json.loads(probe(html, GIVE, tmp_path, dark))
    assert len(found["svg"]) == len(found["csv"]) == len(found["tex"]) > 15
    for words in found["svg"]:
        root = ElementTree.fromstring(words)
        assert root.tag.endswith("svg") and float(root.attrib["width"]) > 0
        for one in root.iter():
            assert "class" not in one.attrib and "var(" not in str(one.attrib)
    assert "rgb(0, 114, 178)" in "".join(found["svg"]), (
        "on paper colors are those of light mode"
    )
    for words in found["csv"]:
        rows = list(csv.reader(io.StringIO(words)))
        assert len(rows) > 1 and len({len(row) for row in rows}) == 1
    for words in found["tex"]:
        assert words.count("\\begin{") == words.count("\\end{") == 2
        assert words.count("{") - words.count("\\{") == words.count("}") - words.count("\\}")
    first = json.loads((compared / "fedsage-seed0" / "result.json").read_text())
    assert f"{first['accuracy']['global']:.6g}" in found["csv"][0]


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
def test_a_phone_scrolls_tables_and_never_the_page(compared: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(read_runs([compared])))
    frame = (
        f'<body><iframe src="file://{tmp_path}/report.html" width="390" height="800"></iframe>'
    )
    flags = "--allow-file-access-from-files"
    script = """
    window.onload = () => {
      const inside = document.querySelector("iframe").contentDocument;
      const tables = Array.from(inside.querySelectorAll(".scroll"));
      const scrolls = tables.some((one) => one.scrollWidth > one.clientWidth);
      const box = document.createElement("pre");
      box.id = "found";
      box.textContent = JSON.stringify([inside.documentElement.scrollWidth, scrolls]);
      document.body.append(box);
    };"""
    width, scrolls = json.loads(probe(frame + "</body>", script, tmp_path, flags))
    assert width <= 390 and scrolls


def test_the_page_of_a_single_run_compares_with_nothing(compared: Path, tmp_path: Path) -> None:
    shutil.copytree(compared / "fedsage-seed0", tmp_path / "run")
    html = page(read_runs([tmp_path / "run"]))
    assert "Paired differences" not in html and "0 runs" not in html


@pytest.mark.parametrize("names", [["a name that is long enough to leave"] * 6, ["ab"] * 3])
def test_slanted_labels_stay_in_the_picture(names: list[str]) -> None:
    room = (WIDTH - LEFT - RIGHT) / len(names)
    wide = 6.5 * len(names[0]) * math.cos(math.radians(slant(names, room)))
    assert wide <= LEFT + room / 2 + 1e-6
