"""An Excel workbook as cells of text, through python-calamine (the extra ``excel``)."""

from __future__ import annotations

from pathlib import Path

from fedsage.errors import DataError
from fedsage.tables.cells import Cells, cells_of_rows
from fedsage.tables.problems import Problems


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
