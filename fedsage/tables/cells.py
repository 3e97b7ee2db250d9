"""Tables as cells of text: from CSV, from parquet, or from memory.

Wherever a table comes from, its cells are read as text without surrounding spaces; a missing
value is an empty text. So one set of checks serves all tables and can name the line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from fedsage.tables.problems import Problems

SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A table of text, and how to name one of its rows."""

    file: str
    columns: dict[str, pa.ChunkedArray]
    num_rows: int
    row_name: Callable[[int], str]  # "line 7" of a CSV file, "row 6" elsewhere

    def where(self, row: int, column: str) -> str:
        """Where a cell is, in words."""
        return f"{self.file}, {self.row_name(row)}, column {column}"

    def seen(self, row: int, column: str) -> str:
        """What a cell holds, short enough to show."""
        text = self.columns[column][row].as_py()
        return repr(text if len(text) <= 40 else f"{text[:37]}...")


def find_table(folder: Path, name: str, problems: Problems, needed: bool = True) -> Path | None:
    """The file of one table: ``name.csv`` or ``name.parquet``, not both."""
    found = [folder / (name + end) for end in SUFFIXES if (folder / (name + end)).is_file()]
    if len(found) == 2:
        remedy = "Remove the one that is out of date."
        problems.add("two files", f"{name}.csv", f"there is also {name}.parquet", remedy)
    if not found and needed:
        remedy = f"Add {name}.csv or {name}.parquet to {folder}."
        problems.add("no file", f"{name}.csv", "no such file", remedy)
    return found[0] if found else None


def read_cells(path: Path, problems: Problems) -> Cells | None:
    """A table of text from a file; None if not even its columns can be read."""
    try:
        return read_parquet(path) if path.suffix == ".parquet" else read_csv(path, problems)
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())[:200]
        remedy = "Write it again, with one text or number per cell."
        problems.add("unreadable", path.name, f"cannot be read as parquet ({reason})", remedy)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        remedy = "Check the file and its permissions."
        problems.add("unreadable", path.name, f"cannot be read ({error})", remedy)
    return None


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


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The cells of a column as text, without surrounding spaces."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    return pc.utf8_trim_whitespace(pc.fill_null(pc.cast(column, pa.string()), ""))


def read_csv(path: Path, problems: Problems) -> Cells | None:
    """A CSV file: UTF-8, commas, a header. Arrow reads it unless it is irregular."""
    header = plain_header(path)
    if header is None:
        return read_odd_csv(path, problems)
    names = [str(i) for i in range(len(header))]
    try:
        table = pa.csv.read_csv(
            path,
            pa.csv.ReadOptions(skip_rows=1, column_names=names, block_size=2**24),
            pa.csv.ParseOptions(newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except pa.ArrowInvalid:
        return read_odd_csv(path, problems)
    columns = {name: as_text(table[i]) for i, name in enumerate(header)}
    return Cells(path.name, columns, table.num_rows, line_names(path))


def plain_header(path: Path) -> list[str] | None:
    """The names in the first line; None if they are not distinct names on one line."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
    except (UnicodeDecodeError, csv.Error):
        return None
    plain = reader.line_num == 1 and all(header) and len(set(header)) == len(header)
    return header if header and plain else None


def line_names(path: Path) -> Callable[[int], str]:
    """Names the line on which a row of a CSV file begins; only read if something is wrong."""

    @cache
    def lines() -> list[int]:
        return odd_rows(path.read_text(encoding="utf-8-sig"))[1]

    return lambda row: f"line {lines()[row + 1]}"


def odd_rows(text: str) -> tuple[list[list[str]], list[int], str]:
    """The rows of a CSV file, the line on which each begins, and why reading stopped early."""
    rows: list[list[str]] = []
    lines: list[int] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begin = 1
    try:
        for row in reader:
            if row and (len(row) > 1 or row[0].strip()):  # not an empty line
                rows.append(row)
                lines.append(begin)
            begin = reader.line_num + 1
    except csv.Error as error:
        return rows, [*lines, begin], str(error)
    return rows, lines, ""


def read_odd_csv(path: Path, problems: Problems) -> Cells | None:
    """The good rows of a CSV file that Arrow rejects; notes what is wrong with the others."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        what = f"is not UTF-8 text (byte 0x{raw[error.start]:02x})"
        problems.add("not UTF-8", f"{path.name}, line {line}", what, "Save it as CSV UTF-8.")
        return None
    rows, lines, stopped = odd_rows(text)
    if stopped:
        remedy = "Close every quote, and double any quote inside a cell."
        problems.add(
            "quotes", f"{path.name}, line {lines[-1]}", f"unreadable ({stopped})", remedy
        )
    header = checked_header(rows, path.name, problems)
    if header is None:
        return None
    good = [i for i, row in enumerate(rows) if i and len(row) == len(header)]
    for i, row in enumerate(rows):
        if len(row) != len(header):
            where = f"{path.name}, line {lines[i]}"
            what = f"has {len(row)} cells, but the header has {len(header)}"
            remedy = "Put cells that contain a comma in quotes, and do not omit any cell."
            problems.add("number of cells", where, what, remedy)
    columns = {
        name: as_text(pa.chunked_array([[rows[i][k] for i in good]], pa.string()))
        for k, name in enumerate(header)
    }
    return Cells(path.name, columns, len(good), lambda row: f"line {lines[good[row]]}")


def checked_header(rows: list[list[str]], file: str, problems: Problems) -> list[str] | None:
    """The names of the columns; notes those that are empty or repeated."""
    if not rows:
        remedy = "Write the names of the columns on the first line."
        problems.add("no header", file, "is empty", remedy)
        return None
    header = [name.strip() for name in rows[0]]
    for k, name in enumerate(header):
        if not name:
            where = f"{file}, line 1, column {k + 1}"
            problems.add("no name", where, "has no name", "Name it, or remove it.")
        elif name in header[:k]:
            where = f"{file}, line 1, column {name}"
            problems.add("column twice", where, "appears twice", "Keep one of the two.")
    return header
