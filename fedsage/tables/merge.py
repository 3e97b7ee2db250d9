"""One schema for several owners, from the schemas that each has guessed for itself.

Only schemas are read, no tables: what an owner's schema does not show stays with the owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedsage.tables.feature import OTHER, UNKNOWN, Feature
from fedsage.tables.kinds.dates import contradiction
from fedsage.tables.kinds.words import complete
from fedsage.tables.problems import Problems
from fedsage.tables.schema import OF_LINKS, Schema

SAME = ("id", "label", "source", "target")  # must be the same for all owners
FORGIVING = ("refused", "mean", "indicator", "unknown")  # a later one accepts more tables
SAME_IN_FEATURE = ("scaling", "since", "cyclic", "columns", "range")
JOINED_IN_FEATURE = ("formats", "yes", "no")


@dataclass(frozen=True, slots=True)
class Merged:
    """The common schema, and what was decided on the way."""

    schema: Schema
    said: list[str]


def merge_schemas(schemas: Mapping[str, Schema]) -> Merged:
    """The schema that fits the tables of all owners, by the file of each one's own.

    Classes, categories and sparse features are those of any owner. A column that some owner
    ignores, or does not have, is ignored. Raises if owners contradict each other, with a line
    for each column.
    """
    problems = Problems("The set of schemas")
    said: list[str] = []
    every = list(schemas.values())
    top = {key: agreed(key, pairs(schemas, key), key, problems) for key in SAME}
    features: list[Feature] = []
    ignored = list(dict.fromkeys(name for one in every for name in one.ignored))
    for name in dict.fromkeys(f.name for one in every for f in one.columns):
        held = {file: feature_in(one, name) for file, one in schemas.items()}
        known = {file: feature for file, feature in held.items() if feature is not None}
        without = [file for file in schemas if file not in known]
        if without:
            verb = "ignores it" if name in schemas[without[0]].ignored else "does not have it"
            said.append(f"{name}: ignored, because {without[0]} {verb}")
            if name not in ignored:
                ignored.append(name)
        elif feature := merged_feature(name, known, said, problems):
            features.append(feature)
    of_links, unused = merged_values(schemas, said, problems)
    classes = united(one.class_names for one in every)
    unlisted = lenient("unlisted_classes", every, "other")
    if unlisted == "other":
        classes = [*(c for c in classes if c != OTHER), OTHER]
    forms = {file: one for file, one in pairs(schemas, "sparse_form").items() if one != "any"}
    sparse = united([f.name for f in one.of_kind("sparse")] for one in every)
    form = agreed("sparse_form", forms, "sparse_form", problems) if forms else "any"
    if not features and not sparse:
        remedy = "Compare the schemas, and name the columns alike."
        problems.add("merge", "features", "no column is a feature for all owners", remedy)
    problems.raise_if_any()
    schema = Schema(
        features=(*features, *(Feature(name, "sparse") for name in sparse)),
        class_names=tuple(classes),
        ignored=tuple(ignored),
        ignored_in_edges=tuple(united([*(one.ignored_in_edges for one in every), unused])),
        unlisted_classes=unlisted,
        unlisted_sparse=lenient("unlisted_sparse", every, "dropped"),
        links="known" if any(one.links == "known" for one in every) else "own",
        empty=merged_empty(schemas, said),
        shared="same" if any(one.shared == "same" for one in every) else "apart",
        sparse_form=form,
        **top,
        **of_links,
    )
    return Merged(schema, said)


def merged_empty(schemas: Mapping[str, Schema], said: list[str]) -> tuple[str, ...]:
    """What counts as an empty cell for any owner."""
    words = united(one.empty for one in schemas.values())
    for word in words:
        named = [file for file, one in schemas.items() if word in one.empty]
        if len(named) < len(schemas):
            said.append(f"empty: '{word}' counts as an empty cell, because {named[0]} says so")
    return tuple(words)


def merged_values(
    schemas: Mapping[str, Schema], said: list[str], problems: Problems
) -> tuple[dict[str, Any], list[str]]:
    """The columns of weights and times that all owners have, and those that are ignored."""
    found: dict[str, Any] = {}
    unused: list[str] = []
    for key in OF_LINKS:
        named = {file: name for file, name in pairs(schemas, key).items() if name}
        without = [file for file in schemas if file not in named]
        if named and without:
            said.append(f"{key} of links: ignored, because {without[0]} names none")
            unused += list(dict.fromkeys(named.values()))
        elif named:
            found[key] = agreed(key, named, key, problems)
    return found, unused


def pairs(schemas: Mapping[str, Any], key: str) -> dict[str, Any]:
    """One setting of each, by file."""
    return {file: getattr(one, key) for file, one in schemas.items()}


def feature_in(schema: Schema, name: str) -> Feature | None:
    """The feature of that name that is a column of nodes."""
    return next((feature for feature in schema.columns if feature.name == name), None)


def united(lists: Iterable[Iterable[str]]) -> list[str]:
    """All names, in the order in which they come first."""
    return list(dict.fromkeys(name for names in lists for name in names))


def lenient(key: str, schemas: Iterable[Schema], value: str) -> Any:
    """``value`` if any schema has it, else ``refused``."""
    return value if any(getattr(one, key) == value for one in schemas) else "refused"


def agreed(what: str, seen: Mapping[str, Any], key: str, problems: Problems) -> Any:
    """The value of all; notes those that differ."""
    (first, here), *others = seen.items()
    for file, there in others:
        if there != here:
            values = f"is {in_words(here)} in {first} and {in_words(there)} in {file}"
            remedy = "Make it the same in both, and merge again."
            problems.add("merge", what, f"{key} {values}" if key != what else values, remedy)
            break
    return here


def in_words(value: object) -> str:
    """A setting, as one writes it."""
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, tuple) else f"'{value}'"


def merged_feature(
    name: str, known: Mapping[str, Feature], said: list[str], problems: Problems
) -> Feature | None:
    """One feature for all owners; None, and a problem, if they contradict each other."""
    what, kinds = f"column {name}", pairs(known, "kind")
    if set(kinds.values()) == {"number", "count"}:
        said.append(f"{name}: a number, because it is not a count for everyone")
        known = {file: replace(feature, kind="number") for file, feature in known.items()}
    elif len(set(kinds.values())) > 1:
        agreed(what, kinds, "the kind", problems)
        return None
    each = list(known.values())
    found: dict[str, Any] = {
        key: agreed(what, pairs(known, key), key, problems) for key in SAME_IN_FEATURE
    }
    for key in JOINED_IN_FEATURE:
        found[key] = tuple(united(getattr(feature, key) for feature in each))
    if pair := contradiction(found["formats"]):
        who = [next(file for file, one in known.items() if p in one.formats) for p in pair]
        seen = f"dates are like {pair[0]} in {who[0]} and like {pair[1]} in {who[1]}"
        remedy = "Write days in one order, or as 2024-05-31, and merge again."
        problems.add("merge", what, seen, remedy)
    found["missing"] = max((feature.missing for feature in each), key=FORGIVING.index)
    other = any(feature.unlisted == "other" for feature in each)
    words = united(feature.categories for feature in each)
    last = [w for w in (UNKNOWN, OTHER) if w in words]
    found["unlisted"] = "other" if other else "refused"
    found["categories"] = tuple([*(w for w in words if w not in last), *last])
    return complete(replace(each[0], **found))
