"""Tables as cells of text: from CSV, from parquet, from Excel, or from memory.

Wherever a table comes from, its cells are read as text without surrounding spaces; a missing
value is an empty text. So one set of checks serves all tables and can name the line.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from fedsage.errors import DataError
from fedsage.tables.problems import Problems


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A table of text, and how to name one of its rows."""

    file: str
    columns: dict[str, pa.ChunkedArray]
    num_rows: int
    row_name: Callable[[int], str]  # "line 7" of a CSV file, "row 6" elsewhere
    decimal: str | None = "."  # of numbers that are text; None to find out column by column

    def seen(self, row: int, column: str) -> str:
        """What a cell holds, short enough to show."""
        text = self.columns[column][row].as_py()
        return repr(text if len(text) <= 40 else f"{text[:37]}...")


@dataclass(frozen=True, slots=True)
class Layout:
    """How an owner's files are written; None for what is found out from the file."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str = "utf-8"


AS_FOUND = Layout()


def read_parquet(path: Path) -> Cells:
    """A parquet file."""
    return cells_of(pa.parquet.read_table(path, memory_map=True), path.name)


def cells_in_memory(table: Any, name: str, problems: Problems) -> Cells | None:
    """A table in memory: pandas, Arrow, a dict of columns, or anything else Arrow accepts."""
    try:
        return cells_of(table if isinstance(table, pa.Table) else pa.table(table), name)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        remedy = "Give a pandas or Arrow table, or a dict of columns of the same length."
        problems.add(
            "unreadable", name, f"{type(table).__name__} is not a table ({reason})", remedy
        )
    return None


def cells_of(table: pa.Table, file: str) -> Cells:
    """The cells of an Arrow table; its rows are numbered from 1."""
    columns = {name: as_text(table[i]) for i, name in enumerate(table.column_names)}
    return Cells(file, columns, table.num_rows, lambda row: f"row {row + 1}")


def cells_of_rows(
    file: str,
    names: Sequence[str],
    rows: Iterable[Sequence[object]],
    first: int,
    decimal: str | None = ".",
) -> Cells:
    """The cells of rows of Python values; ``first`` is the number of the first row."""
    columns: list[list[str]] = [[] for _ in names]
    for row in rows:
        for held, value in zip(columns, row, strict=True):
            held.append(text_of(value))
    arrays = {
        name: as_text(pa.chunked_array([held], pa.string()))
        for name, held in zip(names, columns, strict=True)
    }
    count = len(columns[0]) if columns else 0
    return Cells(file, arrays, count, lambda row: f"row {row + first}", decimal)


def text_of(value: object) -> str:
    """A value from a database or a workbook as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, datetime.datetime):
        midnight = value.time() == datetime.time()
        return value.date().isoformat() if midnight else value.isoformat(" ")
    if isinstance(value, bytes | bytearray | memoryview):
        raise DataError(
            "A column holds bytes, not text or numbers. Leave it out, or convert it to text."
        )
    return str(value)


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The cells of a column as text, without surrounding spaces."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    return pc.utf8_trim_whitespace(pc.fill_null(pc.cast(column, pa.string()), ""))
