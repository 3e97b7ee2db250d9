"""What a kind of column must know: its settings, checks, columns of X, and how to guess it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from jaxtyping import Float64

from fedsage.shapes import Array, SparseMatrix
from fedsage.tables.feature import Feature, KindName, Setting, unknown_keys
from fedsage.tables.problems import Problems

if TYPE_CHECKING:
    from fedsage.tables.column import Column

Block: TypeAlias = "Array | SparseMatrix"  # columns of X


@dataclass(frozen=True, slots=True)
class Guessed:
    """What a column seems to be.

    ``seen`` is only for the owner; ``note`` goes into the file that all owners read.
    """

    feature: Feature
    seen: str
    note: str = ""


class Kind(ABC):
    """One kind of column, in one place.

    ``holds`` says where :class:`fedsage.tables.tables.Tables` keeps the column: with the
    numbers, whose mean and deviation over all owners are known when they are encoded, with
    the codes of categories, or with the texts.
    """

    name: ClassVar[KindName]
    holds: ClassVar[Literal["numbers", "codes", "texts"]] = "numbers"
    settings: ClassVar[Mapping[str, Setting]]
    example: ClassVar[str]  # of the settings in schema.toml

    @abstractmethod
    def width_names(self, feature: Feature) -> list[str]:
        """A name for each column of X that it takes."""

    @abstractmethod
    def read(self, column: Column, feature: Feature) -> Array:
        """The column as an array; notes what is wrong with its cells."""

    @abstractmethod
    def encode(self, values: Array, feature: Feature, mean: float, std: float) -> Block:
        """The columns of X; mean and deviation are 0 and 1 unless it is held as a number."""

    @abstractmethod
    def cells(self, values: Array, feature: Feature) -> Sequence[str] | Array:
        """What to write into a table so that :meth:`read` gives the same array."""

    @abstractmethod
    def guess(self, column: Column, fewest: int) -> Guessed | None:
        """What the column is if it may be of this kind; words fewer rows have are not shown."""

    def bounds(self, feature: Feature) -> tuple[float, float] | None:
        """The range of its numbers as they are held, if the schema gives one."""
        return None

    def needs_scale(self, feature: Feature) -> bool:
        """Whether its columns of X depend on the mean or the deviation over all owners."""
        filled = feature.missing != "refused"
        return self.bounds(feature) is None and (feature.scaling == "standard" or filled)

    def nonzero(self, feature: Feature) -> int:
        """About how many of its columns of X are not zero in a row."""
        return 1

    def feature(
        self, name: str, keys: Mapping[str, Any], where: str, problems: Problems
    ) -> Feature:
        """One feature from its keys in the schema."""
        unknown_keys(keys, ("kind", *self.settings), where, f"features.{name}.", problems)
        chosen = {
            key: setting.read(keys[key], f"{where}.{key}", problems)
            if key in keys
            else setting.default
            for key, setting in self.settings.items()
        }
        return Feature(name, self.name, **chosen)

    def content(self, feature: Feature) -> dict[str, Any]:
        """The keys of one feature in the schema; those with their default are left out."""
        found: dict[str, Any] = {"kind": self.name}
        for key, setting in self.settings.items():
            value = getattr(feature, key)
            if setting.always or value != setting.default:
                found[key] = list(value) if isinstance(value, tuple) else value
        return found


def marked(block: Array, empty: Array, feature: Feature) -> Array:
    """A block, and a column that is 1 where the cell is empty if the feature asks for it."""
    if feature.missing != "indicator":
        return block
    return np.concatenate([block, empty[:, None].astype(block.dtype)], axis=1)


def with_mark(names: list[str], feature: Feature) -> list[str]:
    """The names of the columns of such a block."""
    return [*names, f"{feature.name} is empty"] if feature.missing == "indicator" else names


def scaled(
    column: Float64[Array, " V"],
    feature: Feature,
    mean: float,
    std: float,
    bounds: tuple[float, float] | None,
) -> Float64[Array, "V 1"]:
    """Numbers scaled as their feature says; an empty cell becomes the mean.

    With a range, numbers beyond it are moved to its ends, and it takes the place of mean and
    deviation: it becomes -1 to 1.
    """
    if bounds is not None:
        low, high = bounds
        column, mean, std = np.clip(column, low, high), (low + high) / 2, (high - low) / 2
    filled = np.where(np.isnan(column), mean, column)
    if feature.scaling == "standard":
        filled = (filled - mean) / std
    return filled[:, None]


def missing_in(column: Column) -> tuple[str, Literal["refused", "mean"]]:
    """How many cells are empty, in words, and the setting that allows for them."""
    empty = int(column.empty.sum())
    return (f", {empty:,} empty", "mean") if empty else ("", "refused")
