"""What pages tell a reader to type is typed here, page by page, from top to bottom.

``tests/federation`` runs what needs kits or several processes, ``tests/audit`` the attacks.
Runs are cut short: a reader has more time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedsage.cli.main import app
from fedsage.presets import PRESETS, overlaid

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [
    DOCS / "index.md",
    DOCS / "get-started.md",
    *sorted((DOCS / "tutorials").glob("*.md")),
    *sorted((DOCS / "how-to").glob("*.md")),
]
ELSEWHERE = ("federation", "audit")
FEWER = {
    "--seeds 3": "--seeds 1",
    "range(3)": "range(2)",
    "(100, 101)": "(100,)",
    '"rounds_c": 10': '"rounds_c": 4',
}


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The kind and the text of every block of Python or of commands."""
    for many, few in FEWER.items():
        text = text.replace(many, few)
    yield from re.findall(r"^```(python|bash)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def cases() -> Iterator[object]:
    """A page with blocks; those with Cora need the real datasets."""
    for page in PAGES:
        found = list(blocks(page.read_text()))
        marks = [pytest.mark.slow]
        if any("cora" in text for _, text in found):
            marks.append(pytest.mark.dataset)
        if found:
            yield pytest.param(page, id=str(page.relative_to(DOCS)), marks=marks)


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the page says nothing of rounds."""
    short = overlaid(PRESETS["best"], {"classifier": {"rounds_c": 4}})
    monkeypatch.setitem(PRESETS, "best", short)


@pytest.mark.parametrize("page", list(cases()))
@pytest.mark.filterwarnings("default")  # of other people's libraries
def test_everything_on_the_page_runs(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, object] = {"__name__": "page"}
    for kind, text in blocks(page.read_text()):
        if kind == "python":
            exec(compile(text, str(page), "exec"), names)
            continue
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["fedsage"] and words[1] not in ELSEWHERE:
                done = CliRunner().invoke(app, words[1:])
                assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception}"
