"""One column of a table while it is checked: its texts, numbers, and which cells are empty."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from fedsage.errors import nearest
from fedsage.shapes import Array
from fedsage.tables.cells import Cells
from fedsage.tables.kinds.numbers import LARGEST
from fedsage.tables.problems import Problems, all_alike, distinct_in, note_cells

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d*)(,\d+)?([eE][+-]?\d+)?", re.ASCII)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+", re.ASCII)
Words = Callable[[int], tuple[str, str]]  # what is wrong in a row, and the remedy


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column of some cells, and where its problems are noted."""

    cells: Cells
    name: str
    problems: Problems
    empty: Bool[Array, " rows"]

    @property
    def text(self) -> pa.ChunkedArray:
        """The cells as text."""
        return self.cells.columns[self.name]

    @property
    def filled(self) -> Bool[Array, " rows"]:
        """Which cells are not empty."""
        return ~self.empty

    def seen(self, row: int) -> str:
        """What a cell holds, short enough to show."""
        return self.cells.seen(row, self.name)

    def places(self, names: Sequence[str]) -> Int[Array, " rows"]:
        """The position of each cell in ``names``; -1 if it is not one of them."""
        return places(self.text, names)

    def distinct(self) -> tuple[list[str], Int[Array, " filled"]]:
        """The different texts of the cells that are not empty, and which one each holds."""
        return distinct_in(self.cells, self.name, np.flatnonzero(self.filled))

    def counts(self) -> dict[str, int]:
        """How many cells hold each text, except empty ones."""
        texts, codes = self.distinct()
        counts = np.bincount(codes, minlength=len(texts)).tolist()
        return dict(zip(texts, counts, strict=True))

    def texts(self) -> list[str]:
        """The cells one by one; an empty text where a cell is empty."""
        return list(pc.if_else(pa.array(self.empty), "", self.text).to_pylist())

    def numbers(self) -> Float[Array, " rows"]:
        """The numbers in the column; NaN where a cell is empty or holds something else."""
        filled = pc.if_else(pa.array(self.empty), None, self.text)
        comma = self.cells.decimal == ","
        if not comma:
            try:
                return pc.cast(filled, pa.float64()).to_numpy().astype(np.float64)
            except pa.ArrowInvalid:
                comma = self.cells.decimal is None and self.has_commas()
        read = number_with_comma if comma else number_in
        return np.array([read(text) if text else np.nan for text in filled.to_pylist()], float)

    def has_commas(self) -> bool:
        """Whether every number has a decimal comma, and not all may separate thousands."""
        texts = self.distinct()[0]
        return any("," in text and not THOUSANDS.fullmatch(text) for text in texts) and all(
            COMMA.fullmatch(text) or not any(c.isdigit() for c in text) for text in texts
        )

    def note(
        self,
        bad: Bool[Array, " rows"],
        kind: str,
        words: Words,
        alike: Callable[[str], str] = str,
    ) -> None:
        """Note the bad cells."""
        note_cells(self.cells, self.name, bad, kind, words, self.problems, alike)

    def refuse_empty(self, remedy: str) -> None:
        """Note the cells that must not be empty but are."""
        self.note(self.empty, "empty cell", lambda _: ("is empty", remedy), all_alike)

    def refuse_unknown(
        self, bad: Bool[Array, " rows"], kind: str, known: Sequence[str]
    ) -> None:
        """Note the cells whose words are not in the schema."""

        def words(row: int) -> tuple[str, str]:
            hint = nearest(self.text[row].as_py(), known[:1000]).strip()
            remedy = f"{hint} Correct it, or add it to every owner's schema."
            return f"{self.seen(row)} is not a known {kind}", remedy

        self.note(bad, f"unknown {kind}", words)

    def checked_numbers(self) -> Float[Array, " rows"]:
        """The numbers in the column; notes what is none."""
        values = self.numbers()
        huge = np.abs(np.nan_to_num(values)) > LARGEST
        huge[huge] = [bool(NUMBER.fullmatch(t.as_py())) for t in self.text.filter(huge)]
        wrong = ~np.isfinite(values) & self.filled & ~huge  # "inf" is a word, "1e999" is not
        self.note(wrong, "not a number", self.not_a_number, without_digits)
        self.note(
            huge,
            "too large",
            lambda row: (f"{self.seen(row)} is too large", "Give it in a larger unit."),
            all_alike,
        )
        return values

    def not_a_number(self, row: int) -> tuple[str, str]:
        """What is wrong with a cell that should hold a number."""
        text = self.text[row].as_py()
        if has_comma(text):
            remedy = 'Write a decimal point, or, for CSV, put decimal = "," into source.toml.'
        elif not any(c.isdigit() for c in text):
            remedy = (
                "Correct it, or add it to 'empty' in the schema if it stands for an empty cell."
            )
        else:
            remedy = (
                "Write a number like -1.5 or 2e3: a decimal point, no unit, no thousands "
                "separator."
            )
        return f"{self.seen(row)} is not a number", remedy


def column_of(
    cells: Cells,
    name: str,
    problems: Problems,
    empty: Collection[str] = (),
    kept: Sequence[str] = (),
) -> Column:
    """A column; texts in ``empty`` count as empty cells unless they are ``kept`` words."""
    text = cells.columns[name]
    marks = pa.array(sorted({"", *(mark.lower() for mark in empty)}), pa.string())
    found = pc.is_in(pc.utf8_lower(text), value_set=marks)
    if kept:
        found = pc.and_not(found, pc.is_in(text, value_set=pa.array(kept, pa.string())))
    return Column(cells, name, problems, np.asarray(found.to_numpy(), dtype=bool))


def places(column: pa.ChunkedArray, names: Sequence[str]) -> Int[Array, " rows"]:
    """The position of each cell in ``names``; -1 if it is not one of them."""
    found = pc.index_in(column, value_set=pa.array(names, pa.string()))
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


def number_in(text: str) -> float:
    """The number in a text, else NaN; stricter than ``float``, which accepts 1_000."""
    return float(text) if NUMBER.fullmatch(text) else float("nan")


def number_with_comma(text: str) -> float:
    """The same where numbers have a decimal comma: 1.234,5."""
    return (
        number_in(text.replace(".", "").replace(",", "."))
        if COMMA.fullmatch(text)
        else (float("nan"))
    )


def without_digits(text: str) -> str:
    """Words differ one by one; numbers with a comma are alike, and all others with digits."""
    if not any(c.isdigit() for c in text):
        return text
    return "0,0" if has_comma(text) else "0"


def has_comma(text: str) -> bool:
    """Whether a text is a number with a decimal comma."""
    return "," in text and bool(COMMA.fullmatch(text))
