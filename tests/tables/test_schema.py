from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsage.errors import DataErrors
from fedsage.tables.problems import Problems
from fedsage.tables.schema import (
    Feature,
    Schema,
    read_schema,
    schema_content,
    schema_of,
)
from fedsage.tables.schema_file import schema_text, write_schema

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WARDS = Schema(
    features=(
        Feature("age", "number", missing="mean"),
        Feature("ward", "category", categories=("north", "south")),
        Feature("dose", "number", scaling="none"),
        Feature("aspirin", "sparse"),
    ),
    class_names=("ill", "well"),
    ignored=("name",),
)


def test_the_columns_of_x_are_numbers_and_categories_in_order_and_then_sparse_ones() -> None:
    assert WARDS.num_features == 5
    assert WARDS.width_names == ("age", "ward=north", "ward=south", "dose", "aspirin")


def test_a_schema_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write_schema(WARDS, tmp_path / "schema.toml", {"age": "1 to 97"})
    assert read_schema(tmp_path / "schema.toml") == WARDS
    assert "# 1 to 97" in (tmp_path / "schema.toml").read_text()


def test_the_checksum_is_that_of_the_content(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('classes=["a",\n"b"]\n[features.f]\nkind="number"')
    other = Schema((Feature("f", "number"),), ("a", "b"))
    assert read_schema(path).sha256 == other.sha256
    assert Schema((Feature("f", "number"),), ("b", "a")).sha256 != other.sha256
    assert Schema((Feature("f", "number", "none"),), ("a", "b")).sha256 != other.sha256


def test_numbered_sparse_features_are_written_as_their_number() -> None:
    numbered = Schema(tuple(Feature(str(i), "sparse") for i in range(1433)), ("a",))
    assert "sparse = 1433" in schema_text(numbered)
    assert schema_of(schema_content(numbered), Problems("s")) == numbered


words = st.text(min_size=1, max_size=8).map(str.strip).filter(bool)


@pytest.mark.slow
@given(st.lists(words, min_size=3, max_size=9, unique=True))
def test_any_words_survive_the_file(names: list[str]) -> None:
    reserved = {"id", "split", "label"}
    columns = [name for name in names if name not in reserved]
    features = (
        *(Feature(name, "number") for name in columns[1:]),
        *(Feature(name, "category", categories=tuple(names)) for name in columns[:1]),
    )
    if not features or any("\ud800" <= c <= "\udfff" for name in names for c in name):
        return
    schema = Schema(features, tuple(names))
    problems = Problems("s")
    assert schema_of(tomllib.loads(schema_text(schema)), problems) == schema
    assert not problems.found


FINE = 'classes = ["a"]\n[features]\nage = { kind = "number" }\n'
BAD = {
    "no TOML": ("classes = [", "is not TOML"),
    "an unknown key": (f"clases = []\n{FINE}", "unknown key 'clases'. Did you mean 'classes'?"),
    "an unknown key of a feature": (
        FINE.replace('"number"', '"number", scalling = "none"'),
        "unknown key 'features.age.scalling'. Did you mean 'scaling'?",
    ),
    "no classes": (FINE.split("\n", 1)[1], "has no key 'classes'"),
    "a class twice": (FINE.replace('["a"]', '["a", "a"]'), "'a' appears twice"),
    "classes that are numbers": (FINE.replace('["a"]', "[1]"), "not a list of names"),
    "an empty class": (FINE.replace('["a"]', '["a", ""]'), "'' is not a name"),
    "an unknown kind": (FINE.replace("number", "numbr"), "features.age: the kind is 'numbr'"),
    "no kind": (FINE.replace('{ kind = "number" }', '"number"'), "the kind is 'number'"),
    "an unknown scaling": (
        FINE.replace('"number"', '"number", scaling = "max"'),
        "features.age.scaling: is 'max'",
    ),
    "no categories": (FINE.replace("number", "category"), "has no categories"),
    "no features": ('classes = ["a"]', "names no feature"),
    "features that are none": ('classes = ["a"]\nfeatures = 3', "is 3, not a table"),
    "a feature named id": (FINE.replace("age", "id"), "id: the name is already in use"),
    "a label that is a feature": (f'label = "age"\n{FINE}', "age: the name is already in use"),
    "a label that is the id": (
        f'label = "id"\n{FINE}',
        "cannot be the column that holds the class",
    ),
    "a wrong count": (f"sparse = -1\n{FINE}", "not a list of names"),
    "a column with spaces": (FINE.replace("age", '" age"'), "is not a name for a column"),
}


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD.keys())
def test_a_wrong_schema_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(DataErrors) as caught:
        read_schema(tmp_path / "schema.toml")
    assert says in str(caught.value)
    assert "schema.toml" in caught.value.lines[0]


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = 'clases = ["a"]\n[features]\na = { kind = "x" }\nb = { kind = "number", c = 1 }\n'
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(DataErrors) as caught:
        read_schema(tmp_path / "schema.toml")
    assert caught.value.count == 4


def test_a_missing_schema_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(DataErrors, match="fedsage data init"):
        read_schema(tmp_path / "schema.toml")
