"""The documentation site builds strictly, has all of the reference, and works in a browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import fedsage
from fedsage.cli.main import app
from fedsage.config import Config
from fedsage.protocol.messages import MESSAGES
from tests.docs.browser import Tab, opened

ROOT = Path(__file__).parent.parent.parent
CHROMIUM = shutil.which("chromium")
PAGES = ("index.html", "concepts/paper.html", "reference/settings.html", "security.html")
browser = pytest.mark.browser
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    started = os.times()
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ended = os.times()
    seconds = ended.children_user + ended.children_system
    seconds -= started.children_user + started.children_system
    assert seconds < 60, f"{seconds:.0f} CPU seconds"
    return folder


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A tab in a real browser."""
    with opened(str(CHROMIUM), tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def commands(command: Any, words: tuple[str, ...] = ("fedsage",)) -> Iterator[tuple[str, ...]]:
    """Every command that does something, as words."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words
    for name, one in (inner or {}).items():
        yield from commands(one, (*words, name))


@pytest.mark.slow
def test_every_public_name_has_an_entry(site: Path) -> None:
    html = "".join(path.read_text() for path in (site / "reference").glob("*.html"))
    for name in fedsage.__all__:
        assert f'id="fedsage.{name}"' in html, name


@pytest.mark.slow
def test_every_setting_command_and_message_is_in_the_reference(site: Path) -> None:
    settings = (site / "reference" / "settings.html").read_text()
    for section, field in Config.model_fields.items():
        for key in field.annotation.model_fields:  # type: ignore[union-attr]
            assert f"<code>{section}.{key}</code>" in settings
    shown = (site / "reference" / "commands.html").read_text()
    for words in commands(typer.main.get_command(app)):
        assert f"<code>{' '.join(words)}</code>" in shown
    messages = (site / "reference" / "messages.html").read_text()
    for kind in MESSAGES:
        if kind.__module__.startswith("fedsage."):
            assert f"<code>{kind.__name__}</code>" in messages


@pytest.mark.slow
def test_pages_ask_nobody_else_for_anything(site: Path) -> None:
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)[^>]*>", page.read_text()):
            assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag), f"{page}: {tag}"


@pytest.mark.slow
def test_notebooks_can_be_downloaded(site: Path) -> None:
    for kept in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / kept.name).with_suffix(".html").read_text()
        assert f'href="{kept.name}"' in page
        assert (site / "notebooks" / kept.name).read_text() == kept.read_text()


@pytest.mark.slow
def test_no_role_of_restructured_text_is_left_in_the_reference(site: Path) -> None:
    for page in (site / "reference").glob("*.html"):
        assert not re.search(r":(class|func|meth|math):", page.read_text()), page.name


@browser
@needs_chromium
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width, scheme", [(1280, "light"), (400, "dark")])
def test_a_page_shows_without_an_error(
    site: Path, tab: Tab, page: str, width: int, scheme: str
) -> None:
    tab.complaints.clear()
    tab.asked.clear()
    tab.look(width, 900, scheme)
    tab.open(f"file://{site / page}")
    assert tab.run("document.documentElement.scrollWidth <= window.innerWidth")
    dark = tab.run("document.body.getAttribute('data-md-color-scheme')") == "slate"
    assert dark == (scheme == "dark")
    pictures = "[...document.images].every((one) => one.complete && one.naturalWidth > 0)"
    tab.until(pictures)
    time.sleep(0.2)
    assert not tab.complaints
    assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in tab.asked)


@browser
@needs_chromium
@pytest.mark.parametrize("word, target", [("hide_ratio", "settings"), ("oracle", "mending")])
def test_search_finds_a_page_without_a_server(
    site: Path, tab: Tab, word: str, target: str
) -> None:
    tab.complaints.clear()
    tab.look(1280, 900, "light")
    tab.open(f"file://{site / 'index.html'}?q={word}")
    found = "[...document.querySelectorAll('.md-search-result__link')].map((a) => a.href)"
    tab.until(f"{found}.length > 0")
    assert any(target in url for url in tab.run(found))
    assert not tab.complaints
