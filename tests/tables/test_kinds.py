from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fedsage.data.npz import content_sha256
from fedsage.errors import DataErrors
from fedsage.tables.kinds.words import hashed
from fedsage.tables.schema import read_schema
from fedsage.tables.tables import Tables, column_sums, graph_of, pooled_scale, read_tables
from fedsage.tables.write import write_tables

EDGES = "source,target\na,b\n"


def read(folder: Path, features: str, *rows: str, top: str = "") -> Tables:
    """Tables of one feature, f, with ids a, b, c, …."""
    folder.mkdir(exist_ok=True)
    (folder / "schema.toml").write_text(f"classes = []\n{top}\n[features]\nf = {features}\n")
    cells = "".join(f'{chr(97 + i)},"{row}"\n' for i, row in enumerate(rows))
    (folder / "nodes.csv").write_text(f"id,f\n{cells}")
    (folder / "edges.csv").write_text(EDGES)
    return read_tables(folder)


def x_of(tables: Tables) -> np.ndarray:
    x = graph_of(tables, pooled_scale([tables])).x
    return np.asarray(x.toarray() if hasattr(x, "toarray") else x)


def test_a_count_is_the_logarithm_of_one_more(tmp_path: Path) -> None:
    tables = read(tmp_path, '{ kind = "count", scaling = "none" }', "0", "9", "99")
    expected = [[math.log(1)], [math.log(10)], [math.log(100)]]
    np.testing.assert_allclose(x_of(tables), expected, rtol=1e-6)
    with pytest.raises(DataErrors, match=r"'1\.5' is not a count; 2 cells are like this"):
        read(tmp_path, '{ kind = "count" }', "1.5", "-2", "3")


def test_a_range_takes_the_place_of_mean_and_deviation(tmp_path: Path) -> None:
    limits = '{ kind = "number", range = [0, 100], missing = "mean" }'
    tables = read(tmp_path, limits, "25", "", "1000", "-3")
    assert [float(one[0]) for one in column_sums(tables)] == [0.0, 0.0]  # nothing leaves
    np.testing.assert_allclose(x_of(tables), [[-0.5], [0.0], [1.0], [-1.0]])
    counts = read(tmp_path, '{ kind = "count", range = [0, 99] }', "0", "9", "99")
    np.testing.assert_allclose(x_of(counts), [[-1.0], [0.0], [1.0]], atol=1e-6)
    days = '{ kind = "date", range = ["2024-01-01", "2024-01-11"] }'
    dates = read(tmp_path, days, "2024-01-06", "2025-01-01")
    np.testing.assert_allclose(x_of(dates), [[0.0], [1.0]])
    for wrong in ("[5, 5]", "[1]", '["a", "b"]', "7"):
        with pytest.raises(DataErrors, match=r"\[0, 120\]"):
            read(tmp_path, f'{{ kind = "number", range = {wrong} }}', "1", "2")


def test_booleans_are_read_in_several_languages(tmp_path: Path) -> None:
    tables = read(tmp_path, '{ kind = "boolean" }', "Yes", "no", "TRUE", "0", "ja", "Nein")
    assert x_of(tables).ravel().tolist() == [1, 0, 1, 0, 1, 0]
    own = '{ kind = "boolean", yes = ["positiv"], no = ["negativ"] }'
    assert x_of(read(tmp_path, own, "positiv", "Negativ")).ravel().tolist() == [1, 0]
    with pytest.raises(DataErrors, match="'maybe' is neither yes nor no"):
        read(tmp_path, '{ kind = "boolean" }', "yes", "maybe")


def test_an_empty_boolean_is_the_share_of_yes_and_may_be_marked(tmp_path: Path) -> None:
    text = '{ kind = "boolean", missing = "indicator" }'
    tables = read(tmp_path, text, "yes", "no", "no", "NA", "yes", "no")
    x = x_of(tables)
    assert x[:, 0].tolist() == pytest.approx([1, 0, 0, 0.4, 1, 0])
    assert x[:, 1].tolist() == [0, 0, 0, 1, 0, 0]
    assert tables.schema.width_names == ("f", "f is empty")


def test_a_date_is_days_since_the_agreed_day(tmp_path: Path) -> None:
    text = '{ kind = "date", scaling = "none", since = "2020-01-01" }'
    dates = ("2020-01-01", "2020-01-02 12:00", "31.01.2020", "2019-12-31T00:00:00Z")
    tables = read(tmp_path, text, *dates, "2020-01-02T01:00:00+01:00")
    assert x_of(tables).ravel().tolist() == [0, 1.5, 30, -1, 1]
    with pytest.raises(DataErrors, match="'2020-02-30' is not a date; 2 cells are like this"):
        read(tmp_path, text, "2020-02-30", "01/02/2020")


def test_dates_with_slashes_need_a_format(tmp_path: Path) -> None:
    text = '{ kind = "date", scaling = "none", since = "2020-01-01", formats = ["%m/%d/%Y"] }'
    assert x_of(read(tmp_path, text, "02/01/2020", "2020-01-01")).ravel().tolist() == [31, 0]


@pytest.mark.parametrize(
    ("part", "start", "quarter"),
    [
        ("week", "2024-01-01", "2024-01-02 18:00"),  # a Monday
        ("day", "2024-05-05", "2024-05-05 06:00"),
        ("year", "2024-01-01", "2024-04-01"),
    ],
)
def test_cyclic_parts_turn_once_in_their_period(
    tmp_path: Path, part: str, start: str, quarter: str
) -> None:
    text = f'{{ kind = "date", cyclic = ["{part}"], missing = "mean" }}'
    x = x_of(read(tmp_path, text, start, quarter, ""))
    np.testing.assert_allclose(x[0, 1:], [0, 1], atol=0.02)
    np.testing.assert_allclose(x[1, 1:], [1, 0], atol=0.02)
    assert x[2, 1:].tolist() == [0, 0]


def test_words_of_a_text_fall_into_the_same_columns_everywhere(tmp_path: Path) -> None:
    text = '{ kind = "text", columns = 32, missing = "indicator" }'
    tables = read(tmp_path, text, "fever and cough", "Cough, FEVER and", "", "cough cough")
    x = x_of(tables)
    assert x.shape == (4, 33) and np.array_equal(x[0], x[1])
    np.testing.assert_allclose((x[:, :32] ** 2).sum(axis=1), [1, 1, 0, 1], rtol=1e-6)
    assert x[:, 32].tolist() == [0, 0, 1, 0]
    assert x[3].argmax() == hashed("cough", 32) == 13  # on every machine


def test_a_category_may_be_unknown_or_another(tmp_path: Path) -> None:
    more = 'missing = "unknown", unlisted = "other"'
    text = f'{{ kind = "category", categories = ["x", "y"], {more} }}'
    tables = read(tmp_path, text, "x", "y", "NULL", "zebra", "other", "unknown")
    assert tables.schema.width_names == ("f=x", "f=y", "f=unknown", "f=other")
    assert tables.codes.ravel().tolist() == [0, 1, 2, 3, 3, 2]


def test_a_word_that_is_a_category_is_not_empty(tmp_path: Path) -> None:
    text = '{ kind = "category", categories = ["none", "some"] }'
    assert read(tmp_path, text, "none", "some").codes.ravel().tolist() == [0, 1]
    with pytest.raises(DataErrors, match="line 2, column f: is empty"):
        read(tmp_path, text, "None", "some")


def test_what_is_empty_is_a_setting_of_the_schema(tmp_path: Path) -> None:
    text = '{ kind = "number", scaling = "none", missing = "mean" }'
    x = x_of(read(tmp_path, text, "1", "-9", "3", "missing", top='empty = ["-9", "Missing"]'))
    assert x.ravel().tolist() == [1, 2, 3, 2]
    with pytest.raises(DataErrors, match="'NA' is not a number"):
        read(tmp_path, text, "1", "NA", top="empty = []")


@pytest.mark.parametrize("missing", ["refused", "mean", "indicator"])
@pytest.mark.parametrize("kind", ["number", "count", "boolean", "date"])
def test_every_kind_refuses_fills_or_marks_empty_cells(
    tmp_path: Path, kind: str, missing: str
) -> None:
    cells = ("2020-01-01", "2020-01-03", "") if kind == "date" else ("1", "0", "")
    text = f'{{ kind = "{kind}", missing = "{missing}" }}'
    if missing == "refused":
        with pytest.raises(DataErrors, match=r'line 4, column f: is empty. .*missing = "mean"'):
            read(tmp_path, text, *cells)
        return
    tables = read(tmp_path, text, *cells)
    x = x_of(tables)
    assert x[2, 0] == pytest.approx(x[:2, 0].mean())
    assert x.shape[1] == (2 if missing == "indicator" else 1) == tables.schema.num_features
    if missing == "indicator":
        assert x[:, 1].tolist() == [0, 0, 1]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_every_kind_survives_its_tables(tmp_path: Path, format: str) -> None:
    (tmp_path / "schema.toml").write_text(
        """classes = ["p", "q", "other"]
id = "patient"
source = "from"
target = "to"
unlisted_classes = "other"
[features]
n = { kind = "number", missing = "indicator" }
c = { kind = "count", missing = "mean" }
b = { kind = "boolean", missing = "mean" }
d = { kind = "date", cyclic = ["week", "day"], missing = "mean" }
w = { kind = "category", categories = ["x"], missing = "unknown", unlisted = "other" }
t = { kind = "text", columns = 16, missing = "indicator" }
"""
    )
    (tmp_path / "nodes.csv").write_text(
        "patient;n;c;b;d;w;t;label\n"
        "a;1,5;3;yes;2024-02-29 13:37:11;x;fever, cough;p\n"
        "b;NA;1000000;no;29.02.2024;zebra;;rare\n"
        "c;-2;;;;;a b c;\n"
    )
    (tmp_path / "edges.csv").write_text("from;to\na;b\n")
    tables = read_tables(tmp_path)
    write_tables(tables, tmp_path / "again", format)  # type: ignore[arg-type]
    again = read_tables(tmp_path / "again")
    assert again.schema == read_schema(tmp_path / "schema.toml")
    one, two = (graph_of(t, pooled_scale([t])) for t in (tables, again))
    assert content_sha256(one) == content_sha256(two)
    nodes = np.array([2, 0])
    part = graph_of(tables.induced(nodes), pooled_scale([tables]))
    assert content_sha256(part) == content_sha256(one.induced(nodes))


BAD = {
    'kind = "date", since = "soon"': "features.f.since: is 'soon'. Write a day like",
    'kind = "date", cyclic = ["month"]': "features.f.cyclic: 'month' is not known. Write some",
    'kind = "text", columns = 0': "features.f.columns: is 0. Write a whole number from 1",
    'kind = "number", missing = "unknown"': 'Write "refused", "mean" or "indicator".',
    'kind = "category", categories = ["a"], unlisted = "x"': 'Write "refused" or "other".',
    'kind = "boolean", scaling = "none"': "unknown key 'features.f.scaling'",
    'kind = "colour"': 'Write { kind = "..." } with one of boolean, category, count, date',
}


@pytest.mark.parametrize("text", BAD)
def test_a_setting_that_a_kind_does_not_have_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataErrors) as caught:
        read(tmp_path, f"{{ {text} }}", "1")
    assert BAD[text] in str(caught.value)
