"""A schema guessed from one owner's tables: a first draft for all owners to agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedsage.errors import DataError, nearest
from fedsage.readable import natural
from fedsage.tables.cells import Cells
from fedsage.tables.column import Column, column_of
from fedsage.tables.feature import FEWEST, OTHER, Feature
from fedsage.tables.kinds import KINDS
from fedsage.tables.kinds.base import Guessed
from fedsage.tables.leaks import why_not
from fedsage.tables.problems import Problems
from fedsage.tables.schema import EMPTY, OF_LINKS, SPLIT, Schema
from fedsage.tables.source import read_folder
from fedsage.tables.uses import Named, Uses, find_uses, find_values, without


@dataclass(frozen=True, slots=True)
class Guess:
    """A schema, and what was seen in the columns it was guessed from.

    ``seen`` and ``said`` are only for the owner; ``notes`` go into the file that all owners
    read.
    """

    schema: Schema
    seen: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)  # how columns with a meaning were found


def guess_schema(
    folder: Path | str,
    named: Named | None = None,
    fewest: int = FEWEST,
    empty: Sequence[str] = (),
) -> Guess:
    """A schema for the tables in ``folder``.

    Args:
        folder: Holds one owner's tables.
        named: The columns that hold ids, classes and ends of links, as far as they are known.
        fewest: A word in fewer rows than this is not shown in the schema.
        empty: What counts as an empty cell besides the usual words.
    """
    folder = Path(folder)
    problems = Problems(str(folder))
    nodes, links, features = read_folder(folder, problems, links_needed=False)
    problems.raise_if_any()
    assert nodes is not None  # or there was a problem
    uses = find_uses(nodes, links, named or Named())
    marks = tuple(dict.fromkeys([*EMPTY, *empty]))
    guess = guess_features(nodes, features, uses, fewest, empty=marks)
    used = (uses.source, uses.target, uses.weight, uses.time)
    unused = without(list(links.columns), *used) if links else []
    if unused:
        flags = [f"--{key}-column" for key in OF_LINKS if not getattr(uses, key)]
        more = f" ({' and '.join(flags)} would use one)" if flags else ""
        guess.said.append(
            f"links: {', '.join(unused)} ignored, only {used_of(uses)} are used{more}"
        )
    return replace(guess, schema=replace(guess.schema, ignored_in_edges=tuple(unused)))


def used_of(uses: Uses) -> str:
    """What is used of links, in words."""
    more = [key for key in OF_LINKS if getattr(uses, key)]
    return " and ".join(filter(None, [", ".join(["the ends", *more[:-1]]), *more[-1:]]))


def guess_from(
    nodes: Cells, features: Cells | None, label: str | None = None, links: Cells | None = None
) -> Guess:
    """A schema for tables in memory, which nobody else reads: it has every word and column."""
    if label is not None and label not in nodes.columns:
        known = nearest(label, nodes.columns)
        raise DataError(f"{nodes.file} has no column '{label}' to take classes from.{known}")
    uses = Uses(label=label or "label")
    if links is not None:
        find_values(links, uses)
    return guess_features(nodes, features, uses, fewest=1, wary=False)


def guess_features(
    nodes: Cells,
    features: Cells | None,
    uses: Uses,
    fewest: int,
    wary: bool = True,
    empty: tuple[str, ...] = EMPTY,
) -> Guess:
    """A schema once it is known which columns hold ids and classes.

    Columns that would leak are left out if it is ``wary``.
    """
    silent = Problems("guess")
    columns = {name: column_of(nodes, name, silent, empty) for name in nodes.columns if name}
    label, ids = columns.get(uses.label), columns.get(uses.id)
    found: list[Feature] = []
    ignored: list[str] = []
    seen: dict[str, str] = {}
    notes: dict[str, str] = {}
    for name in without(list(columns), uses.id, uses.label, SPLIT):
        reason = why_not(columns[name], label, ids) if wary else ""
        guessed = reason or guess_column(columns[name], fewest)
        if isinstance(guessed, str):
            ignored.append(name)
            seen[name] = guessed
        else:
            found.append(guessed.feature)
            seen[name], notes[name] = guessed.seen, guessed.note
    scarce: list[str] = []
    if features is not None and "feature" in features.columns:
        names, scarce = frequent(column_of(features, "feature", silent), fewest)
        found += [Feature(name, "sparse") for name in names]
    if scarce:
        uses.said.append(
            f"features: {len(scarce)} that fewer than {fewest} rows have are left out"
        )
    if not found:
        raise DataError(
            f"{nodes.file} has no column that could be a feature; its columns are "
            f"{', '.join(nodes.columns)}. Add columns of numbers or categories."
        )
    classes, rare = frequent(label, fewest) if label else ([], [])
    if rare:
        uses.said.append(
            f"classes: {len(rare)} that fewer than {fewest} rows have count as other"
        )
        classes = [*without(classes, OTHER), OTHER]
    schema = Schema(
        features=tuple(found),
        class_names=tuple(classes),
        label=uses.label,
        ignored=tuple(ignored),
        id=uses.id,
        source=uses.source,
        target=uses.target,
        weight=uses.weight,
        time=uses.time,
        empty=empty,
        unlisted_classes="other" if rare else "refused",
        unlisted_sparse="dropped" if scarce else "refused",
    )
    return Guess(schema, seen, notes, uses.said)


def guess_column(column: Column, fewest: int) -> Guessed | str:
    """What a column seems to be, or why it is ignored."""
    if not column.filled.any():
        return "it is empty"
    for kind in KINDS.values():
        if guessed := kind.guess(column, fewest):
            return guessed
    values = len(column.distinct()[0])
    return f'{values:,} different texts; kind = "text" would use their words'


def frequent(column: Column, fewest: int) -> tuple[list[str], list[str]]:
    """The texts of a column that enough rows have, in order, and the others."""
    counts = column.counts()
    shown = [text for text, count in counts.items() if count >= fewest]
    rare = [text for text, count in counts.items() if count < fewest]
    return sorted(shown, key=natural), rare
