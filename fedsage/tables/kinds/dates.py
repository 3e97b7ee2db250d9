"""Dates and times: days since a day that all owners agree on, and cyclic parts."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float64

from fedsage.shapes import Array
from fedsage.tables.feature import (
    Feature,
    KindName,
    Setting,
    day,
    days,
    names_of,
    some_of,
)
from fedsage.tables.kinds.base import Guessed, Kind, marked, missing_in, scaled, with_mark
from fedsage.tables.kinds.numbers import FILL_IN, MISSING, SCALING

if TYPE_CHECKING:
    from fedsage.tables.column import Column

SINCE = "2000-01-01"
USUAL = ("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d")  # beside ISO 8601
SLASHES = {
    "day first": ("%d/%m/%Y", "%d/%m/%Y %H:%M", "%d/%m/%Y %H:%M:%S"),
    "month first": ("%m/%d/%Y", "%m/%d/%Y %H:%M", "%m/%d/%Y %H:%M:%S"),
}
PERIOD = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days
SECONDS = 86_400
SAMPLE = 50  # texts that must all be dates before the others are looked at


class Date(Kind):
    """A day, perhaps with a time: days since ``since``, and sine and cosine of ``cyclic``."""

    name: ClassVar[KindName] = "date"
    settings: ClassVar = {
        "scaling": SCALING,
        "missing": MISSING,
        "since": day(SINCE),
        "cyclic": some_of(*PERIOD),
        "formats": Setting((), names_of),
        "range": Setting((), days),
    }
    example = 'admitted = { kind = "date", cyclic = ["year"] }'

    def bounds(self, feature: Feature) -> tuple[float, float] | None:
        """Its range, in days since the agreed day."""
        start = datetime.date.fromisoformat(feature.since)
        found = [(datetime.date.fromisoformat(str(one)) - start).days for one in feature.range]
        return (float(found[0]), float(found[1])) if found else None

    def width_names(self, feature: Feature) -> list[str]:
        """The days, then two names for each cyclic part."""
        parts = [
            f"{feature.name} {f} of {p}" for p in feature.cyclic for f in ("sine", "cosine")
        ]
        return with_mark([feature.name, *parts], feature)

    def read(self, column: Column, feature: Feature) -> Float64[Array, " V"]:
        """Days since the agreed day; NaN where a cell is empty."""
        days = days_in(column, (*feature.formats, *USUAL), feature.since)
        like = [EXAMPLE.strftime(one) for one in feature.formats]
        usual = "2024-05-31, 2024-05-31 14:30 or 31.05.2024"
        remedy = f"Write it like {', '.join([*like, usual])}, or add its form to 'formats'."
        column.note(
            np.isnan(days) & column.filled,
            "not a date",
            lambda row: (f"{column.seen(row)} is not a date", remedy),
            lambda text: "0" if any(c.isdigit() for c in text) else text,
        )
        if feature.missing == "refused":
            column.refuse_empty(FILL_IN)
        return days

    def encode(
        self, values: Float64[Array, " V"], feature: Feature, mean: float, std: float
    ) -> Array:
        """Days, scaled; sine and cosine are 0 where a cell is empty."""
        empty = np.isnan(values)
        day = np.where(empty, 0.0, values) + since_monday(feature.since)
        blocks = [scaled(values, feature, mean, std, self.bounds(feature))]
        for part in feature.cyclic:
            angle = 2 * np.pi * phase_of(day, part)
            both = np.stack([np.sin(angle), np.cos(angle)], axis=1)
            blocks.append(np.where(empty[:, None], 0.0, both))
        return marked(np.concatenate(blocks, axis=1), empty, feature)

    def nonzero(self, feature: Feature) -> int:
        """The days, and two for each cyclic part."""
        return 1 + 2 * len(feature.cyclic)

    def cells(self, values: Float64[Array, " V"], feature: Feature) -> Sequence[str] | Array:
        """Dates as ISO 8601, with a time if there is one."""
        start = datetime.datetime.fromisoformat(feature.since)
        found = []
        for value in values.tolist():
            if value != value:
                found.append("")
                continue
            at = start + datetime.timedelta(seconds=round(value * SECONDS))
            found.append(at.date().isoformat() if at.time() == MIDNIGHT else at.isoformat(" "))
        return found

    def guess(self, column: Column, fewest: int) -> Guessed | None:
        """A column that holds dates alone, written in one way."""
        every = (*USUAL, *(f for formats in SLASHES.values() for f in formats))
        if any(moment(text, every) is None for text in column.distinct()[0][:SAMPLE]):
            return None
        empty, missing = missing_in(column)
        ways: dict[str, tuple[str, ...]] = {"": (), **SLASHES}
        fits = {
            way: days
            for way, formats in ways.items()
            if np.isfinite(
                (days := days_in(column, (*formats, *USUAL), SINCE))[column.filled]
            ).all()
        }
        if not fits or not column.filled.any():
            return None
        way = next(iter(fits))
        days = fits[way][column.filled]
        first, last = (
            datetime.date.fromisoformat(SINCE) + datetime.timedelta(days=float(d))
            for d in (days.min(), days.max())
        )
        seen = f"{first} to {last}{empty}"
        note = ""
        if way:
            note = f"dates with slashes are read with the {way}"
            seen += f"; {note}" + (", but could be either" if len(fits) > 1 else "")
        feature = Feature(column.name, "date", missing=missing, formats=ways[way])
        return Guessed(feature, seen, note)


MIDNIGHT = datetime.time()
EXAMPLE = datetime.datetime(2024, 5, 31, 14, 30)


def since_monday(since: str) -> float:
    """Days from a Monday at which a 400-year cycle of the calendar began, 1600-01-03."""
    return float((datetime.date.fromisoformat(since) - datetime.date(1600, 1, 3)).days)


def phase_of(days: Float64[Array, " V"], part: str) -> Float64[Array, " V"]:
    """Which share of the current year, week or day has passed, from 0 to 1."""
    shifted = days + 2 if part == "year" else days  # a year begins on the first, not the third
    return np.mod(shifted / PERIOD[part], 1.0)


def contradiction(formats: Sequence[str]) -> tuple[str, str] | None:
    """Two of some formats that read a text as different days, such as 01/02/2024."""
    day = datetime.datetime(2001, 2, 3)
    for one in formats:
        text = day.strftime(one)
        for two in formats:
            if moment(text, [one]) == day and moment(text, [two]) not in (None, day):
                return one, two
    return None


def days_in(column: Column, formats: Sequence[str], since: str) -> Float64[Array, " V"]:
    """Days since a day in every cell; NaN where it is empty or not a date."""
    start = datetime.datetime.fromisoformat(since)
    texts, codes = column.distinct()
    found = np.array([days_of(text, formats, start) for text in texts], np.float64)
    days = np.full(len(column.empty), np.nan)
    days[column.filled] = found[codes]
    return days


def days_of(text: str, formats: Sequence[str], start: datetime.datetime) -> float:
    """Days from ``start`` to what a text names; NaN if it is not a date."""
    if not text[:1].isdigit() or not any(mark in text for mark in "-./"):
        return float("nan")
    at = moment(text.removesuffix("Z"), formats)
    if at is None:
        return float("nan")
    if at.tzinfo is not None:
        at = at.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return (at - start).total_seconds() / SECONDS


def moment(text: str, formats: Sequence[str]) -> datetime.datetime | None:
    """The moment that a text names; None if it is not a date."""
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        pass
    for format in formats:
        try:
            return datetime.datetime.strptime(text, format)
        except ValueError:
            continue
    return None
