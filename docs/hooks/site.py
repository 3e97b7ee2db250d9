"""What MkDocs calls while it builds: adds the pages that are made and not written.

Pages of the reference come from the code (``pages.py``), pages of notebooks and examples from
their files. Links to files outside of ``docs/`` lead to the page that shows them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
SHOWN = {  # files outside of docs/ that pages link to, and the pages that show them
    f"examples/{path.name}": f"reference/examples/{path.stem}.md"
    for path in sorted((ROOT / "examples").glob("*.py"))
} | {"CHANGELOG.md": "reference/changelog.md", "CONTRIBUTING.md": "reference/contributing.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add all pages that are made."""
    made = dict(pages.reference())
    for source, page in SHOWN.items():
        made[page] = shown(ROOT / source)
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{path.stem}.md"] = of_notebook(path)
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to the repository's files lead to the pages that show them."""
    if page.file.src_uri.startswith(
        "results/"
    ):  # tables of numbers: they would fill the search
        page.meta["search"] = {"exclude": True}
    if not page.file.src_uri.startswith("notebooks/"):  # there it is the file to download
        markdown = re.sub(r"\]\(([\w./-]*notebooks/[\w-]+)\.ipynb\)", r"](\1.md)", markdown)
    up = "../" * page.file.src_uri.count("/")
    for source, target in SHOWN.items():
        markdown = re.sub(
            rf"\]\((?:\.\./)+{re.escape(source)}(#[^)]*)?\)", f"]({up}{target})", markdown
        )
    return markdown


def shown(path: Path) -> str:
    """A file of the repository as a page."""
    text = path.read_text()
    if path.suffix == ".md":
        return re.sub(r"`(docs/[\w/.-]+)`", r"\1", text)
    return f"# `examples/{path.name}`\n\n```python\n{text}```\n"


def of_notebook(path: Path) -> str:
    """A notebook without output as a page, with the file to download."""
    cells = json.loads(path.read_text())["cells"]
    title, *others = [cell_text(cell) for cell in cells]
    note = (
        f"*A notebook: [download it]({path.name}) and run it with Jupyter. "
        "The tests run every cell.*"
    )
    return "\n\n".join([title, note, *others]) + "\n"


def cell_text(cell: dict[str, object]) -> str:
    """A cell of a notebook in Markdown."""
    source = cell["source"]
    text = "".join(source) if isinstance(source, list) else str(source)
    return text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
