"""Columns of words: categories, of which the schema lists all, and free text."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_array

from fedsage.readable import counted, natural
from fedsage.shapes import Array, SparseMatrix
from fedsage.tables.feature import (
    OTHER,
    UNKNOWN,
    Feature,
    KindName,
    Setting,
    names_of,
    one_of,
    whole,
)
from fedsage.tables.kinds.base import Guessed, Kind
from fedsage.tables.kinds.numbers import NO, YES, again
from fedsage.tables.problems import Problems

if TYPE_CHECKING:
    from fedsage.tables.column import Column

MOST_CATEGORIES = 50  # a column with more different words is text, not a category
WORD = re.compile(r"\w+")
TYPICAL_WORDS = 16  # in a cell of free text


class Category(Kind):
    """One of a list of words: a column of X for each, with a one where the node has it."""

    name: ClassVar[KindName] = "category"
    holds = "codes"
    settings: ClassVar = {
        "categories": Setting((), names_of, always=True),
        "missing": one_of("refused", "unknown"),
        "unlisted": one_of("refused", "other"),
    }
    example = 'ward = { kind = "category", categories = ["north", "south"] }'

    def width_names(self, feature: Feature) -> list[str]:
        """A name for each category."""
        return [f"{feature.name}={category}" for category in feature.categories]

    def feature(
        self, name: str, keys: Mapping[str, Any], where: str, problems: Problems
    ) -> Feature:
        """One feature from its keys; ``unknown`` and ``other`` are added if they are needed."""
        feature = super().feature(name, keys, where, problems)
        if not feature.categories:
            remedy = 'Add categories = ["a", "b"], with those of all owners.'
            problems.add("schema", where, "has no categories", remedy)
        return complete(feature)

    def read(self, column: Column, feature: Feature) -> Int[Array, " V"]:
        """Which category each cell holds."""
        codes = column.places(feature.categories)
        codes[column.empty] = -1
        if feature.missing == "unknown":
            codes[column.empty] = feature.categories.index(UNKNOWN)
        else:
            column.refuse_empty('Fill it in, or give the feature missing = "unknown".')
        unlisted = (codes < 0) & column.filled
        if feature.unlisted == "other":
            codes[unlisted] = feature.categories.index(OTHER)
        else:
            column.refuse_unknown(unlisted, "category", feature.categories)
        return codes

    def encode(
        self, values: Int[Array, " V"], feature: Feature, mean: float, std: float
    ) -> SparseMatrix:
        """One column per category."""
        return csr_array(
            (np.ones(len(values), dtype=np.float32), values, np.arange(len(values) + 1)),
            shape=(len(values), len(feature.categories)),
        )

    def cells(self, values: Int[Array, " V"], feature: Feature) -> Sequence[str] | Array:
        """The words."""
        return np.array([*feature.categories, ""], dtype=object)[values]

    def guess(self, column: Column, fewest: int) -> Guessed | None:
        """A column with few different words; those of few rows become ``other``."""
        counts = column.counts()
        if not 0 < len(counts) <= MOST_CATEGORIES or len(counts) >= len(column.empty):
            return None
        shown = [word for word, count in counts.items() if count >= fewest]
        if not shown:
            return None
        rare, empty = len(counts) - len(shown), int(column.empty.sum())
        seen = counted(len(shown), "word")
        seen += f" and {rare} that fewer than {fewest} rows have, as other" if rare else ""
        feature = Feature(
            column.name,
            "category",
            categories=tuple(sorted(shown, key=natural)),
            missing="unknown" if empty else "refused",
            unlisted="other" if rare else "refused",
        )
        seen += f", {empty:,} empty" if empty else ""
        if word := beside_truth(list(counts)):
            seen += f"; yes, no and '{word}': {again(word)}"
        return Guessed(complete(feature), seen, "of one owner: data merge adds the others'")


class Text(Kind):
    """Free text: its words are hashed into a fixed number of columns, without a dictionary."""

    name: ClassVar[KindName] = "text"
    holds = "texts"
    settings: ClassVar = {
        "missing": one_of("refused", "indicator"),
        "columns": whole(64, 1, 100_000),
    }
    example = 'note = { kind = "text", columns = 64 }'

    def width_names(self, feature: Feature) -> list[str]:
        """A number for each column."""
        names = [f"{feature.name}#{i}" for i in range(feature.columns)]
        return [*names, f"{feature.name} is empty"] if feature.missing == "indicator" else names

    def read(self, column: Column, feature: Feature) -> Array:
        """The texts."""
        if feature.missing == "refused":
            column.refuse_empty('Fill it in, or give the feature missing = "indicator".')
        return np.array(column.texts(), dtype=object)

    def encode(self, values: Array, feature: Feature, mean: float, std: float) -> SparseMatrix:
        """How often each column's words occur, every row with length one."""
        place: list[int] = []
        value: list[float] = []
        ends = [0]
        marked = feature.missing == "indicator"
        for text in values.tolist():
            counts = Counter(
                hashed(word, feature.columns) for word in WORD.findall(text.lower())
            )
            length = float(np.sqrt(sum(n * n for n in counts.values()))) or 1.0
            if marked and not text:
                counts[feature.columns] = 1
            place += sorted(counts)
            value += [counts[k] / length for k in sorted(counts)]
            ends.append(len(place))
        shape = (len(values), feature.columns + marked)
        return csr_array((np.array(value, np.float32), np.array(place, int), ends), shape=shape)

    def nonzero(self, feature: Feature) -> int:
        """Different words in a typical text."""
        return min(feature.columns, TYPICAL_WORDS)

    def cells(self, values: Array, feature: Feature) -> Sequence[str] | Array:
        """The texts."""
        return values

    def guess(self, column: Column, fewest: int) -> Guessed | None:
        """Never: whether texts may be used, and hold no names, only the owner knows."""
        return None


def beside_truth(words: Sequence[str]) -> str:
    """The one word that stands beside words for yes and no, if there is just one."""
    others = [word for word in words if word.lower() not in (*YES, *NO)]
    both = all(any(word.lower() in known for word in words) for known in (YES, NO))
    return others[0] if both and len(others) == 1 else ""


def complete(feature: Feature) -> Feature:
    """The same with the categories that its settings need: ``unknown``, then ``other``."""
    categories = feature.categories
    if feature.missing == "unknown" and UNKNOWN not in categories:
        categories += (UNKNOWN,)
    if feature.unlisted == "other" and OTHER not in categories:
        categories += (OTHER,)
    return replace(feature, categories=categories)


@lru_cache(maxsize=1 << 18)
def hashed(word: str, columns: int) -> int:
    """The column of a word: the same for all owners, on every machine."""
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % columns
