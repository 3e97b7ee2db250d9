from __future__ import annotations

from pathlib import Path

from fedsage.tables.merge import merge_schemas
from fedsage.tables.schema import Schema, read_schema
from fedsage.tables.schema_file import write_schema
from tests.cli.conftest import Call
from tests.tables.test_merge import A, B


def test_merge_writes_a_file_that_is_read_back(fedsage: Call) -> None:
    write_schema(A, Path("a.toml"))
    write_schema(B, Path("b.toml"))
    done = fedsage("data", "merge", "a.toml", "b.toml", "--out", "all.toml")
    assert done.code == 0, done.err
    assert "all.toml: 3 features, 2 sparse, 4 classes" in done.out
    assert "bmi: ignored, because a.toml does not have it" in done.out
    assert read_schema(Path("all.toml")) == merge_schemas({"a": A, "b": B}).schema
    again = fedsage("data", "merge", "a.toml", "b.toml", "--out", "all.toml")
    assert again.code == 2 and "--force" in again.err
    write_schema(Schema(A.features, A.class_names, id="pid"), Path("c.toml"))
    done = fedsage("data", "merge", "a.toml", "c.toml", "--out", "x.toml")
    assert done.code == 2 and "- id: is 'id' in a.toml" in done.err
    assert not Path("x.toml").exists()
