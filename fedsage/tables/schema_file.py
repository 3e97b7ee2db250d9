"""A schema → the file ``schema.toml`` that all owners read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from fedsage.files import write_atomically
from fedsage.tables.schema import NAMES, OF_LINKS, Schema, schema_content

BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys that need no quotes in TOML
EXPLAINED = {
    "id": "the column that holds a node's id",
    "label": "the column that holds a node's class",
    "source": "the column that holds one end of a link",
    "target": "the column that holds the other end",
    "ignored": "columns of nodes that are not features",
    "weight": "the column of links that says how much each counts",
    "time": "the column of links that says since when each exists",
    "ignored_in_edges": "columns of links that are not used",
    "unlisted_classes": "a class that is not listed counts as other",
    "unlisted_sparse": "sparse features that are not listed are left out",
    "links": "links may lead to nodes of other owners: docs/known-links.md",
    "shared": "an id that two owners have is one node: docs/known-links.md",
    "sparse_form": "the form that sparse features take: docs/features.md",
    "empty": "what counts as an empty cell",
}


def schema_text(schema: Schema, notes: Mapping[str, str] | None = None) -> str:
    """The schema as a TOML file with comments; ``notes`` are added after features."""
    content = {**schema_content(schema), "empty": list(schema.empty)}
    notes = notes or {}
    lines = [
        "# Every owner uses this same file: X and the classes are numbered in the order below.",
        "# How to fill it in: docs/own-data.md. Check your tables with",
        "#   fedsage data check FOLDER",
        "",
        "# Every class that any owner has.",
        f"classes = {toml(content['classes'])}",
    ]
    for key, meaning in EXPLAINED.items():
        usual: object = key if key in NAMES else "" if key in OF_LINKS else []
        if content.get(key, usual) != usual or key == "empty":
            lines.append(f"{key} = {toml(content[key])}  # {meaning}")
    if schema.of_kind("sparse"):
        lines += ["# Features of the table (id, feature, value); those not listed are 0."]
        lines += [f"sparse = {toml(content['sparse'])}"]
    if schema.columns:
        lines += ["", "[features]"]
    for name, keys in content["features"].items():
        note = f"  # {notes[name]}" if notes.get(name) else ""
        pairs = ", ".join(f"{key} = {toml(value)}" for key, value in keys.items())
        key = name if BARE.fullmatch(name) else toml(name)
        lines.append(f"{key} = {{ {pairs} }}{note}")
    return "\n".join(lines) + "\n"


def toml(value: str | int | list[str]) -> str:
    """A value as TOML, which agrees with JSON on words, numbers and lists of them."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_schema(schema: Schema, path: Path, notes: Mapping[str, str] | None = None) -> None:
    """Write ``schema.toml``, all or nothing."""
    text = schema_text(schema, notes)
    write_atomically(path, lambda file: file.write(text.encode()))
