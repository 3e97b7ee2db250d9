"""Pages say what is: their tables are made from the code, their links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks.protocol_tables import DOCS, PAGES, TABLES, with_tables
from fedsage.cli.main import app

ROOT = DOCS.parent
WRITTEN = sorted(path for path in DOCS.rglob("*.md") if DOCS / "results" not in path.parents)
TEXTS = [*WRITTEN, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_the_protocol_are_those_of_its_declarations(page: str) -> None:
    text = (DOCS / page).read_text()
    assert with_tables(text, PAGES[page]) == text, "run python benchmarks/protocol_tables.py"


def test_every_message_and_procedure_is_in_a_table() -> None:
    rows = ["".join(row) for table in TABLES.values() for row in table()]
    for name in ("local_update_c", "sketch_features", "ClassLinks", "GenOffer", "agree"):
        assert any(name in row for row in rows)


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        made = (page.parent / target).resolve().is_relative_to(DOCS / "reference")
        if not made and not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_files_that_pages_name_exist(page: Path) -> None:
    named = r"`((?:fedsage|tests|benchmarks|examples|docs)/[\w/.-]+)`"
    for name in re.findall(named, page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def named_in_tree(text: str) -> Iterator[str]:
    """The files and folders in the tree of the page on architecture, as paths or patterns."""
    [block] = re.findall(r"^```\nfedsage/\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    above: list[str] = []
    for line in block.splitlines():
        if "── " in line:
            depth, (names, *_) = line.index("──") // 4, re.split(r"  +", line.split("── ")[1])
            found = re.findall(r"[\w*./]+", names)
            yield from ("".join([*above[:depth], name]) for name in found)
            above = [*above[:depth], found[0]]


def test_the_tree_of_files_is_what_is_there() -> None:
    package, named = ROOT / "fedsage", [*named_in_tree((DOCS / "architecture.md").read_text())]
    for path in named:
        found = [*package.glob(path), *package.glob(f"{path}.py")]
        assert found, f"architecture.md names fedsage/{path}"
    for folder in package.iterdir():
        if (folder / "__init__.py").exists():
            assert f"{folder.name}/" in named, f"architecture.md does not name {folder.name}/"


@pytest.mark.parametrize("picture", ["walk-run.svg", "walk-message.svg"])
def test_files_in_the_pictures_of_walks_exist(picture: str) -> None:
    names = re.findall(r"(?<![\w/])[a-z][a-z_/]*\.py", (DOCS / picture).read_text())
    assert len(names) > 5
    for name in names:
        assert [*(ROOT / "fedsage").rglob(name)], f"{picture} names {name}"


def test_privacy_levels_are_promised_in_the_same_words_everywhere() -> None:
    found = {
        name(page): table.strip()
        for page in TEXTS
        for table in re.findall(
            r"<!-- levels -->(.*?)<!-- /levels -->", page.read_text(), flags=re.DOTALL
        )
    }
    assert {"docs/security.md", "docs/concepts/privacy.md"} <= set(found)
    assert len(set(found.values())) == 1


def shown_commands(text: str) -> Iterator[list[str]]:
    """Every ``fedsage`` command in a fenced block, without its comment."""
    for block in re.findall(r"^```(?:bash)?\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("fedsage "):
                yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_commands_on_pages_have_only_verbs_and_flags_that_exist(page: Path) -> None:
    for words in shown_commands(page.read_text()):
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands") and words and not words[0].startswith("-"):
            assert words[0] in command.commands, f"{page.name}: no command {words[0]}"
            command = command.commands[words.pop(0)]
        flags = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
        for word in words:
            if word.startswith("--"):
                assert word.split("=")[0] in {*flags, "--help"}, f"{page.name}: no {word}"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)
def test_notebooks_are_kept_without_output(notebook: Path) -> None:
    for cell in json.loads(notebook.read_text())["cells"]:
        assert not cell.get("outputs") and not cell.get("execution_count")


def test_the_readme_is_short_and_promises_in_the_words_of_the_security_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.split()) <= 900
    promised = readme.partition("## What each privacy level promises")[2].partition("\n## ")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ")]
    security = (DOCS / "security.md").read_text()
    assert len(rows) >= 4
    assert all(row in security for row in rows)
