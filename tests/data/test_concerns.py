from __future__ import annotations

from pathlib import Path

import pytest

from fedsage.data.concerns import concerns_of
from fedsage.data.owned import read_all
from fedsage.runs.events import Event
from fedsage.runs.execute import run_config
from tests.federation.conftest import config_for

SCHEMA = """classes = ["flu", "cold", "plague"]
[features]
age = { kind = "number" }
pulse = { kind = "number" }
ward = { kind = "category", categories = ["north", "south"] }
"""


@pytest.fixture
def owners(tmp_path: Path) -> Path:
    """Two owners of 40 patients; each concern once."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for name in ("east", "west"):
        rows = ["id,age,pulse,ward,label"]
        for i in range(40):
            ident = "x7" if i == 7 else f"{name}{i}"
            label = "cold" if name == "east" and i % 2 else "flu"
            label = "plague" if i < 2 else label
            pulse = "-9" if name == "west" and i % 4 == 0 else str(60 + i)
            ward = "north" if name == "east" or i % 2 else "south"
            rows.append(f"{ident},{20 + i},{pulse},{ward},{label}")
        folder = tmp_path / name
        folder.mkdir()
        (folder / "nodes.csv").write_text("\n".join([*rows, ""]))
        first, *others = [row.split(",")[0] for row in rows[1:]]
        links = [f"{first},{other}" for other in others]
        (folder / "edges.csv").write_text("\n".join(["source,target", *links, ""]))
    return tmp_path


def test_each_concern_is_told_once(owners: Path) -> None:
    assert concerns_of(read_all(owners)) == [
        "1 node id is at more than one owner, for example 'x7' at east and west. If these are "
        "the same nodes, they count several times, and may be in training at one owner and in "
        'the test at another: say shared = "same" in the schema, and mend by links.',
        "There is no node of class cold at west.",
        "Class plague has 4 nodes at east and west, fewer than 8: too few to say how well it "
        "is recognized.",
        "Column ward has the same value in all rows of east: it tells nothing there.",
        "At west, column pulse is -9 in 10 rows, and no other value is below 0. If it means an "
        "empty cell, add \"-9\" to 'empty' in the schema, and give the column missing = "
        '"mean".',
    ]


def test_ids_in_common_are_no_concern_if_they_are_meant(owners: Path) -> None:
    (owners / "schema.toml").write_text(f'shared = "same"\n{SCHEMA}')
    assert not any("more than one owner" in one for one in concerns_of(read_all(owners)))


def test_a_run_says_so_before_it_trains(owners: Path) -> None:
    config = config_for("fedsage", data={"dataset": str(owners)})
    seen: list[Event] = []
    run_config(config, seen.append)
    told = [event.words for event in seen if event.what == "warns"]
    assert told == concerns_of(read_all(owners))
    kinds = [event.what for event in seen]
    assert kinds.index("warns") < kinds.index("ready")


def test_sound_data_raises_no_concern(owners: Path) -> None:
    for name in ("east", "west"):
        text = (owners / name / "nodes.csv").read_text().replace("x7", f"{name}7")
        text = text.replace("plague", "flu").replace("-9", "61")
        rows = text.splitlines()
        rows[3:6] = [row.replace("flu", "cold").replace("north", "south") for row in rows[3:6]]
        (owners / name / "nodes.csv").write_text("\n".join([*rows, ""]))
        edges = owners / name / "edges.csv"
        edges.write_text(edges.read_text().replace("x7", f"{name}7"))
    schema = SCHEMA.replace(', "plague"', "")
    (owners / "schema.toml").write_text(schema)
    assert concerns_of(read_all(owners)) == []
