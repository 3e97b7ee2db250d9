"""What is allowed in owners' data but seldom meant: things to look at before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fedsage.data.owned import Owned
from fedsage.tables.feature import FEWEST
from fedsage.tables.kinds import kind_of
from fedsage.tables.kinds.numbers import stand_ins
from fedsage.tables.tables import Tables

SHOWN = 3  # names in a line


def concerns_of(owners: Mapping[str, Owned]) -> list[str]:
    """A line for each concern about the data of some owners, by their names."""
    return [*about_ids(owners), *about_classes(owners), *about_columns(owners)]


def about_ids(owners: Mapping[str, Owned]) -> list[str]:
    """Node ids that several owners use, unless their schema says that this is meant."""
    held = {name: one for name, one in owners.items() if one.tables and not one.shared}
    counts = Counter(node for one in held.values() for node in one.ids)
    shared = [node for node, count in counts.items() if count > 1]
    if not shared:
        return []
    names = [name for name, one in held.items() if shared[0] in set(one.ids)]
    ids = "1 node id is" if len(shared) == 1 else f"{len(shared):,} node ids are"
    return [
        f"{ids} at more than one owner, for example '{shared[0]}' at {listed(names)}. If these "
        "are the same nodes, they count several times, and may be in training at one owner and "
        'in the test at another: say shared = "same" in the schema, and mend by links.'
    ]


def about_classes(owners: Mapping[str, Owned]) -> list[str]:
    """Classes that an owner does not have, and classes that are rare everywhere."""
    classes = next(iter(owners.values())).names[1]
    counts = {
        name: np.bincount(one.y[one.y >= 0], minlength=len(classes))
        for name, one in owners.items()
    }
    lines = []
    for c, label in enumerate(classes):
        total = int(sum(count[c] for count in counts.values()))
        without = [name for name, count in counts.items() if not count[c]]
        if 0 < total < FEWEST:
            number = "1 node" if total == 1 else f"{total} nodes"
            lines.append(
                f"Class {label} has {number} at {listed(list(owners))}, fewer than {FEWEST}: "
                "too few to say how well it is recognized."
            )
        elif without:
            lines.append(f"There is no node of class {label} at {listed(without)}.")
    return lines


def about_columns(owners: Mapping[str, Owned]) -> list[str]:
    """Columns that never change, and numbers that may stand for empty cells."""
    constant: dict[str, list[str]] = {}
    stand_ins: list[str] = []
    for name, one in owners.items():
        if one.tables is None:
            continue
        for column in constant_columns(one.tables):
            constant.setdefault(column, []).append(name)
        stand_ins += [f"At {name}, {words}" for words in stand_ins_in(one.tables)]
    lines = [
        f"Column {column} has the same value in all rows of {listed(names)}: it tells nothing "
        "there."
        for column, names in constant.items()
    ]
    return [*lines, *stand_ins]


def constant_columns(tables: Tables) -> list[str]:
    """The columns with one value, empty cells aside."""
    return [
        feature.name
        for feature, values, _ in tables.held()
        if kind_of(feature).holds != "texts" and tables.num_nodes > 1 and is_constant(values)
    ]


def is_constant(values: np.ndarray) -> bool:
    """Whether all numbers are the same, apart from those that are missing."""
    filled = values[~np.isnan(values)]
    return not len(filled) or bool((filled == filled[0]).all())


def stand_ins_in(tables: Tables) -> list[str]:
    """Numbers that are far from all others and frequent, column by column."""
    found = []
    for feature, values, _ in tables.held():
        if feature.kind != "number":
            continue
        for value, count in stand_ins(values[~np.isnan(values)]).items():
            side = "below 0" if value < 0 else "nearly as large"
            found.append(
                f"column {feature.name} is {value:g} in {count:,} rows, and no other value "
                f"is {side}. If it means an empty cell, add \"{value:g}\" to 'empty' in "
                'the schema, and give the column missing = "mean".'
            )
    return found


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = len(names) - SHOWN
    shown = [*names[:SHOWN], f"{more} more"] if more > 0 else list(names)
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
