"""Where one owner's tables are: files in its folder, or a database that ``source.toml`` names.

``source.toml`` belongs to one owner and is not shared. It says how files are written, or gives
the address of a database and a query for each table.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedsage.errors import DataError
from fedsage.tables.cells import Cells, Layout, cells_of_rows
from fedsage.tables.feature import unknown_keys
from fedsage.tables.files import find_table, read_cells
from fedsage.tables.problems import Problems
from fedsage.tables.schema import SOURCE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

QUERIES = ("nodes", "edges", "features")
KEYS = ("separator", "decimal", "encoding", "url", *QUERIES)
VARIABLE = re.compile(r"\$\{(\w+)\}")
Three = tuple[Cells | None, Cells | None, Cells | None]


@dataclass(frozen=True, slots=True)
class Source:
    """What ``source.toml`` says."""

    layout: Layout
    url: str  # of a database; empty if tables are files
    queries: Mapping[str, str]


def read_folder(folder: Path, problems: Problems, links_needed: bool = True) -> Three:
    """The tables of nodes, links and sparse features; None for those that are not there."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder. Give the folder that holds nodes.csv.")
    source = read_source(folder / SOURCE, problems)
    if source.url:
        return read_database(source, folder, problems)
    paths = [
        find_table(folder, "nodes", problems),
        find_table(folder, "edges", problems, links_needed),
        find_table(folder, "features", problems, False),
    ]
    found = [read_cells(path, problems, source.layout) if path else None for path in paths]
    return found[0], found[1], found[2]


def read_source(path: Path, problems: Problems) -> Source:
    """The settings in a file; the usual ones if there is none."""
    if not path.exists():
        return Source(Layout(), "", {})
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.add("source", SOURCE, f"cannot be read ({error})", "Correct the file.")
        problems.raise_if_any()
        raise AssertionError from None  # the line above has raised
    unknown_keys(content, KEYS, SOURCE, "", problems)
    for key, value in content.items():
        if key in KEYS and not isinstance(value, str):
            problems.add("source", f"{SOURCE}, {key}", f"is {value!r}", "Write it in quotes.")
    check_layout(content, problems)
    if ("url" in content) != ("nodes" in content and "edges" in content):
        remedy = "Give url, nodes and edges together, or none of them."
        problems.add("source", SOURCE, "has only a part of url, nodes and edges", remedy)
    problems.raise_if_any()
    layout = {
        key: content[key] for key in ("separator", "decimal", "encoding") if key in content
    }
    queries = {name: content[name] for name in QUERIES if name in content}
    return Source(Layout(**layout), content.get("url", ""), queries)


def check_layout(content: Mapping[str, Any], problems: Problems) -> None:
    """Note what is wrong with the signs that separate cells and decimals."""
    if len(str(content.get("separator", ","))) != 1:
        remedy = 'Write a single sign such as ";" or "\\t".'
        what = f"is {content['separator']!r}"
        problems.add("source", f"{SOURCE}, separator", what, remedy)
    if content.get("decimal", ".") not in (".", ","):
        what = f"is {content['decimal']!r}"
        problems.add("source", f"{SOURCE}, decimal", what, 'Write "." or ",".')
    try:
        "".encode(str(content.get("encoding", "utf-8")))
    except LookupError:
        remedy = 'Write a known one such as "utf-8" or "cp1252".'
        what = f"is {content['encoding']!r}"
        problems.add("source", f"{SOURCE}, encoding", what, remedy)


def read_database(source: Source, folder: Path, problems: Problems) -> Three:
    """The tables that the queries give, through SQLAlchemy (the extra ``sql``)."""
    try:
        import sqlalchemy
    except ImportError:
        raise DataError(
            f"{SOURCE} names a database, and reading those needs SQLAlchemy. Install it with "
            "pip install 'fedsage[sql]', or export the tables as CSV."
        ) from None
    secrets = [os.environ.get(name, "") for name in VARIABLE.findall(source.url)]
    found: dict[str, Cells] = {}
    table = "url"
    try:
        engine = sqlalchemy.create_engine(in_folder(with_secrets(source.url), folder))
        try:
            with engine.connect() as connection:
                for table, query in source.queries.items():
                    result = connection.execute(sqlalchemy.text(query))
                    names = [name.strip() for name in result.keys()]
                    found[table] = cells_of_rows(f"{table} (query)", names, result, first=1)
        finally:
            engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        reason = hidden(" ".join(str(getattr(error, "orig", None) or error).split()), secrets)
        remedy = "Correct the query, or check the address and whether the server is up."
        problems.add("database", f"{SOURCE}, {table}", f"failed ({reason[:300]})", remedy)
    return found.get("nodes"), found.get("edges"), found.get("features")


def in_folder(url: str, folder: Path) -> str:
    """The address; the name of an SQLite file is relative to the owner's folder."""
    begin, _, name = url.partition(":///")
    if begin.partition("+")[0] != "sqlite" or not name or name.startswith((":", "file:")):
        return url
    path = folder.resolve() / name.partition("?")[0]
    if not path.is_file():
        raise DataError(
            f"{SOURCE} names the SQLite file {path}, which is not there. Correct its url."
        )
    return f"{begin}:///{folder.resolve() / name}"


def with_secrets(url: str) -> str:
    """The address with passwords from the environment; refuses one that is written out."""
    if re.search(r"://[^/@]*:(?!\$\{\w+\}@)[^/@]+@", url):
        raise DataError(
            f"{SOURCE} holds a password. Take it out: write ${{NAME}} in its place, and set "
            "the environment variable NAME."
        )
    missing = [name for name in VARIABLE.findall(url) if name not in os.environ]
    if missing:
        raise DataError(f"{SOURCE} needs the environment variable {missing[0]}. Set it.")
    return VARIABLE.sub(lambda match: quote(os.environ[match[1]], safe=""), url)


def hidden(text: str, secrets: list[str]) -> str:
    """A message without the passwords that it may repeat."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text
