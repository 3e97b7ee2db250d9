"""``schema.toml``: what every owner's tables hold. All owners use the same one.

It names the features in order, their kinds and scaling, and the classes, so that the
columns of X and the numbers of the classes mean the same thing for every owner.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedsage.tables.feature import (
    OTHER,
    Feature,
    KindName,
    is_name,
    names_of,
    one_of,
    unknown_keys,
)
from fedsage.tables.kinds import KINDS, kind_of
from fedsage.tables.problems import Problems

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = "schema.toml"
SOURCE = "source.toml"  # of one owner: how its files are written, or where its database is
SPLIT = "split"  # the column that says which part of the split a node is in
PARTS = ("train", "val", "test")  # what it may say
EMPTY = ("NA", "N/A", "#N/A", "NaN", "NaT", "<NA>", "NULL", "none", "nil", "?", "-", ".")
NAMES = ("id", "label", "source", "target")  # columns with a meaning, by their usual names
OF_LINKS = ("weight", "time")  # columns of links that need not be there
KEYS = (
    "classes", "features", "sparse", *NAMES, *OF_LINKS, "ignored", "ignored_in_edges", "empty",
    "unlisted_classes", "unlisted_sparse", "links", "shared", "sparse_form",
)  # fmt: skip
DIRECTED = "directed"  # a key that others have, and that is never true here
MAIN_KEYS = ("classes", "label", "ignored", "sparse", "features")
CHOICES = {
    "links": one_of("own", "known"),
    "shared": one_of("apart", "same"),
    "unlisted_classes": one_of("refused", "other"),
    "unlisted_sparse": one_of("refused", "dropped"),
    "sparse_form": one_of("any", "raw", "root", "log", "unit", "tfidf"),
}
DENSE_SHARE = 4  # features are kept sparse if at most one value in this many is not zero


@dataclass(frozen=True, slots=True)
class Schema:
    """What the tables hold. Columns of X: those of nodes in order, then sparse ones."""

    features: tuple[Feature, ...]
    class_names: tuple[str, ...]
    label: str = "label"  # the column that holds the class
    ignored: tuple[str, ...] = ()  # columns of nodes that are not features
    id: str = "id"
    source: str = "source"
    target: str = "target"
    ignored_in_edges: tuple[str, ...] = ()
    weight: str = ""  # the column of links that says how much each counts, if there is one
    time: str = ""  # the column of links that says since when each exists, if there is one
    empty: tuple[str, ...] = EMPTY  # what counts as an empty cell, in upper or lower case
    unlisted_classes: Literal["refused", "other"] = "refused"
    unlisted_sparse: Literal["refused", "dropped"] = "refused"
    links: Literal["own", "known"] = "own"  # known: edges may name other owners' nodes
    shared: Literal["apart", "same"] = "apart"  # same: one id at two owners is one node
    sparse_form: str = "any"  # what ``data.features`` has to be; any: as the run says

    def of_kind(self, kind: KindName) -> tuple[Feature, ...]:
        """The features of a kind, in order."""
        return tuple(feature for feature in self.features if feature.kind == kind)

    def held_as(self, where: Literal["numbers", "codes", "texts"]) -> tuple[Feature, ...]:
        """The features that tables keep as numbers, as codes or as texts, in order."""
        return tuple(f for f in self.columns if kind_of(f).holds == where)

    @property
    def columns(self) -> tuple[Feature, ...]:
        """The features that are columns of the table of nodes."""
        return tuple(feature for feature in self.features if feature.kind != "sparse")

    @property
    def num_features(self) -> int:
        """d_x: the number of columns of X."""
        wide = sum(len(kind_of(f).width_names(f)) for f in self.columns)
        return wide + len(self.features) - len(self.columns)

    @property
    def words_from(self) -> int:
        """The first column of X that holds a sparse feature; all later ones do too."""
        return self.num_features - len(self.of_kind("sparse"))

    @property
    def width_names(self) -> tuple[str, ...]:
        """A name for each of the d_x columns of X."""
        names = [name for f in self.columns for name in kind_of(f).width_names(f)]
        return (*names, *(f.name for f in self.of_kind("sparse")))

    @property
    def is_sparse(self) -> bool:
        """Whether X is kept sparse; it depends only on the schema, so all owners agree."""
        nonzero = sum(kind_of(f).nonzero(f) for f in self.columns)
        return bool(self.of_kind("sparse")) or nonzero * DENSE_SHARE <= self.num_features

    @property
    def sha256(self) -> str:
        """A checksum of the schema's content, however its file is laid out."""
        return checksum(schema_content(self))


def checksum(content: object) -> str:
    """A checksum of plain values."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def schema_content(schema: Schema) -> dict[str, Any]:
    """The schema as plain values, nested as in its file; :func:`schema_of` reads it.

    Settings that have their usual value are left out, except for a few: so schemas of older
    versions keep their checksum.
    """
    sparse = [feature.name for feature in schema.of_kind("sparse")]
    numbered = sparse == [str(i) for i in range(len(sparse))]
    usual = Schema((), ())
    others = [key for key in KEYS if key not in MAIN_KEYS]
    changed = {
        key: list(value) if isinstance(value := getattr(schema, key), tuple) else value
        for key in others
        if getattr(schema, key) != getattr(usual, key)
    }
    return {
        "classes": list(schema.class_names),
        "label": schema.label,
        "ignored": list(schema.ignored),
        "sparse": len(sparse) if numbered else sparse,
        **changed,
        "features": {f.name: kind_of(f).content(f) for f in schema.columns},
    }


def read_schema(path: Path | str) -> Schema:
    """Read and check a ``schema.toml``; all its problems are reported at once."""
    path = Path(path)
    problems = Problems(str(path))
    schema = schema_of(read_content(path, problems), problems, path.name)
    problems.raise_if_any()
    return schema


def read_content(path: Path, problems: Problems) -> Mapping[str, Any]:
    """The content of a TOML file; raises if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        what, remedy = "no such file", "Write one with 'fedsage data init FOLDER'."
    except OSError as error:
        what, remedy = f"cannot be read ({error.strerror})", "Check the path and permissions."
    except UnicodeDecodeError:
        what, remedy = "is not UTF-8 text", "Save it as UTF-8."
    except tomllib.TOMLDecodeError as error:
        what, remedy = f"is not TOML ({error})", "Correct the line that it names."
    problems.add("schema", path.name, what, remedy)
    problems.raise_if_any()
    return {}


def schema_of(content: Mapping[str, Any], problems: Problems, file: str = SCHEMA) -> Schema:
    """The schema that plain values describe; what is wrong with them goes to ``problems``."""
    unknown_keys(content, (*KEYS, DIRECTED), file, "", problems)
    if "classes" not in content:
        problems.add("schema", file, "has no key 'classes'", 'Add classes = ["a", "b"].')
    if content.get(DIRECTED, False) is not False:
        what = "links have no direction: each end is a neighbor of the other"
        remedy = (
            "Leave the key out. If direction matters, say it in columns of nodes, such as how "
            "many payments each made and how many it got."
        )
        problems.add("schema", f"{file}, {DIRECTED}", what, remedy)
    lists = {
        key: names_of(content.get(key, []), f"{file}, {key}", problems)
        for key in ("classes", "ignored", "ignored_in_edges")
    }
    chosen: dict[str, Any] = {
        key: setting.read(content.get(key, setting.default), f"{file}, {key}", problems)
        for key, setting in CHOICES.items()
    }
    if chosen["unlisted_classes"] == "other" and OTHER not in lists["classes"]:
        lists["classes"] += (OTHER,)
    names = column_names(content, file, problems)
    features = features_of(content.get("features", {}), file, problems)
    sparse = sparse_of(content.get("sparse", 0), file, problems)
    columns = [f.name for f in (*features, *sparse)] + list(lists["ignored"])
    refuse_twice([names["id"], SPLIT, names["label"], *columns], file, problems)
    of_links = [names[key] for key in OF_LINKS if names[key]]
    ends = [names["source"], names["target"]]
    refuse_twice([*ends, *of_links, *lists["ignored_in_edges"]], file, problems)
    if not features and not sparse:
        problems.add("schema", file, "names no features", "Add some under [features].")
    return Schema(
        features=(*features, *sparse),
        class_names=lists["classes"],
        ignored=lists["ignored"],
        ignored_in_edges=lists["ignored_in_edges"],
        empty=empty_of(content.get("empty"), file, problems),
        **chosen,
        **names,
    )


def column_names(content: Mapping[str, Any], file: str, problems: Problems) -> dict[str, Any]:
    """The columns that hold ids, classes and the ends of links."""
    found = {}
    for key in NAMES:
        name = content.get(key, key)
        usable = isinstance(name, str) and is_name(name) and name != SPLIT
        if not usable or (key == "label" and name == content.get("id", "id")):
            holds = "the class" if key == "label" else f"the {key}"
            problems.add(
                "schema",
                f"{file}, {key}",
                f"{name!r} cannot be the column that holds {holds}",
                "Give the name of a column other than split"
                f"{' and that of the id' if key == 'label' else ''}.",
            )
            name = key
        found[key] = name
    for key in OF_LINKS:
        found[key] = content.get(key, "")
        if not isinstance(found[key], str) or found[key] != found[key].strip():
            remedy = "Give the name of a column of links, or leave it out."
            problems.add("schema", f"{file}, {key}", f"{found[key]!r} is no name", remedy)
            found[key] = ""
    return found


def empty_of(content: object, file: str, problems: Problems) -> tuple[str, ...]:
    """What counts as an empty cell."""
    if content is None:
        return EMPTY
    if not isinstance(content, list) or not all(isinstance(mark, str) for mark in content):
        remedy = 'Write a list of words in quotes: ["NA", "-9"].'
        problems.add("schema", f"{file}, empty", f"is {content!r}, not a list of words", remedy)
        return EMPTY
    return tuple(dict.fromkeys(mark.strip() for mark in content if mark.strip()))


def refuse_twice(names: list[str], file: str, problems: Problems) -> None:
    """Note the columns that have two uses."""
    taken: set[str] = set()
    for name in names:
        if name in taken:
            remedy = "Give every column one use."
            problems.add("schema", f"{file}, {name}", "the name is already in use", remedy)
        taken.add(name)


def features_of(content: object, file: str, problems: Problems) -> list[Feature]:
    """The features under ``[features]``."""
    if not isinstance(content, Mapping):
        remedy = 'Write [features] and below it, for example, age = { kind = "number" }.'
        problems.add("schema", f"{file}, features", f"is {content!r}, not a table", remedy)
        return []
    features = []
    for name, keys in content.items():
        where = f"{file}, features.{name}"
        if not is_name(name):
            remedy = "Remove the spaces around it, and give it at least one letter."
            problems.add("schema", where, f"{name!r} is not a name for a column", remedy)
        kind = keys.get("kind") if isinstance(keys, Mapping) else keys
        if not isinstance(keys, Mapping) or not isinstance(kind, str) or kind not in KINDS:
            remedy = f'Write {{ kind = "..." }} with one of {", ".join(sorted(KINDS))}.'
            problems.add("schema", where, f"the kind is {kind!r}", remedy)
            continue
        features.append(KINDS[kind].feature(name, keys, where, problems))
    return features


def sparse_of(content: object, file: str, problems: Problems) -> list[Feature]:
    """The features of the third table: a list of names, or a count for names 0, 1, 2, ...."""
    if isinstance(content, int) and not isinstance(content, bool) and 0 <= content <= 10**7:
        return [Feature(str(i), "sparse") for i in range(content)]
    return [Feature(name, "sparse") for name in names_of(content, f"{file}, sparse", problems)]
