"""Which columns hold ids, classes and the ends of links: as told, by name, or by content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from fedsage.errors import DataError, nearest
from fedsage.tables.cells import Cells
from fedsage.tables.parse_links import values_of
from fedsage.tables.problems import Problems
from fedsage.tables.schema import Schema

CLASS_NAMES = (
    "label", "class", "klasse", "diagnosis", "diagnose", "dx", "disease", "outcome", "target",
    "y",
)  # fmt: skip
PAIRS = (
    ("source", "target"), ("from", "to"), ("src", "dst"), ("head", "tail"), ("a", "b"),
    ("u", "v"), ("von", "nach"), ("von", "zu"),
)  # fmt: skip
VALUE_NAMES = {
    "weight": ("weight", "weights", "gewicht", "poids", "peso", "strength"),
    "time": ("time", "date", "datum", "day", "timestamp", "since", "when", "seit"),
}
MOST_CLASSES = 50
ID_NAME = re.compile(
    r"(?i:(^|[_\W])(id|ids|nr|no|key|uuid|guid|mrn|index)$|nummer$)|[a-z](Id|ID|Nr|No)$"
)
MOST_OF = 0.5  # the share of link ends that must be ids
NEARLY_ALL = 0.95


@dataclass(frozen=True, slots=True)
class Named:
    """The columns that a user has named; None for those to be found."""

    id: str | None = None
    label: str | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    time: str | None = None


@dataclass(slots=True)
class Uses:
    """The columns with a meaning of their own, and why each was taken."""

    id: str = "id"
    label: str = "label"
    source: str = "source"
    target: str = "target"
    weight: str = ""  # none
    time: str = ""
    said: list[str] = field(default_factory=list)


def find_uses(nodes: Cells, links: Cells | None, named: Named) -> Uses:
    """The column of each use; raises if one is needed and there is none to be seen."""
    uses = Uses()
    in_links = [(key, links) for key in ("source", "target", "weight", "time")]
    for key, cells in (("id", nodes), ("label", nodes), *in_links):
        name = getattr(named, key)
        if name is None:
            continue
        if cells is not None and name not in cells.columns:
            what = {"id": "ids", "label": "classes"}.get(key, f"the {key} of links")
            known = nearest(name, cells.columns)
            raise DataError(f"{cells.file} has no column '{name}' to take {what} from.{known}")
        setattr(uses, key, name)
    if named.id is None and "id" not in nodes.columns:
        uses.id = find_id(nodes, links, uses.said)
    if named.label is None and "label" not in nodes.columns:
        uses.label = find_label(nodes, uses)
    if links is not None and named.source is None and named.target is None:
        uses.source, uses.target = find_ends(links, nodes, uses)
    if links is not None:
        find_values(links, uses)
    return uses


def find_values(links: Cells, uses: Uses) -> None:
    """The columns of weights and times of links: by name, if a check would accept them."""
    for key, known in VALUE_NAMES.items():
        for name in without(list(links.columns), uses.source, uses.target):
            if getattr(uses, key) or name.lower() not in known:
                continue
            named: dict[str, Any] = {key: name}
            problems = Problems("guess")
            values_of(links, Schema((), (), **named), problems)
            if not problems.count:
                setattr(uses, key, name)
                flag = f"--{key}-column names another"
                uses.said.append(f"{key} of links: '{name}', by its name ({flag})")


def find_id(nodes: Cells, links: Cells | None, said: list[str]) -> str:
    """The column of ids: the one that links name most, or else one that is called so."""
    unique = [name for name in nodes.columns if share_distinct(nodes, name) >= NEARLY_ALL]
    if links is not None:
        shares = {
            name: max((share_in(links, end, nodes, name) for end in links.columns), default=0.0)
            for name in unique
        }
        best = max(shares, key=lambda name: shares[name], default="")
        if best and shares[best] >= MOST_OF:
            said.append(f"id: '{best}', which links refer to (--id-column names another)")
            return best
    called = [name for name in unique if ID_NAME.search(name)]
    if not called:
        raise DataError(
            f"{nodes.file} has no column 'id', and no other that seems to hold ids; its "
            f"columns are {', '.join(nodes.columns)}. Name one with --id-column."
        )
    said.append(f"id: '{called[0]}', by its name (--id-column names another)")
    return called[0]


def find_label(nodes: Cells, uses: Uses) -> str:
    """The column of classes by its name; ``label`` if there is none."""
    for known in CLASS_NAMES:
        for name in nodes.columns:
            values = pc.count_distinct(nodes.columns[name]).as_py()
            if name.lower() == known and name != uses.id and 2 <= values <= MOST_CLASSES:
                uses.said.append(f"label: '{name}', by its name (--label-column names another)")
                return name
    return "label"


def find_ends(links: Cells, nodes: Cells, uses: Uses) -> tuple[str, str]:
    """The two columns of links that name nodes."""
    lower = {name.lower(): name for name in links.columns}
    for one, two in PAIRS:
        if one in lower and two in lower:
            if (one, two) != PAIRS[0]:
                say_ends(uses.said, lower[one], lower[two], "by their names")
            return lower[one], lower[two]
    ends = [name for name in links.columns if share_in(links, name, nodes, uses.id) >= MOST_OF]
    if len(ends) < 2:
        raise DataError(
            f"{links.file} has no columns 'source' and 'target', and no two others that hold "
            f"ids of nodes; its columns are {', '.join(links.columns)}. Name them with "
            "--source-column and --target-column."
        )
    say_ends(uses.said, ends[0], ends[1], "which hold ids of nodes")
    return ends[0], ends[1]


def say_ends(said: list[str], source: str, target: str, why: str) -> None:
    """Explain which columns of links were taken."""
    flags = "--source-column and --target-column name others"
    said.append(f"links: from '{source}' to '{target}', {why} ({flags})")


def share_distinct(cells: Cells, name: str) -> float:
    """Which share of the rows has a text of its own in a column."""
    return float(pc.count_distinct(cells.columns[name]).as_py()) / max(cells.num_rows, 1)


def share_in(links: Cells, end: str, nodes: Cells, name: str) -> float:
    """Which share of the rows of links has, in one column, a text of a column of nodes."""
    found = pc.mean(pc.is_in(links.columns[end], value_set=nodes.columns[name])).as_py()
    return float(found or 0.0)


def without(names: Sequence[str], *used: str) -> list[str]:
    """The names that are not used."""
    return [name for name in names if name not in used]
