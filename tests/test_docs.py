"""Pages say what is: their tables are made from the code, their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.protocol_tables import DOCS, PAGES, TABLES, with_tables

ROOT = DOCS.parent
TEXTS = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_the_protocol_are_those_of_its_declarations(page: str) -> None:
    text = (DOCS / page).read_text()
    assert with_tables(text, PAGES[page]) == text, "run python benchmarks/protocol_tables.py"


def test_every_message_and_procedure_is_in_a_table() -> None:
    rows = ["".join(row) for table in TABLES.values() for row in table()]
    for name in ("local_update_c", "sketch_features", "ClassLinks", "GenOffer", "agree"):
        assert any(name in row for row in rows)


@pytest.mark.parametrize("page", TEXTS, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", TEXTS, ids=lambda path: path.name)
def test_files_that_pages_name_exist(page: Path) -> None:
    named = r"`((?:fedsage|tests|benchmarks|examples|docs)/[\w/.-]+)`"
    for name in re.findall(named, page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"
