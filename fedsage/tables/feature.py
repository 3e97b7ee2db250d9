"""One feature of the schema, and the settings that a kind of column may have."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fedsage.errors import nearest
from fedsage.tables.problems import Problems

KindName: TypeAlias = Literal[
    "number", "count", "boolean", "date", "category", "text", "sparse"
]
Read: TypeAlias = Callable[[object, str, Problems], Any]

UNKNOWN, OTHER = "unknown", "other"  # categories with a meaning of their own
FEWEST = 8  # rows that must hold a word before a schema may show it


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: a column of the table of nodes, or a name in the sparse table.

    Only the settings that its kind has count; see :mod:`fedsage.tables.kinds`.
    """

    name: str
    kind: KindName
    scaling: Literal["standard", "none"] = "standard"  # (value - mean) / deviation
    missing: Literal["refused", "mean", "indicator", "unknown"] = "refused"  # an empty cell
    categories: tuple[str, ...] = ()
    unlisted: Literal["refused", "other"] = "refused"  # a word that is not a category
    since: str = "2000-01-01"  # the day from which dates are counted
    cyclic: tuple[str, ...] = ()  # parts of a date as sine and cosine
    formats: tuple[str, ...] = ()  # of dates that are not written as usual
    yes: tuple[str, ...] = ()  # words of a boolean, beside the usual ones
    no: tuple[str, ...] = ()
    columns: int = 64  # that the words of a text are hashed into
    range: tuple[float, ...] | tuple[str, ...] = ()  # smallest and largest, which all may know


@dataclass(frozen=True, slots=True)
class Setting:
    """A key of a feature in ``schema.toml``."""

    default: Any
    read: Read  # gives the value, or notes what is wrong with it and gives the default
    always: bool = False  # written even if it is the default


def one_of(*choices: str) -> Setting:
    """One of some words, the first by default."""

    def read(value: object, where: str, problems: Problems) -> str:
        if value in choices:
            return str(value)
        problems.add("schema", where, f"is {value!r}", f"Write {quoted(choices)}.")
        return choices[0]

    return Setting(choices[0], read)


def some_of(*choices: str) -> Setting:
    """A list of some of these words, none by default."""

    def read(value: object, where: str, problems: Problems) -> tuple[str, ...]:
        given = names_of(value, where, problems)
        for name in given:
            if name not in choices:
                remedy = f"Write some of {', '.join(choices)}."
                problems.add("schema", where, f"{name!r} is not known", remedy)
        return tuple(name for name in choices if name in given)

    return Setting((), read)


def day(default: str) -> Setting:
    """A day such as 2000-01-01."""

    def read(value: object, where: str, problems: Problems) -> str:
        try:
            return datetime.date.fromisoformat(str(value)).isoformat()
        except ValueError:
            problems.add("schema", where, f"is {value!r}", f'Write a day like "{default}".')
            return default

    return Setting(default, read)


def whole(default: int, least: int, most: int) -> Setting:
    """A whole number within a range."""

    def read(value: object, where: str, problems: Problems) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        remedy = f"Write a whole number from {least:,} to {most:,}."
        problems.add("schema", where, f"is {value!r}", remedy)
        return default

    return Setting(default, read)


def limits(value: object, where: str, problems: Problems) -> tuple[float, ...]:
    """Two numbers, the smaller first."""
    given = value if isinstance(value, list) else []
    plain = all(isinstance(one, int | float) and not isinstance(one, bool) for one in given)
    if len(given) == 2 and plain and -math.inf < given[0] < given[1] < math.inf:
        return tuple(map(float, given))
    remedy = "Write the smallest and the largest value: [0, 120]."
    problems.add("schema", where, f"is {value!r}", remedy)
    return ()


def days(value: object, where: str, problems: Problems) -> tuple[str, ...]:
    """Two days, the earlier first."""
    given = value if isinstance(value, list) else []
    try:
        first, last = (datetime.date.fromisoformat(str(one)) for one in given)
        if first < last:
            return first.isoformat(), last.isoformat()
    except ValueError:
        pass
    remedy = 'Write the first and the last day: ["2000-01-01", "2029-12-31"].'
    problems.add("schema", where, f"is {value!r}", remedy)
    return ()


def names_of(content: object, where: str, problems: Problems) -> tuple[str, ...]:
    """A list of distinct names."""
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        remedy = 'Write a list of words in quotes: ["a", "b"].'
        problems.add("schema", where, f"is {content!r}, not a list of names", remedy)
        return ()
    for name in content:
        if not is_name(name):
            remedy = "Remove the spaces around it, and give it at least one letter."
            problems.add("schema", where, f"{name!r} is not a name", remedy)
    if len(set(content)) < len(content):
        twice = next(name for i, name in enumerate(content) if name in content[:i])
        problems.add("schema", where, f"{twice!r} appears twice", "Name everything once.")
    return tuple(dict.fromkeys(content))


def is_name(text: str) -> bool:
    """Whether a cell can hold this text: not empty, no surrounding spaces."""
    return bool(text) and text == text.strip()


def unknown_keys(
    content: Mapping[str, Any],
    known: Sequence[str],
    where: str,
    prefix: str,
    problems: Problems,
) -> None:
    """Note every unknown key, with the nearest known one."""
    for key in content:
        if key not in known:
            remedy = nearest(key, known).strip()
            problems.add("schema", where, f"unknown key '{prefix}{key}'", remedy)


def quoted(choices: Sequence[str]) -> str:
    """``"a", "b" or "c"``."""
    words = [f'"{choice}"' for choice in choices]
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[:-1] else words)
