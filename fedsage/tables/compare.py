"""In which columns two schemas differ, from marks that tell names and kinds but no values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from fedsage.tables.schema import Schema, checksum, schema_content

Marks: TypeAlias = dict[str, list[str]]  # by column or key: its kind, and a short checksum
MARK = 4  # hexadecimal digits of a checksum: too few to find out what it was made of
AT_MOST = 12  # differences that are told
LONGEST = 80  # letters of a name that are told


def marks_of(schema: Schema) -> Marks:
    """The name and kind of every column, with a short checksum of its settings.

    A mark is shared by one in 65,536 of all possible lists of categories: two owners see that
    they differ, and nobody can read the categories off it.
    """
    content = schema_content(schema)
    features = content.pop("features")
    columns = {
        f"column {name}": [keys["kind"], checksum(keys)[:MARK]]
        for name, keys in features.items()
    }
    others = {key: ["", checksum(value)[:MARK]] for key, value in content.items()}
    order = checksum(list(features))[:MARK]
    return {**columns, **others, "the order of columns": ["", order]}


def read_marks(text: str) -> Marks:
    """Marks from another machine; none if they are not what they should be."""
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    sound = isinstance(content, dict) and all(
        isinstance(held, list) and len(held) == 2 and all(isinstance(one, str) for one in held)
        for held in content.values()
    )
    return {name[:LONGEST]: held for name, held in content.items()} if sound else {}


def differences(one: Mapping[str, list[str]], two: Mapping[str, list[str]]) -> list[str]:
    """What differs between two schemas, in words about the first and the second."""
    found = []
    for name in dict.fromkeys([*one, *two]):
        here, there = one.get(name), two.get(name)
        if here == there:
            continue
        if here is None or there is None:
            found.append(f"{name} (only in the {'first' if there is None else 'second'})")
        elif here[0] != there[0]:
            found.append(f"{name} ({here[0]} and {there[0]})")
        elif name.startswith("column "):
            categories = here[0] == "category"
            found.append(f"{name} (other {'categories or ' if categories else ''}settings)")
        else:
            found.append(name)
    if len(found) > 1 and "the order of columns" in found:
        found.remove("the order of columns")
    more = len(found) - AT_MOST
    return [*found[:AT_MOST], f"{more:,} more"] if more > 0 else found
