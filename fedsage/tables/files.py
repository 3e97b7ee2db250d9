"""The files of one owner's tables: which there are, and how each becomes cells of text.

Of a CSV file, separator and decimal sign are found if they are not given. Excel workbooks are
read through python-calamine (the extra ``excel``).
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from fedsage.errors import DataError
from fedsage.tables.cells import AS_FOUND, Cells, Layout, as_text, cells_of_rows, read_parquet
from fedsage.tables.problems import Problems

SEPARATORS = (",", ";", "\t", "|")
SAMPLE = 20  # rows by which a separator is judged


def read_csv(path: Path, problems: Problems, layout: Layout = AS_FOUND) -> Cells | None:
    """A CSV file with a header. Arrow reads it unless it is irregular."""
    separator = layout.separator or find_separator(path, layout.encoding)
    decimal = layout.decimal or ("." if separator == "," else None)
    header = plain_header(path, separator, layout.encoding)
    if header is None:
        return read_odd_csv(path, problems, layout)
    names = [str(i) for i in range(len(header))]
    try:
        table = pa.csv.read_csv(
            path,
            pa.csv.ReadOptions(
                skip_rows=1, column_names=names, block_size=2**24, encoding=layout.encoding
            ),
            pa.csv.ParseOptions(newlines_in_values=True, delimiter=separator),
            pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return read_odd_csv(path, problems, layout)
    columns = {name: as_text(table[i]) for i, name in enumerate(header)}
    lines = line_names(path, separator, layout.encoding)
    return Cells(path.name, columns, table.num_rows, lines, decimal)


def find_separator(path: Path, encoding: str = "utf-8") -> str:
    """What separates cells: a comma unless another sign makes rows as long as the header."""
    widths: dict[str, int] = {}
    for separator in SEPARATORS:
        try:
            with path.open(newline="", encoding=marked(encoding)) as file:
                rows = list(islice(csv.reader(file, delimiter=separator), SAMPLE))
        except (UnicodeDecodeError, csv.Error):
            continue
        rows = [row for row in rows if row]
        if rows and len(rows[0]) > 1:
            even = all(len(row) == len(rows[0]) for row in rows)
            widths[separator] = len(rows[0]) + (10_000 if even else 0)
    if widths.get(",", 0) > 10_000:
        return ","
    return max(widths, key=lambda separator: widths[separator], default=",")


def plain_header(path: Path, separator: str = ",", encoding: str = "utf-8") -> list[str] | None:
    """The names in the first line; None if they are not distinct names on one line."""
    try:
        with path.open(newline="", encoding=marked(encoding)) as file:
            reader = csv.reader(file, strict=True, delimiter=separator)
            header = named([name.strip() for name in next(reader, [])])
    except (UnicodeDecodeError, csv.Error):
        return None
    plain = reader.line_num == 1 and all(header) and len(set(header)) == len(header)
    return header if header and plain else None


def named(header: list[str]) -> list[str]:
    """The header with a name for an unnamed first column, as pandas writes its row numbers."""
    if len(header) > 1 and not header[0] and all(header[1:]):
        return ["Unnamed: 0", *header[1:]]
    return header


def marked(encoding: str) -> str:
    """The encoding, which for UTF-8 allows for a mark at the start of the file."""
    return "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding


def line_names(path: Path, separator: str, encoding: str) -> Callable[[int], str]:
    """Names the line on which a row of a CSV file begins; only read if something is wrong."""

    @cache
    def lines() -> array[int]:
        with path.open(newline="", encoding=marked(encoding)) as file:
            reader = csv.reader(file, delimiter=separator)
            return array("q", (line for _, line in rows_and_lines(reader)))

    return lambda row: f"line {lines()[row + 1]}"


def rows_and_lines(reader: Any) -> Iterator[tuple[list[str], int]]:
    """The rows that a reader of CSV gives, except empty lines, and where each begins."""
    begin = 1
    for row in reader:
        if row and (len(row) > 1 or row[0].strip()):
            yield row, begin
        begin = reader.line_num + 1


def odd_rows(text: str, separator: str) -> tuple[list[list[str]], list[int], str]:
    """The rows of a CSV file, the line on which each begins, and why reading stopped early."""
    rows: list[list[str]] = []
    lines: list[int] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    begin = 1
    try:
        for row, line in rows_and_lines(reader):
            rows.append(row)
            lines.append(line)
            begin = reader.line_num + 1
    except csv.Error as error:
        return rows, [*lines, begin], str(error)
    return rows, lines, ""


def read_odd_csv(path: Path, problems: Problems, layout: Layout = AS_FOUND) -> Cells | None:
    """The good rows of a CSV file that Arrow rejects; notes what is wrong with the others."""
    raw = path.read_bytes()
    try:
        text = raw.decode(marked(layout.encoding))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        known = "UTF-8" if layout.encoding == "utf-8" else layout.encoding
        what = f"is not {known} text (byte 0x{raw[error.start]:02x})"
        remedy = 'Save it as CSV UTF-8, or put encoding = "cp1252" into source.toml.'
        problems.add("encoding", f"{path.name}, line {line}", what, remedy)
        return None
    separator = layout.separator or find_separator(path, layout.encoding)
    rows, lines, stopped = odd_rows(text, separator)
    if stopped:
        remedy = "Close every quote, and double any quote inside a cell."
        problems.add(
            "quotes", f"{path.name}, line {lines[-1]}", f"unreadable ({stopped})", remedy
        )
    header = checked_header(rows, path.name, problems)
    if header is None:
        return None
    good = [i for i, row in enumerate(rows) if i and len(row) == len(header)]
    every = Cells(path.name, {}, len(rows), lambda row: f"line {lines[row]}")
    for length in sorted({len(row) for row in rows} - {len(header)}):
        what = f"has {length} cells, but the header has {len(header)}"
        remedy = "Put cells that contain a separator in quotes, and do not omit any cell."
        own = [i for i, row in enumerate(rows) if len(row) == length]
        problems.add_rows("number of cells", every, None, own, what, remedy)
    columns = {
        name: as_text(pa.chunked_array([[rows[i][k] for i in good]], pa.string()))
        for k, name in enumerate(header)
    }
    decimal = layout.decimal or ("." if separator == "," else None)
    row_name = lambda row: f"line {lines[good[row]]}"  # noqa: E731
    return Cells(path.name, columns, len(good), row_name, decimal)


def checked_header(rows: list[list[str]], file: str, problems: Problems) -> list[str] | None:
    """The names of the columns; notes those that are empty or repeated."""
    if not rows:
        remedy = "Write the names of the columns on the first line."
        problems.add("no header", file, "is empty", remedy)
        return None
    header = named([name.strip() for name in rows[0]])
    for k, name in enumerate(header):
        if not name:
            where = f"{file}, line 1, column {k + 1}"
            problems.add("no name", where, "has no name", "Name it, or remove it.")
        elif name in header[:k]:
            where = f"{file}, line 1, column {name}"
            problems.add("column twice", where, "appears twice", "Keep one of the two.")
    return header


def read_workbook(path: Path, problems: Problems) -> Cells | None:
    """The sheet that is called like the file, or else the first one; row 1 is its header."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError:
        raise DataError(
            f"{path.name} is an Excel workbook, and reading those needs python-calamine. "
            "Install it with pip install 'fedsage[excel]', or save the table as CSV."
        ) from None
    try:
        book = CalamineWorkbook.from_path(path)
        name = path.stem if path.stem in book.sheet_names else book.sheet_names[0]
        rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
    except (CalamineError, OSError, IndexError) as error:
        remedy = "Save it again as .xlsx, or as CSV."
        problems.add("unreadable", path.name, f"cannot be read as a workbook ({error})", remedy)
        return None
    header = [str(name).strip() for name in rows[0]] if rows else []
    while header and not header[-1]:
        header.pop()
    if not all(header) or len(set(header)) < len(header) or not header:
        remedy = "Write the name of every column in row 1, each once."
        problems.add("no header", f"{path.name}, row 1", "does not name the columns", remedy)
        return None
    cut = [row[: len(header)] for row in rows[1:]]
    while cut and not any(cell != "" for cell in cut[-1]):
        cut.pop()
    return cells_of_rows(path.name, header, cut, first=2, decimal=None)


SUFFIXES = (".csv", ".parquet", ".xlsx")


def find_table(folder: Path, name: str, problems: Problems, needed: bool = True) -> Path | None:
    """The file of one table: ``name.csv``, ``name.parquet`` or ``name.xlsx``, only one."""
    found = [folder / (name + end) for end in SUFFIXES if (folder / (name + end)).is_file()]
    if len(found) > 1:
        remedy = "Remove the one that is out of date."
        what = f"there is also {found[1].name}"
        problems.add("two files", found[0].name, what, remedy)
    if not found and needed:
        remedy = f"Add {name}.csv, {name}.parquet or {name}.xlsx to {folder}."
        problems.add("no file", f"{name}.csv", "no such file", remedy)
    return found[0] if found else None


def read_cells(path: Path, problems: Problems, layout: Layout = AS_FOUND) -> Cells | None:
    """A table of text from a file; None if not even its columns can be read."""
    try:
        if path.suffix == ".parquet":
            return read_parquet(path)
        if path.suffix == ".xlsx":
            return read_workbook(path, problems)
        return read_csv(path, problems, layout)
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())[:200]
        remedy = "Write it again, with one text or number per cell."
        problems.add("unreadable", path.name, f"cannot be read as parquet ({reason})", remedy)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        remedy = "Check the file and its permissions."
        problems.add("unreadable", path.name, f"cannot be read ({error})", remedy)
    return None
