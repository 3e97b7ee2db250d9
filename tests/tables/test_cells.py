from __future__ import annotations

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsage.errors import DataErrors
from fedsage.tables.cells import cells_of
from fedsage.tables.files import plain_header, read_csv, read_odd_csv
from fedsage.tables.problems import Problems
from fedsage.tables.tables import read_tables
from tests.tables.test_tables import FINE, folder_of

cell = st.text(
    st.one_of(
        st.sampled_from(',"\n\r\t ;éß'), st.characters(codec="utf-8", exclude_characters="\0")
    ),
    max_size=6,
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(cell, cell, cell), max_size=6))
@example([("", "", ""), ('"', "a\nb", " ")])
@example([("\r", "x", "")])
def test_arrow_and_python_read_the_same_cells(rows: list[tuple[str, str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        [("a", "b", "c"), *rows]
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(text.getvalue().encode())
        assert plain_header(path) == ["a", "b", "c"]
        problems = Problems("t")
        fast, slow = read_csv(path, problems), read_odd_csv(path, problems)
        assert fast and slow and not problems.found
        assert fast.num_rows == slow.num_rows == len(rows)
        for name in "abc":
            assert fast.columns[name].to_pylist() == slow.columns[name].to_pylist()
        for row in range(len(rows)):
            assert fast.row_name(row) == slow.row_name(row)


@pytest.mark.slow
@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400), st.sampled_from(sorted(FINE)))
def test_whatever_bytes_come_tables_are_read_or_refused(
    noise: bytes, at: int, name: str
) -> None:
    with TemporaryDirectory() as place:
        folder = folder_of(Path(place))
        text = FINE[name].encode()
        (folder / name).write_bytes(text[:at] + noise + text[at:])
        try:
            read_tables(folder)
        except DataErrors as errors:
            assert errors.lines and errors.count >= 1


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_whatever_bytes_a_parquet_file_holds_it_is_refused(noise: bytes) -> None:
    with TemporaryDirectory() as place:
        folder = folder_of(Path(place))
        (folder / "nodes.csv").unlink()
        (folder / "nodes.parquet").write_bytes(noise)
        with pytest.raises(DataErrors, match="cannot be read"):
            read_tables(folder)


def test_parquet_columns_of_any_type_become_text() -> None:
    table = pa.table(
        {
            "whole": pa.array([1, None]),
            "real": pa.array([0.1, 1e300]),
            "word": pa.array([" a ", None]).dictionary_encode(),
            "large": pa.array(["x", "y"], pa.large_string()),
            "flag": pa.array([True, False]),
        }
    )
    cells = {name: column.to_pylist() for name, column in cells_of(table, "t").columns.items()}
    assert cells["whole"] == ["1", ""] and [float(v) for v in cells["real"]] == [0.1, 1e300]
    assert cells["word"] == ["a", ""] and cells["large"] == ["x", "y"]
    assert cells["flag"] == ["true", "false"]


def test_a_parquet_column_of_lists_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "nodes.csv").unlink()
    table = pa.table({"id": ["a"], "age": pa.array([[1, 2]])})
    pa.parquet.write_table(table, folder / "nodes.parquet")
    with pytest.raises(DataErrors, match=r"nodes\.parquet: cannot be read"):
        read_tables(folder)
