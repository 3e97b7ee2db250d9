"""Columns that must not become features: ids, row numbers, and the class by another name."""

from __future__ import annotations

import numpy as np

from fedsage.tables.column import Column
from fedsage.tables.uses import ID_NAME, NEARLY_ALL

ENOUGH = 30  # labelled rows before a column can be said to tell the class
AGREES = 0.98  # the share of rows whose class a column tells
COMMON = 0.9  # a class this frequent is told by anything
ROWS_A_VALUE = 5  # on average, or a column tells classes by chance
INDEX_NAMES = ("__index_level_0__", "level_0", "index")


def why_not(column: Column, label: Column | None, row_ids: Column | None) -> str:
    """Why a column should not be a feature; empty if nothing speaks against it."""
    if column.name in INDEX_NAMES or column.name.startswith("Unnamed: "):
        return "it numbers the rows"
    if is_id(column):
        return "it looks like an id"
    if row_ids is not None and same_cells(column, row_ids):
        return "it repeats the id"
    if label is not None and (share := share_told(column, label)) >= AGREES:
        return (
            f"it gives the class away: it tells it in {share:.1%} of the rows; make it a "
            "feature only if it is known before the class is"
        )
    return ""


def is_id(column: Column) -> bool:
    """Whether a column only tells rows apart: by its name and values, or by counting them."""
    called = bool(ID_NAME.search(column.name))
    num_filled, num_values = int(column.filled.sum()), len(column.distinct()[0])
    if num_values < NEARLY_ALL * num_filled:
        return called and num_filled >= ENOUGH and num_values > num_filled / 2
    numbers = np.sort(column.numbers()[column.filled])
    if (numbers != np.round(numbers)).any():  # words among them
        return called and not np.isfinite(numbers).all()
    steps = np.diff(numbers)
    counts_rows = len(numbers) >= ENOUGH and bool((steps == steps[0]).all())
    return counts_rows or (called and len(numbers) > 2)


def same_cells(column: Column, other: Column) -> bool:
    """Whether two columns hold the same text in every row."""
    return bool(column.text.equals(other.text))


def share_told(column: Column, label: Column) -> float:
    """Which share of the labelled rows has the most frequent class of its value.

    0 if that says nothing: too few rows, too many values, or one class nearly everywhere.
    """
    both = column.filled & label.filled
    if both.sum() < ENOUGH:
        return 0.0
    values, classes = codes_of(column, both), codes_of(label, both)
    width = int(classes.max()) + 1
    table = np.bincount(values * width + classes, minlength=(values.max() + 1) * width)
    table = table.reshape(-1, width)
    used = int((table.sum(axis=1) > 0).sum())
    if used < 2 or used * ROWS_A_VALUE > both.sum():
        return 0.0
    if table.sum(axis=0).max() > COMMON * both.sum():
        return 0.0
    return float(table.max(axis=1).sum() / both.sum())


def codes_of(column: Column, rows: np.ndarray) -> np.ndarray:
    """Which of its different texts each of some filled rows holds."""
    codes = np.zeros(len(column.empty), dtype=np.int64)
    codes[column.filled] = column.distinct()[1]
    return codes[rows]
