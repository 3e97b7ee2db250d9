"""The tables of procedures and messages in the documentation, made from their declarations.

    python benchmarks/protocol_tables.py     # writes them anew

``tests/test_docs.py`` fails where a page says something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedsage.config import load_config
from fedsage.federation.owner.site import JOINING
from fedsage.mending.way import WAYS
from fedsage.mending.whole_neighgen import in_open_numbers
from fedsage.methods import METHODS
from fedsage.protocol.hidden_sums.owner import make_keys
from fedsage.protocol.messages import MESSAGES, Ask
from fedsage.protocol.procedures import (
    Procedure,
    in_full,
    in_sums,
    in_whole_numbers,
    procedures_in,
)
from fedsage.runs.setup import TRAINING

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {
    "architecture.md": ("procedures", "messages"),
    "security.md": ("leaves",),
}
Rows = Iterable[tuple[str, ...]]


def groups() -> Iterator[tuple[str, dict[str, Procedure[Any, Any, Any]]]]:
    """All procedures, by when they are asked for."""
    yield "every run", TRAINING
    for name, entry in sorted(WAYS.ours().items()):
        if entry.thing.asks:
            yield f"`{name}`", entry.thing.asks
    for name, one in sorted(METHODS.ours().items()):
        found = procedures_in(*one.thing.modules)
        if own := {key: made for key, made in found.items() if key not in TRAINING}:
            yield f"method `{name}`", own
    yield "between machines", JOINING
    yield "where sums are hidden", procedures_in(make_keys.module)


def file_of(module: str) -> str:
    """A module as the path of its file."""
    return module.removeprefix("fedsage.").replace(".", "/") + ".py"


def procedures() -> Rows:
    """What a server can ask of an owner."""
    yield "asked in", "procedure", "request → reply", "the reply is", "more"
    for group, asks in groups():
        for name, one in asks.items():
            more = [
                "sent again if missed" * one.owed,
                f"only after {' or '.join(f'`{name}`' for name in one.after)}"
                * bool(one.after),
                "in full" * (one.when is in_full),
                "in whole numbers" * (one.when in (in_whole_numbers, in_open_numbers)),
                "in hidden sums" * (one.when is in_sums),
                ("kept each round" if one.by_round else "kept") if one.keeps else "",
            ]
            yield (
                group,
                f"`{name}` ({file_of(one.module)})",
                f"`{one.request.__name__}` → `{one.reply.__name__}`",
                one.uses.name.lower(),
                ", ".join(word for word in more if word),
            )


def messages() -> Rows:
    """What may cross an owner's boundary."""
    yield "message", "file", "who → whom, and what", "fields"
    METHODS.ours()  # all of them are imported, with their messages
    ours = [one for one in MESSAGES if one.__module__.startswith("fedsage.")]
    for kind in sorted(
        ours, key=lambda one: (one.__module__ != Ask.__module__, one.__module__)
    ):
        first = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        names = ", ".join(f"`{field.name}`" for field in fields(kind))
        yield f"`{kind.__name__}`", file_of(kind.__module__), first, names


def leaves() -> Rows:
    """What leaves an owner's house, in the words that the owner reads before a run."""
    yield "asked in", "message", "what leaves", "the server needs"
    needs = {"SUMMED": "the sum over owners", "SEALED": "to pass it on", "OPEN": "to see it"}
    for group, asks in groups():
        for one in asks.values():
            if words := one.words(load_config()):
                yield group, f"`{one.reply.__name__}`", words, needs[one.uses.name]


TABLES: dict[str, Callable[[], Rows]] = {
    "procedures": procedures,
    "messages": messages,
    "leaves": leaves,
}


def markdown(rows: Rows) -> str:
    """A table; what is said again in the first column is left out there."""
    head, *body = rows
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    before = ""
    for first, *others in body:
        lines.append(f"| {' | '.join(['' if first == before else first, *others])} |")
        before = first
    return "\n".join(lines)


def with_tables(text: str, names: Iterable[str]) -> str:
    """A page with its tables made anew, each between two comments."""
    for name in names:
        begin, end = f"<!-- table: {name} -->", "<!-- end -->"
        found = re.search(f"{begin}\n.*?{end}", text, flags=re.DOTALL)
        if found is None:
            raise SystemExit(f"no place for the table '{name}'")
        table = f"{begin}\n{markdown(TABLES[name]())}\n{end}"
        text = text[: found.start()] + table + text[found.end() :]
    return text


def main() -> None:
    """Write all tables anew."""
    for page, names in PAGES.items():
        path = DOCS / page
        path.write_text(with_tables(path.read_text(), names))


if __name__ == "__main__":
    main()
