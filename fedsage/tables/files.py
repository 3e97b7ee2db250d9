"""The files of one owner's tables: which there are, and how each is read."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa

from fedsage.tables.cells import AS_FOUND, Cells, Layout, read_parquet
from fedsage.tables.csv_file import read_csv
from fedsage.tables.problems import Problems
from fedsage.tables.workbook import read_workbook

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
