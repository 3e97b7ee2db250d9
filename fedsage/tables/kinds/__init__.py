"""The kinds of columns, each in one place; guesses are made in this order."""

from __future__ import annotations

from fedsage.tables.feature import Feature
from fedsage.tables.kinds.base import Kind
from fedsage.tables.kinds.dates import Date
from fedsage.tables.kinds.numbers import Boolean, Count, Number
from fedsage.tables.kinds.words import Category, Text

KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (Boolean(), Count(), Number(), Date(), Category(), Text())
}


def kind_of(feature: Feature) -> Kind:
    """The kind of a feature that is a column of the table of nodes."""
    return KINDS[feature.kind]
