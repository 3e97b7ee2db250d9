from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsage.errors import DataError
from fedsage.rng import generator
from fedsage.tables.guess import Guess, guess_schema
from fedsage.tables.schema import Schema, read_schema
from fedsage.tables.schema_file import write_schema
from fedsage.tables.tables import read_tables
from fedsage.tables.uses import Named

NUM = 60


def write(folder: Path, columns: dict[str, list[str]], links: str = "", id: str = "id") -> Path:
    """A folder of tables whose cells hold neither commas nor quotes."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(row) for row in rows)]
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    one, two = columns[id][:2]
    (folder / "edges.csv").write_text(links or f"source,target\n{one},{two}\n")
    return folder


def ids(prefix: str = "p") -> list[str]:
    return [f"{prefix}{i}" for i in range(NUM)]


def kinds(guess: Guess) -> dict[str, str]:
    return {feature.name: feature.kind for feature in guess.schema.columns}


def test_kinds_are_guessed_from_the_cells(tmp_path: Path) -> None:
    draws = generator(0, "guess")
    columns = {
        "id": ids(),
        "age": [str(20 + i % 50) for i in range(NUM)],
        "visits": [str(int(v)) for v in draws.pareto(1, NUM) * 3],
        "smoker": ["ja", "nein", "NA"] * 20,
        "admitted": [f"{1 + i % 28:02}.03.2024" for i in range(NUM)],
        "ward": ["north", "south"] * 30,
        "note": [f"text number {i}" for i in range(NUM)],
        "nothing": ["NULL"] * NUM,
    }
    guess = guess_schema(write(tmp_path, columns))
    assert kinds(guess) == {
        "age": "number", "visits": "count", "smoker": "boolean", "admitted": "date",
        "ward": "category",
    }  # fmt: skip
    assert guess.schema.ignored == ("note", "nothing")
    missing = {f.name: f.missing for f in guess.schema.columns}
    assert missing["smoker"] == "mean" and missing["age"] == "refused"
    assert 'kind = "text"' in guess.seen["note"] and guess.seen["nothing"] == "it is empty"


def test_words_of_few_patients_are_not_shown(tmp_path: Path) -> None:
    wards = ["north"] * 30 + ["south"] * 23 + ["isolation"] * 7
    label = ["flu"] * 30 + ["cold"] * 25 + ["plague"] * 5
    nodes = {
        "id": ids(),
        "ward": wards,
        "age": [str(i % 9) for i in range(NUM)],
        "label": label,
    }
    guess = guess_schema(write(tmp_path, nodes))
    ward = guess.schema.columns[0]
    assert ward.categories == ("north", "south", "other") and ward.unlisted == "other"
    assert guess.schema.class_names == ("cold", "flu", "other")
    write_schema(guess.schema, tmp_path / "schema.toml", guess.notes)
    text = (tmp_path / "schema.toml").read_text()
    assert "isolation" not in text and "plague" not in text
    tables = read_tables(tmp_path)
    assert np.bincount(tables.codes[:, 0]).tolist() == [30, 23, 7]
    assert np.bincount(tables.y).tolist() == [25, 30, 5]
    assert "isolation" in guess_schema(tmp_path, fewest=7).schema.columns[0].categories


def test_columns_with_a_meaning_are_found_and_explained(tmp_path: Path) -> None:
    columns = {
        "row": [str(i) for i in range(NUM)],
        "patient_id": [str(70_000 + 7 * i) for i in range(NUM)],
        "age": [str(i % 40) for i in range(NUM)],
        "Diagnosis": ["flu", "cold", "flu"] * 20,
    }
    links = "first,second,since\n70000,70007,2020\n70014,70007,2021\n"
    guess = guess_schema(write(tmp_path, columns, links, "patient_id"))
    schema = guess.schema
    assert (schema.id, schema.label) == ("patient_id", "Diagnosis")
    assert (schema.source, schema.target) == ("first", "second")
    assert schema.ignored == ("row",) and schema.ignored_in_edges == ("since",)
    assert any("patient_id" in said and "--id-column" in said for said in guess.said)
    assert any("Diagnosis" in said and "--label-column" in said for said in guess.said)
    assert any("--source-column" in said for said in guess.said)
    assert any("since ignored" in said for said in guess.said)
    write_schema(schema, tmp_path / "schema.toml")
    assert read_schema(tmp_path / "schema.toml") == schema
    tables = read_tables(tmp_path)
    assert tables.ids[1] == "70007" and tables.links.tolist() == [[0, 2], [1, 1]]


def test_columns_can_be_named(tmp_path: Path) -> None:
    columns = {"a": ids(), "b": ids("q"), "c": ["x", "y"] * 30, "age": ["1", "2", "5"] * 20}
    folder = write(tmp_path, columns, "u,v\nq1,q2\n", "b")
    schema = guess_schema(folder, Named("b", "c", "v", "u")).schema
    assert (schema.id, schema.label, schema.source, schema.target) == ("b", "c", "v", "u")
    with pytest.raises(DataError, match="no column 'pid' to take ids from"):
        guess_schema(folder, Named(id="pid"))


def test_without_an_id_one_is_asked_for(tmp_path: Path) -> None:
    columns = {"ward": ["x", "y"] * 30, "age": ["1", "2", "5"] * 20}
    folder = write(tmp_path, columns, "source,target\nx1,x2\n", "ward")
    with pytest.raises(DataError, match="Name one with --id-column"):
        guess_schema(folder)


def test_columns_that_give_the_class_away_are_ignored_and_named(tmp_path: Path) -> None:
    label = ["flu", "cold", "asthma"] * 20
    code = {"flu": "J10", "cold": "J00", "asthma": "J45"}
    columns = {
        "id": ids(),
        "patient_nr": [str(9000 + 3 * i) for i in range(NUM)],
        "copy": ids(),
        "icd": [code[c] for c in label],
        "stage": [str(len(c)) for c in label],
        "sex": ["f", "m"] * 30,
        "label": label,
    }
    guess = guess_schema(write(tmp_path, columns))
    assert list(kinds(guess)) == ["sex"]
    assert guess.schema.ignored == ("patient_nr", "copy", "icd", "stage")
    assert guess.seen["patient_nr"] == "it looks like an id"
    assert guess.seen["copy"] == "it repeats the id"
    assert "gives the class away: it tells it in 100.0% of the rows" in guess.seen["icd"]


def test_ids_are_known_by_name_in_any_case_and_by_even_steps(tmp_path: Path) -> None:
    draws = generator(1, "guess")
    columns = {
        "id": ids(),
        "MRN": [str(v) for v in draws.permutation(90_000)[:NUM]],
        "Fallnummer": [str(v) for v in draws.permutation(90_000)[:NUM]],
        "slot": [str(400 + 25 * i) for i in range(NUM)],
        "cells": [str(v) for v in draws.permutation(90_000)[:NUM]],
    }
    guess = guess_schema(write(tmp_path, columns))
    assert guess.schema.ignored == ("MRN", "Fallnummer", "slot")
    assert list(kinds(guess)) == ["cells"]


def test_what_may_mean_an_empty_cell_is_told_and_can_be_said(tmp_path: Path) -> None:
    pulse = [("-9", "-99", "60")[i % 4] if i % 4 < 2 else str(60 + i) for i in range(NUM)]
    columns = {"id": ids(), "pulse": pulse, "smoker": ["ja", "nein", "k.A."] * 20}
    folder = write(tmp_path, columns)
    guess = guess_schema(folder)
    assert kinds(guess) == {"pulse": "number", "smoker": "category"}
    assert "-9 in 15 rows is far from all others: if it means an empty cell, init again with " \
        "--empty -9" in guess.seen["pulse"]  # fmt: skip
    assert "--empty -99" in guess.seen["pulse"]
    assert guess.seen["smoker"].endswith(
        "yes, no and 'k.A.': if it means an empty cell, init again with --empty k.A."
    )
    guess = guess_schema(folder, empty=("-9", "-99", "K.A."))
    assert kinds(guess) == {"pulse": "number", "smoker": "boolean"}
    assert [f.missing for f in guess.schema.columns] == ["mean", "mean"]
    write_schema(guess.schema, folder / "schema.toml")
    assert np.isnan(read_tables(folder).numbers).sum(axis=0).tolist() == [30, 20]


cells = {
    "numbers": st.sampled_from(["1", "2.5", "-3", "1e3", "0", "1e39", "-9"]),
    "counts": st.integers(0, 1000).map(str),
    "words": st.sampled_from(["north", "south", "none", "other", "unknown", "é", "Ja"]),
    "truth": st.sampled_from(["yes", "no", "1", "0", "TRUE"]),
    "dates": st.sampled_from(["2024-01-31", "31.01.2024", "01/02/2024", "2024-01-31 10:00"]),
    "empty": st.sampled_from(["", "NA", "NaN", "null", "None", "-", "?"]),
    "texts": st.text("abc xyz", max_size=8),
}
pools = st.lists(st.sampled_from(sorted(cells)), min_size=1, max_size=2, unique=True)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(8, 20), st.integers(1, 8))
def test_what_init_writes_check_accepts(data: st.DataObject, rows: int, fewest: int) -> None:
    columns = {"id": [f"p{i}" for i in range(rows)]}
    for k in range(data.draw(st.integers(1, 4))):
        pool = st.one_of(*(cells[name] for name in data.draw(pools)))
        columns[f"c{k}"] = data.draw(st.lists(pool, min_size=rows, max_size=rows))
    columns["label"] = data.draw(st.lists(cells["words"] | cells["empty"], min_size=rows,
                                          max_size=rows))  # fmt: skip
    with TemporaryDirectory() as place:
        folder = write(Path(place), columns)
        try:
            guess = guess_schema(folder, fewest=fewest)
        except DataError as error:
            assert "no column that could be a feature" in str(error)
            return
        write_schema(guess.schema, folder / "schema.toml", guess.notes)
        tables = read_tables(folder)
        assert tables.num_nodes == rows and tables.schema == guess.schema
        shown(guess.schema, columns, fewest)


def shown(schema: Schema, columns: dict[str, list[str]], fewest: int) -> None:
    """Enough rows have each word in the schema, but for the two with a meaning."""
    for feature in schema.columns:
        for word in set(feature.categories) - {"other", "unknown"}:
            assert [cell.strip() for cell in columns[feature.name]].count(word) >= fewest
    for word in set(schema.class_names) - {"other"}:
        assert columns["label"].count(word) >= fewest
