"""Links with weights and times, from tables to answers: of the run, of a day, for new rows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import fedsage as fs
from tests.cli.conftest import Call

HOSPITALS = Path(__file__).parents[2] / "examples" / "hospitals"


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ward") / "run"
    settings = {"model": {"widths": [8, 4]}, "classifier": {"rounds_c": 2}}
    fs.run(fs.load_owners(HOSPITALS), "fedsage+copy", settings=settings, out=folder)
    return folder


def rows(path: Path) -> dict[str, dict[str, str]]:
    return {row["id"]: row for row in csv.DictReader(path.read_text().splitlines())}


@pytest.mark.slow
def test_answers_on_weighted_links_are_those_of_the_run(
    ward: Path, fedsage: Call, tmp_path: Path
) -> None:
    out, wanted = tmp_path / "a.csv", ward / "owners" / "hospital-0" / "predictions.csv"
    whose = ("--model", str(ward), "--owner", "hospital-0", "--out", str(out))
    assert fedsage("predict", *whose).code == 0
    assert out.read_text() == wanted.read_text()
    data = str(HOSPITALS / "hospital-0")
    assert fedsage("predict", *whose, "--data", data).code == 0
    assert out.read_text() == wanted.read_text()


def test_answers_as_of_a_day_rest_on_the_links_of_that_day(
    ward: Path, fedsage: Call, tmp_path: Path
) -> None:
    out, wanted = tmp_path / "a.csv", ward / "owners" / "hospital-0" / "predictions.csv"
    whose = ("--model", str(ward), "--owner", "hospital-0", "--out", str(out))
    assert fedsage("predict", *whose, "--as-of", "2030-01-01").code == 0
    assert out.read_text() == wanted.read_text()
    links = csv.DictReader(
        (HOSPITALS / "hospital-0" / "edges.csv").read_text().splitlines(), delimiter=";"
    )
    near: dict[str, set[str]] = {}
    for link in links:
        if link["since"] <= "2024-03-01" and link["from"] != link["to"]:
            near.setdefault(link["from"], set()).add(link["to"])
            near.setdefault(link["to"], set()).add(link["from"])
    assert fedsage("predict", *whose, "--as-of", "01.03.2024").code == 0
    found = rows(out)
    assert {one: int(row["neighbors"]) for one, row in found.items()} == {
        one: len(near.get(one, ())) for one in found
    }
    assert out.read_text() != wanted.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [(("--as-of", "soon"), "is not a date"), (("--as-of", "2024-03-01", "--new", "."), "past")],
)
def test_what_cannot_be_asked_as_of_a_day_is_said(
    words: tuple[str, ...], says: str, ward: Path, fedsage: Call, tmp_path: Path
) -> None:
    done = fedsage(
        "predict",
        "--model",
        str(ward),
        "--owner",
        "hospital-0",
        "--out",
        str(tmp_path / "a.csv"),
        *words,
    )
    assert done.code == 2 and says in done.err


def test_new_rows_bring_weights_and_one_without_is_named(
    ward: Path, fedsage: Call, tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "nodes.csv").write_text(
        "patient,admitted,age,temperature,visits,smoker,arrival\n"
        "n-1,2024-06-22,34,38.5,2,no,ambulance\n"
    )

    def asked(first: str, second: str) -> tuple[str, str]:
        (folder / "edges.csv").write_text(
            f"from,to,room,weight\nn-1,h0-003,1,{first}\nn-1,h0-004,1,{second}\n"
        )
        out = tmp_path / "a.csv"
        done = fedsage(
            "predict",
            "--model",
            str(ward),
            "--owner",
            "hospital-0",
            "--new",
            str(folder),
            "--out",
            str(out),
        )
        assert done.code == 0, done.err
        return out.read_text(), done.err

    assert asked("9", "0.1")[0] == asked("9", "0.1")[0] != asked("0.1", "9")[0]
    assert rows(tmp_path / "a.csv")["n-1"]["neighbors"] == "2"
    assert "'0' is not a weight" in asked("2", "0")[1]
    assert rows(tmp_path / "a.csv")["n-1"]["neighbors"] == "1"
