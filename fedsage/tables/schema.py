"""``schema.toml``: what every owner's tables hold. All owners use the same one.

It names the features in order, their kinds and scaling, and the classes, so that the
columns of X and the numbers of the classes mean the same thing for every owner.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedsage.errors import nearest
from fedsage.files import write_atomically
from fedsage.tables.problems import Problems

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = "schema.toml"
RESERVED = ("id", "split")  # columns with a meaning of their own
PARTS = ("train", "val", "test")  # what the column "split" may say
KEYS = ("classes", "features", "sparse", "label", "ignored")
FEATURE_KEYS = {"number": ("kind", "scaling", "missing"), "category": ("kind", "categories")}
CHOICES = {"scaling": ("standard", "none"), "missing": ("refused", "mean")}
BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys that need no quotes in TOML
DENSE_SHARE = 4  # features are kept sparse if at most one value in this many is not zero

Kind: TypeAlias = Literal["number", "category", "sparse"]


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: a column of numbers or of categories, or a name in the sparse table."""

    name: str
    kind: Kind
    scaling: Literal["standard", "none"] = "standard"  # numbers: (value - mean) / deviation
    missing: Literal["refused", "mean"] = "refused"  # numbers: what an empty cell means
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The number of columns of X it takes: one, or one per category."""
        return len(self.categories) if self.kind == "category" else 1


@dataclass(frozen=True, slots=True)
class Schema:
    """What the tables hold. Columns of X: numbers and categories in order, then sparse ones."""

    features: tuple[Feature, ...]
    class_names: tuple[str, ...]
    label: str = "label"  # the column that holds the class
    ignored: tuple[str, ...] = ()  # columns that are not features

    def of_kind(self, kind: Kind) -> tuple[Feature, ...]:
        """The features of a kind, in order."""
        return tuple(feature for feature in self.features if feature.kind == kind)

    @property
    def columns(self) -> tuple[Feature, ...]:
        """The features that are columns of the table of nodes."""
        return tuple(feature for feature in self.features if feature.kind != "sparse")

    @property
    def num_features(self) -> int:
        """d_x: one for each number, each category and each sparse feature."""
        return sum(feature.width for feature in self.features)

    @property
    def width_names(self) -> tuple[str, ...]:
        """A name for each of the d_x columns of X."""
        names = [
            [f"{f.name}={c}" for c in f.categories] if f.kind == "category" else [f.name]
            for f in (*self.columns, *self.of_kind("sparse"))
        ]
        return tuple(name for group in names for name in group)

    @property
    def is_sparse(self) -> bool:
        """Whether X is kept sparse; it depends only on the schema, so all owners agree."""
        return bool(self.of_kind("sparse")) or (
            len(self.columns) * DENSE_SHARE <= self.num_features
        )

    @property
    def sha256(self) -> str:
        """A checksum of the schema's content, however its file is laid out."""
        text = json.dumps(schema_content(self), ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def schema_content(schema: Schema) -> dict[str, Any]:
    """The schema as plain values, nested as in its file; :func:`schema_of` reads it."""
    sparse = [feature.name for feature in schema.of_kind("sparse")]
    numbered = sparse == [str(i) for i in range(len(sparse))]
    return {
        "classes": list(schema.class_names),
        "label": schema.label,
        "ignored": list(schema.ignored),
        "sparse": len(sparse) if numbered else sparse,
        "features": {f.name: feature_content(f) for f in schema.columns},
    }


def feature_content(feature: Feature) -> dict[str, Any]:
    """The keys of one feature."""
    if feature.kind == "category":
        return {"kind": "category", "categories": list(feature.categories)}
    return {"kind": "number", "scaling": feature.scaling, "missing": feature.missing}


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
    unknown_keys(content, KEYS, file, "", problems)
    if "classes" not in content:
        problems.add("schema", file, "has no key 'classes'", 'Add classes = ["a", "b"].')
    classes = names_of(content.get("classes", []), f"{file}, classes", problems)
    ignored = names_of(content.get("ignored", []), f"{file}, ignored", problems)
    label = content.get("label", "label")
    if not isinstance(label, str) or not is_name(label) or label in RESERVED:
        problems.add(
            "schema",
            f"{file}, label",
            f"{label!r} cannot be the column that holds the class",
            "Give the name of a column other than id and split.",
        )
        label = "label"
    features = features_of(content.get("features", {}), file, problems)
    sparse = sparse_of(content.get("sparse", 0), file, problems)
    taken = {"id", "split", label}
    for name in [f.name for f in (*features, *sparse)] + list(ignored):
        if name in taken:
            problems.add(
                "schema",
                f"{file}, {name}",
                "the name is already in use",
                "Give every column one use.",
            )
        taken.add(name)
    if not features and not sparse:
        problems.add("schema", file, "names no features", "Add some under [features].")
    return Schema((*features, *sparse), classes, label, ignored)


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
        if not isinstance(keys, Mapping) or keys.get("kind") not in FEATURE_KEYS:
            kind = keys.get("kind") if isinstance(keys, Mapping) else keys
            remedy = 'Write { kind = "number" } or { kind = "category", categories = [...] }.'
            problems.add("schema", where, f"the kind is {kind!r}", remedy)
            continue
        features.append(feature_of(name, keys, where, problems))
    return features


def feature_of(name: str, keys: Mapping[str, Any], where: str, problems: Problems) -> Feature:
    """One feature from its keys."""
    kind = keys["kind"]
    unknown_keys(keys, FEATURE_KEYS[kind], where, f"features.{name}.", problems)
    if kind == "category":
        categories = names_of(keys.get("categories", []), f"{where}.categories", problems)
        if not categories:
            remedy = 'Add categories = ["a", "b"], with those of all owners.'
            problems.add("schema", where, "has no categories", remedy)
        return Feature(name, "category", categories=categories)
    chosen = {}
    for key, choices in CHOICES.items():
        chosen[key] = keys.get(key, choices[0])
        if chosen[key] not in choices:
            remedy = f'Write "{choices[0]}" or "{choices[1]}".'
            problems.add("schema", f"{where}.{key}", f"is {chosen[key]!r}", remedy)
            chosen[key] = choices[0]
    return Feature(name, "number", **chosen)


def sparse_of(content: object, file: str, problems: Problems) -> list[Feature]:
    """The features of the third table: a list of names, or a count for names 0, 1, 2, ...."""
    if isinstance(content, int) and not isinstance(content, bool) and 0 <= content <= 10**7:
        return [Feature(str(i), "sparse") for i in range(content)]
    return [Feature(name, "sparse") for name in names_of(content, f"{file}, sparse", problems)]


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
    known: tuple[str, ...],
    where: str,
    prefix: str,
    problems: Problems,
) -> None:
    """Note every unknown key, with the nearest known one."""
    for key in content:
        if key not in known:
            remedy = nearest(key, known).strip()
            problems.add("schema", where, f"unknown key '{prefix}{key}'", remedy)


def schema_text(schema: Schema, notes: Mapping[str, str] | None = None) -> str:
    """The schema as a TOML file with comments; ``notes`` are added after features."""
    content, notes = schema_content(schema), notes or {}
    lines = [
        "# Every owner uses this same file: X and the classes are numbered in the order below.",
        "# How to fill it in: docs/own-data.md. Check your tables with",
        "#   fedsage data check FOLDER",
        "",
        "# Every class that any owner has.",
        f"classes = {toml(content['classes'])}",
    ]
    if schema.label != "label":
        lines.append(f"label = {toml(schema.label)}  # the column that holds a node's class")
    if schema.ignored:
        lines.append(f"ignored = {toml(content['ignored'])}  # columns that are not features")
    if schema.of_kind("sparse"):
        lines += ["# Features of the table (id, feature, value); those not listed are 0."]
        lines += [f"sparse = {toml(content['sparse'])}"]
    if schema.columns:
        lines += ["", "[features]"]
    for name, keys in content["features"].items():
        note = f"  # {notes[name]}" if name in notes else ""
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
