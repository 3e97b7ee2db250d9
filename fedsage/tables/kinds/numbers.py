"""Columns of numbers: measurements, counts, and booleans as 0 and 1."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Bool, Float64

from fedsage.shapes import Array
from fedsage.tables.feature import (
    FEWEST,
    Feature,
    KindName,
    Setting,
    limits,
    names_of,
    one_of,
)
from fedsage.tables.kinds.base import Guessed, Kind, marked, missing_in, scaled, with_mark
from fedsage.tables.problems import all_alike

if TYPE_CHECKING:
    from fedsage.tables.column import Column

LARGEST = float(np.finfo(np.float32).max)
FEW = 10  # whole numbers with at most this many values may be codes
CODES = "a category, if these numbers are codes"
STAND_INS = (-1.0, -9.0, -99.0, -999.0, -9999.0, 999.0, 9999.0, 99999.0)  # for empty cells
SHARE = 0.01  # of the rows: a stand-in that is rarer may be a real value
BEYOND = 5  # a large stand-in is this many times any other value
LONG_TAIL = 10  # times the median: where the largest is beyond, counts are likely
YES = ("1", "yes", "y", "true", "t", "ja", "j", "wahr", "oui", "vrai", "si", "sí", "sì")
NO = ("0", "no", "n", "false", "f", "nein", "falsch", "non", "faux")
FILL_IN = 'Fill it in, or give the feature missing = "mean" or "indicator" in the schema.'
SCALING = replace(one_of("standard", "none"), always=True)
MISSING = replace(one_of("refused", "mean", "indicator"), always=True)


class Number(Kind):
    """A measurement such as 36.6, scaled by mean and deviation over all owners."""

    name: ClassVar[KindName] = "number"
    settings: ClassVar = {
        "scaling": SCALING, "missing": MISSING, "range": Setting((), limits),
    }  # fmt: skip
    example = 'age = { kind = "number" }'

    def bounds(self, feature: Feature) -> tuple[float, float] | None:
        """Its range."""
        found = [float(one) for one in feature.range]
        return (found[0], found[1]) if found else None

    def width_names(self, feature: Feature) -> list[str]:
        """Its own name."""
        return with_mark([feature.name], feature)

    def read(self, column: Column, feature: Feature) -> Float64[Array, " V"]:
        """The numbers; NaN where a cell is empty."""
        values = column.checked_numbers()
        if feature.missing == "refused":
            column.refuse_empty(FILL_IN)
        return values

    def encode(
        self, values: Float64[Array, " V"], feature: Feature, mean: float, std: float
    ) -> Array:
        """One column, scaled."""
        found = scaled(values, feature, mean, std, self.bounds(feature))
        return marked(found, np.isnan(values), feature)

    def cells(self, values: Float64[Array, " V"], feature: Feature) -> Sequence[str] | Array:
        """The numbers."""
        return values

    def guess(self, column: Column, fewest: int) -> Guessed | None:
        """A column that holds numbers alone."""
        numbers = only_numbers(column)
        if numbers is None:
            return None
        empty, missing = missing_in(column)
        seen = f"{numbers.min():g} to {numbers.max():g}{empty}"
        codes = 2 < len(np.unique(numbers)) <= FEW and (numbers == np.round(numbers)).all()
        note = CODES if codes else ""
        seen += f"; {CODES}" if codes else ""
        for value, count in stand_ins(numbers).items():
            seen += (
                f"; {value:g} in {count:,} rows is far from all others: {again(f'{value:g}')}"
            )
        return Guessed(Feature(column.name, "number", missing=missing), seen, note)


def stand_ins(numbers: Float64[Array, " filled"]) -> dict[float, int]:
    """Numbers that may stand for empty cells, with their counts: frequent, and far away."""
    others = numbers[~np.isin(numbers, STAND_INS)]
    if not len(others):
        return {}
    far = [s for s in STAND_INS if (others.min() >= 0 if s < 0 else others.max() * BEYOND < s)]
    counts = {value: int((numbers == value).sum()) for value in far}
    enough = max(FEWEST, SHARE * len(numbers))
    return {value: count for value, count in counts.items() if count >= enough}


def again(word: str) -> str:
    """What to do with a word that may stand for an empty cell."""
    return f"if it means an empty cell, init again with --empty {shlex.quote(word)}"


def only_numbers(column: Column) -> Float64[Array, " filled"] | None:
    """The numbers of a column that holds nothing else; None for any other."""
    numbers = column.numbers()[column.filled]
    usable = len(numbers) and (np.abs(np.nan_to_num(numbers, nan=np.inf)) <= LARGEST).all()
    return numbers if usable else None


class Count(Number):
    """How often something happened: whole numbers from 0, of which X has log(1 + n)."""

    name: ClassVar[KindName] = "count"
    example = 'visits = { kind = "count" }'

    def bounds(self, feature: Feature) -> tuple[float, float] | None:
        """The logarithms of its range, as those of counts."""
        found = super().bounds(feature)
        return (math.log1p(max(found[0], 0)), math.log1p(max(found[1], 1))) if found else None

    def read(self, column: Column, feature: Feature) -> Float64[Array, " V"]:
        """log(1 + n); NaN where a cell is empty."""
        values = super().read(column, feature)
        finite = np.nan_to_num(values, posinf=0, neginf=0)
        bad = np.isfinite(values) & ((finite < 0) | (finite != np.round(finite)))
        remedy = 'Correct it, or make the feature kind = "number".'
        column.note(
            bad, "not a count", lambda row: (f"{column.seen(row)} is not a count", remedy),
            all_alike,
        )  # fmt: skip
        return np.log1p(np.where(bad | ~np.isfinite(values), np.nan, values))

    def cells(self, values: Float64[Array, " V"], feature: Feature) -> Sequence[str] | Array:
        """The counts."""
        return np.round(np.expm1(values))

    def guess(self, column: Column, fewest: int) -> Guessed | None:
        """Whole numbers, most of them small and a few large."""
        numbers = only_numbers(column)
        if numbers is None or (numbers < 0).any():
            return None
        top, median = numbers.max(), np.median(numbers)
        if (numbers != np.round(numbers)).any() or top <= LONG_TAIL * (median + 1):
            return None
        empty, missing = missing_in(column)
        seen = f"whole numbers, half of them at most {median:g}, the largest {top:g}{empty}"
        return Guessed(Feature(column.name, "count", missing=missing), seen)


class Boolean(Kind):
    """Yes or no, in several languages: one column of X that is 1 or 0."""

    name: ClassVar[KindName] = "boolean"
    settings: ClassVar = {
        "missing": one_of("refused", "mean", "indicator"),
        "yes": Setting((), names_of),
        "no": Setting((), names_of),
    }
    example = 'smoker = { kind = "boolean", missing = "indicator" }'

    def needs_scale(self, feature: Feature) -> bool:
        """Only for empty cells, which become the share of yes."""
        return feature.missing != "refused"

    def width_names(self, feature: Feature) -> list[str]:
        """Its own name."""
        return with_mark([feature.name], feature)

    def read(self, column: Column, feature: Feature) -> Float64[Array, " V"]:
        """1 for yes, 0 for no, NaN where a cell is empty."""
        yes, no = truth_of(column, (*YES, *feature.yes), (*NO, *feature.no))
        remedy = "Write yes or no, or list the word under 'yes' or 'no' of this feature."
        bad = column.filled & ~yes & ~no
        what = "is neither yes nor no"
        column.note(bad, what, lambda row: (f"{column.seen(row)} {what}", remedy))
        if feature.missing == "refused":
            column.refuse_empty(FILL_IN)
        return np.where(column.empty, np.nan, yes.astype(np.float64))

    def encode(
        self, values: Float64[Array, " V"], feature: Feature, mean: float, std: float
    ) -> Array:
        """One column; an empty cell becomes the share of yes over all owners."""
        empty = np.isnan(values)
        return marked(np.where(empty, mean, values)[:, None], empty, feature)

    def cells(self, values: Float64[Array, " V"], feature: Feature) -> Sequence[str] | Array:
        """Words."""
        return np.where(np.isnan(values), "", np.where(values == 1, "yes", "no")).astype(object)

    def guess(self, column: Column, fewest: int) -> Guessed | None:
        """A column that holds words for yes and no alone, and both."""
        yes, no = truth_of(column, YES, NO)
        if not yes.any() or not no.any() or (column.filled & ~yes & ~no).any():
            return None
        empty, missing = missing_in(column)
        seen = f"{int(yes.sum()):,} yes, {int(no.sum()):,} no{empty}"
        return Guessed(Feature(column.name, "boolean", missing=missing), seen)


def truth_of(
    column: Column, yes: Sequence[str], no: Sequence[str]
) -> tuple[Bool[Array, " V"], Bool[Array, " V"]]:
    """Which cells say yes and which say no, in whatever case."""
    texts, codes = column.distinct()
    found = []
    for words in (yes, no):
        lower = {word.lower() for word in words}
        rows = np.zeros(len(column.empty), dtype=bool)
        rows[column.filled] = np.array([t.lower() in lower for t in texts], bool)[codes]
        found.append(rows)
    return found[0], found[1]
