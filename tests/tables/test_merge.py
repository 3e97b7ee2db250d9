from __future__ import annotations

from dataclasses import replace

import pytest

from fedsage.errors import DataErrors
from fedsage.tables.compare import differences, marks_of, read_marks
from fedsage.tables.feature import Feature
from fedsage.tables.merge import merge_schemas
from fedsage.tables.schema import Schema

A = Schema(
    (
        Feature("age", "number"),
        Feature("ward", "category", categories=("north", "south")),
        Feature("visits", "count"),
        Feature("code", "number"),
        Feature("iron", "sparse"),
    ),
    ("flu", "cold"),
    ignored=("name",),
)
B = Schema(
    (
        Feature("age", "number", missing="mean"),
        Feature(
            "ward", "category", categories=("south", "east", "unknown", "other"),
            missing="unknown", unlisted="other",
        ),
        Feature("visits", "number"),
        Feature("bmi", "number"),
        Feature("zinc", "sparse"),
    ),
    ("asthma", "flu", "other"),
    ignored=("note", "code"),
    ignored_in_edges=("since",),
    unlisted_classes="other",
)  # fmt: skip


def test_the_common_schema_holds_what_any_owner_has() -> None:
    merged = merge_schemas({"a": A, "b": B})
    schema = merged.schema
    assert schema.class_names == ("flu", "cold", "asthma", "other")
    assert schema.unlisted_classes == "other"
    assert [f.name for f in schema.of_kind("sparse")] == ["iron", "zinc"]
    age, ward, visits = schema.columns
    assert age.missing == "mean" and visits.kind == "number"
    assert ward.categories == ("north", "south", "east", "unknown", "other")
    assert (ward.missing, ward.unlisted) == ("unknown", "other")
    assert schema.ignored == ("name", "note", "code", "bmi")
    assert schema.ignored_in_edges == ("since",)
    assert merged.said == [
        "visits: a number, because it is not a count for everyone",
        "code: ignored, because b ignores it",
        "bmi: ignored, because a does not have it",
    ]


def test_one_schema_is_its_own_union_and_order_of_owners_only_changes_the_order() -> None:
    assert merge_schemas({"a": A}).schema == A
    one, two = (merge_schemas(dict(pair)).schema for pair in
                ((("a", A), ("b", B)), (("b", B), ("a", A))))  # fmt: skip
    assert set(one.class_names) == set(two.class_names)
    assert {f.name for f in one.features} == {f.name for f in two.features}
    assert merge_schemas({"1": one, "a": A}).schema.features == one.features


def test_contradictions_are_named_column_by_column() -> None:
    other = Schema(
        (
            Feature("age", "category", categories=("old",)),
            Feature("ward", "category", categories=("north",)),
            Feature("visits", "count", scaling="none"),
            Feature("code", "number", range=(0.0, 9.0)),
        ),
        ("flu",),
        id="pid",
    )
    with pytest.raises(DataErrors) as caught:
        merge_schemas({"a.toml": A, "c.toml": other})
    text = str(caught.value)
    assert caught.value.count == 4
    assert "- id: is 'id' in a.toml and 'pid' in c.toml. Make it the same" in text
    assert "- column age: the kind is 'number' in a.toml and 'category' in c.toml." in text
    assert "- column visits: scaling is 'standard' in a.toml and 'none' in c.toml." in text
    assert "- column code: range is [] in a.toml and [0.0, 9.0] in c.toml." in text


def test_a_day_is_not_read_in_two_ways() -> None:
    first = Schema((Feature("day", "date", formats=("%d/%m/%Y",)),), ("flu",))
    month = Schema((Feature("day", "date", formats=("%m/%d/%Y",)),), ("flu",))
    with pytest.raises(
        DataErrors, match="day: dates are like %d/%m/%Y in a and like %m/%d/%Y in b"
    ):
        merge_schemas({"a": first, "b": month})
    long = Schema((Feature("day", "date", formats=("%d/%m/%Y %H:%M",)),), ("flu",))
    merged = merge_schemas({"a": first, "b": long}).schema
    assert merged.columns[0].formats == ("%d/%m/%Y", "%d/%m/%Y %H:%M")


def test_what_is_empty_for_one_owner_is_empty_for_all() -> None:
    merged = merge_schemas({"a": A, "b": replace(A, empty=(*A.empty, "-9"))})
    assert merged.schema.empty == (*A.empty, "-9")
    assert merged.said == ["empty: '-9' counts as an empty cell, because b says so"]


def test_a_form_of_sparse_features_is_kept_and_two_contradict() -> None:
    logs = replace(A, sparse_form="log")
    assert merge_schemas({"a": logs, "b": B}).schema.sparse_form == "log"
    with pytest.raises(DataErrors, match=r"sparse_form.*'log' in a and 'root' in b"):
        merge_schemas({"a": logs, "b": replace(B, sparse_form="root")})


def test_owners_see_what_differs_but_not_the_words() -> None:
    found = differences(marks_of(A), marks_of(B))
    assert "column ward (other categories or settings)" in found
    assert "column visits (count and number)" in found
    assert "column bmi (only in the second)" in found and "classes" in found
    text = repr((marks_of(A), marks_of(B)))
    assert not any(word in text for word in ("north", "south", "east", "asthma", "iron"))
    assert differences(marks_of(A), marks_of(A)) == []
    turned = Schema((*A.features[1::-1], *A.features[2:]), A.class_names, ignored=("name",))
    assert differences(marks_of(A), marks_of(turned)) == ["the order of columns"]


@pytest.mark.parametrize("text", ["", "[]", '{"a": 3}', '{"a": [1, 2]}', '{"a": ["x"]}'])
def test_marks_that_are_none_tell_nothing(text: str) -> None:
    assert read_marks(text) == {}
