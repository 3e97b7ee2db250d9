"""Three hospitals with the mess that real exports have, from export to predictions."""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from fedsage.rng import generator
from fedsage.tables.schema import read_schema
from fedsage.tables.tables import read_tables
from tests.cli.conftest import Call

DIAGNOSES = ("Asthma", "Fraktur", "Grippe")
RARE = ("Lepra", "Pest", "Tollwut")
NUM = 150


def export(folder: Path, k: int) -> None:
    """One hospital's tables: a CSV file of a German Excel, a workbook, or a database."""
    draws = generator(k, "messy")
    ill = draws.integers(3, size=NUM)
    ids = ["A1009" if i == 3 else f"{'ABC'[k]}{1000 + 3 * i}" for i in range(NUM)]
    truth = (["ja", "nein"], ["yes", "no"], ["1", "0"])[k]
    comma = k == 0

    def number(value: float, digits: int = 1) -> str:
        text = f"{value:.{digits}f}"
        return text.replace(".", ",") if comma else text

    def sometimes(text: str, share: float, *empty: str) -> str:
        return str(draws.choice(empty)) if draws.random() < share else text

    names = ["patient_id", "patient_nr", "Aufnahme", "age", "temperature", "visits", "smoker",
             "ward", "note", "icd", "pulse", "constant", "diagnosis"]  # fmt: skip
    rows = []
    for i in range(NUM):
        c = int(ill[i])
        day = f"{1 + i % 28:02}.{1 + i % 12:02}.2023"
        iso = f"2023-{1 + i % 12:02}-{1 + i % 28:02}"
        wards = ("Nord", "Süd", "Notaufnahme", ("Ost", "West", "Mitte")[k])
        rows.append([
            ids[i], str(50_000 + 7 * i),
            sometimes(day if k < 2 else f"{iso} 08:30", 0.05, "NULL"),
            sometimes(str(int(20 + 15 * c + draws.normal() * 6)), 0.04, "NA", "", "none"),
            sometimes(number(36.6 + 0.9 * (c == 2) + 0.4 * draws.normal()), 0.1, "NaN", "?"),
            str(int(draws.pareto(1.1) * 4)),
            sometimes(str(draws.choice(truth)), 0.1, "NA"),
            "Isolation" if i < 3 else sometimes(str(draws.choice(wards)), 0.1, "", "none"),
            f"Patient {ids[i]} kam mit Beschwerden",
            ("J45", "S52", "J10")[c],
            "-9" if draws.random() < 0.1 else str(int(60 + 20 * (c == 2) + 5 * draws.normal())),
            "1",
            RARE[k] if i < 2 else sometimes(DIAGNOSES[c], 0.1, "", "NA"),
        ])  # fmt: skip
    pairs = draws.integers(NUM, size=(500, 2))
    met = [
        [ids[a], ids[b], number(1 + draws.random(), 2), f"2023-{1 + a % 12:02}-01", "R7"]
        for a, b in pairs
        if ill[a] == ill[b] and a != b
    ]
    folder.mkdir(parents=True)
    write(folder, k, "nodes", [names, *rows])
    write(folder, k, "edges", [["from", "to", "weight", "since", "room"], *met])


def write(folder: Path, k: int, name: str, table: list[list[str]]) -> None:
    """A table as the program of one hospital writes it."""
    if k == 0:
        with (folder / f"{name}.csv").open("w", newline="", encoding="cp1252") as file:
            csv.writer(file, delimiter=";").writerows(table)
    elif k == 1:
        book = pytest.importorskip("openpyxl").Workbook()
        for row in table:
            book.active.append([float(cell) if cell.isdigit() else cell for cell in row])
        book.save(folder / f"{name}.xlsx")
    else:
        pytest.importorskip("sqlalchemy")
        with sqlite3.connect(folder / "ward.db") as ward:
            ward.execute(f"create table {name} ({', '.join(f'[{one}]' for one in table[0])})")
            marks = ", ".join("?" for _ in table[0])
            ward.executemany(f"insert into {name} values ({marks})", table[1:])
        ward.close()
        (folder / "source.toml").write_text(
            'url = "sqlite:///ward.db"\nnodes = "select * from nodes"\n'
            'edges = "select * from edges"\n'
        )


@pytest.mark.slow
def test_messy_exports_are_trained_on_after_two_edits_that_check_asks_for(
    fedsage: Call,
) -> None:
    owners = ["one", "two", "three"]
    for k, name in enumerate(owners):
        export(Path("h") / name, k)
        if k == 0:  # the file's alphabet is asked for: it cannot be known
            done = fedsage("data", "init", "h/one", "--out", "one.toml")
            assert done.code == 2 and 'put encoding = "cp1252" into source.toml' in done.err
            Path("h/one/source.toml").write_text('encoding = "cp1252"')
        done = fedsage("data", "init", f"h/{name}", "--out", f"{name}.toml")
        assert done.code == 0, done.err
        assert "id: 'patient_id', which links refer to" in done.out
        assert "label: 'diagnosis', by its name" in done.out
        assert "patient_nr: ignored, it looks like an id" in done.out
        assert "icd: ignored, it gives the class away" in done.out
        assert "weight of links: 'weight'" in done.out and "time of links: 'since'" in done.out
        assert "links: room ignored" in done.out and "--empty -9" in done.out
        assert read_tables(f"h/{name}", read_schema(f"{name}.toml")).num_nodes == NUM
        text = Path(f"{name}.toml").read_text()
        assert not any(word in text for word in (*RARE, "Isolation"))
    schemas = [f"{name}.toml" for name in owners]
    done = fedsage("data", "merge", *schemas, "--out", "h/schema.toml")
    assert done.code == 0, done.err
    schema = read_schema("h/schema.toml")
    assert schema.class_names == (*DIAGNOSES, "other") and schema.unlisted_classes == "other"
    kinds = {feature.name: feature.kind for feature in schema.columns}
    assert kinds == {
        "Aufnahme": "date", "age": "number", "temperature": "number", "visits": "count",
        "smoker": "boolean", "ward": "category", "pulse": "number", "constant": "number",
    }  # fmt: skip
    ward = next(feature for feature in schema.columns if feature.name == "ward")
    assert set(ward.categories) == {
        "Nord", "Süd", "Notaufnahme", "Ost", "West", "Mitte", "unknown", "other",
    }  # fmt: skip

    done = fedsage("data", "check", "h")
    assert done.code == 0 and "h is fine: 3 owners, 450 nodes" in done.out
    assert "Column constant has the same value in all rows of one, three and two" in done.err
    assert "1 node id is at more than one owner, for example 'A1009'" in done.err
    assert "Class other has 6 nodes" in done.err
    assert (
        "column pulse is -9 in" in done.err
        and "add \"-9\" to 'empty' in the schema" in done.err
    )
    path = Path("h/schema.toml")
    text = path.read_text().replace('"NULL", ', '"NULL", "-9", ')  # the first edit
    before = 'pulse = { kind = "number", scaling = "standard", missing = "refused" }'
    assert before in text
    text = text.replace(before, 'pulse = { kind = "number", missing = "mean" }')  # the second
    path.write_text(text)
    done = fedsage("data", "check", "h")
    assert done.code == 0 and "pulse" not in done.err, done.err

    again = [("data", "init", f"h/{name}", "--out", f"{name}.toml", "--force", "--empty", "-9")
             for name in owners]  # fmt: skip
    assert all(fedsage(*words).code == 0 for words in again)
    assert fedsage("data", "merge", *schemas, "--out", "h/schema.toml", "--force").code == 0
    done = fedsage("data", "check", "h")  # without any edit, as init says
    assert done.code == 0 and "pulse" not in done.err, done.err

    words = ("--set", "classifier.rounds_c=3", "--set", "model.widths=[16,8]", "--out", "run")
    done = fedsage("run", "--dataset", "h", "--method", "fedsage", *words)
    assert done.code == 0, done.err
    assert "Warning: Column constant" in done.err
    for name in owners:
        with Path(f"run/owners/{name}/predictions.csv").open(encoding="utf-8") as file:
            answers = list(csv.DictReader(file))
        assert len(answers) == NUM
        assert {row["predicted"] for row in answers} <= {*DIAGNOSES, "other"}
    tables = read_tables("h/one")
    assert np.bincount(tables.y[tables.y >= 0], minlength=4)[3] == 2  # the rare ones
