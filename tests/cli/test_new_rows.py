"""Answers for rows that came after a run, on the graph that the run keeps."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from fedsage.graph.arrays import symmetric
from fedsage.graph.graph import Graph
from fedsage.graph.surroundings import ball, with_surroundings
from fedsage.mending.links.groups import ALONE
from fedsage.mending.links.received import HeldMeans
from fedsage.models.classifier import load_models
from fedsage.rng import generator
from fedsage.runs.stored_graph import load_answering
from fedsage.tables.tables import graph_of, read_tables
from tests.cli.conftest import Call

SCHEMA = """classes = ["ill", "well"]

[features.age]
kind = "number"

[features.pulse]
kind = "number"
"""
RUN = (
    "--set model.widths=[8,4] --set classifier.rounds_c=2 --set mend.queries=both "
    "--set neighgen.rounds_gen=1 --set neighgen.widths=[8,6] --set neighgen.hidden=[10] "
    "--set neighgen.batch_size=16 --set neighgen.at_least=1"
).split()
WAYS = {"fedsage": 0, "fedsage+copy": 1, "fedsage+subspace": 2, "fedsage+neighgen": None}


def write(folder: Path, name: str, count: int, more: tuple[str, ...] = ()) -> None:
    """An owner with a line of patients, each linked to the next and the next but one."""
    stream = generator(len(name), name)
    folder.mkdir(parents=True)
    lines = ["id,age,pulse,label"]
    for v in range(count):
        ill = stream.random() < 0.5
        age, pulse = 50 + 20 * ill + stream.normal(), 70 + 9 * ill + stream.normal()
        lines.append(f"{name}{v},{age:.2f},{pulse:.2f},{'ill' if ill else 'well'}")
    (folder / "nodes.csv").write_text("\n".join([*lines, *more]) + "\n")
    links = [f"{name}{v},{name}{v + k}" for v in range(count - 2) for k in (1, 2)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *links]) + "\n")


@pytest.fixture
def owners() -> Path:
    root = Path("owners-of-tables")
    for name, count in (("a", 40), ("b", 44), ("c", 40)):
        write(root / name, name, count)
    (root / "schema.toml").write_text(SCHEMA)
    return root


def new_rows(nodes: list[str], links: list[str]) -> str:
    folder = Path("new")
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text("\n".join(["id,age,pulse", *nodes]) + "\n")
    (folder / "edges.csv").write_text("\n".join(["source,target", *links]) + "\n")
    return str(folder)


def rows_in(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).read_text().splitlines()))


NODES = ["n0,71.5,80.1", "n1,49.0,69.5", "n2,60.0,75.0"]
LINKS = ["n0,n1", "b7,n0", "n1,b20", "b21,n1"]


@pytest.mark.slow
@pytest.mark.parametrize("method", WAYS)
def test_new_rows_are_answered_as_if_the_owner_had_always_had_them(
    method: str, owners: Path, fedsage: Call
) -> None:
    assert fedsage("run", "--dataset", str(owners), "--method", method, *RUN,
                   "--out", "run").code == 0  # fmt: skip
    words = ("predict", "--model", "run", "--owner", "b", "--out", "p.csv")
    done = fedsage(*words, "--new", new_rows(NODES, LINKS))
    assert done.code == 0 and done.err == "", done.err
    rows = rows_in("p.csv")
    assert [row["id"] for row in rows] == ["n0", "n1", "n2"]
    assert [row["neighbors"] for row in rows] == ["2", "3", "0"]
    made = [int(row["generated"]) for row in rows]
    assert made == [WAYS[method]] * 3 if WAYS[method] is not None else min(made) >= 1
    if method == "fedsage":
        assert np.allclose(whole_answers(), probabilities(rows), atol=2e-6)


def probabilities(rows: list[dict[str, str]]) -> np.ndarray:
    return np.array([[float(row[f"probability_{c}"]) for c in ("ill", "well")] for row in rows])


def whole_answers() -> np.ndarray:
    """The same without any shortcut: the whole graph of b, with the new rows in it."""
    (model,), held = load_models("run"), load_answering(Path("run/owners/b"))
    assert model.scale is not None and model.schema is not None
    folder = Path("whole")
    write(folder, "b", 44, tuple(f"{line}," for line in NODES))
    with (folder / "edges.csv").open("a") as file:
        file.write("\n".join(LINKS) + "\n")
    graph = graph_of(read_tables(folder, model.schema), model.scale)
    assert graph.num_nodes == held.graph.num_nodes + 3
    return model.predict_proba(graph)[-3:]


def test_rows_that_cannot_be_used_are_named_and_the_others_answered(
    owners: Path, fedsage: Call
) -> None:
    assert fedsage("run", "--dataset", str(owners), "--method", "fedsage", *RUN,
                   "--out", "run").code == 0  # fmt: skip
    nodes = [*NODES, "b3,50,70", "n0,50,70", "n4,old,70", "n5,50,"]
    links = [*LINKS, "n1,nobody", "b1,b2", "n4,b5"]
    words = ("predict", "--model", "run", "--owner", "b", "--out", "p.csv")
    words += ("--new", new_rows(nodes, links))
    done = fedsage(*words)
    assert done.code == 0 and "7 rows skipped" in done.err
    for said in (
        "line 5: 'b3' is a node that the owner already has",
        "line 6: 'n0' is a node that an earlier row has",
        "line 7", "'old'", "line 8", "column pulse",
        "'nobody' is neither", "both ends", "'n4' is neither",
    ):  # fmt: skip
        assert said in done.err
    assert [row["id"] for row in rows_in("p.csv")] == ["n0", "n1", "n2"]
    Path("p.csv").unlink()
    done = fedsage(*words, "--strict")
    assert done.code == 2 and not Path("p.csv").exists()
    assert "7 problems" in done.err and "both ends" in done.err  # every one is named
    done = fedsage(*words[:-1], new_rows(["n4,old,70"], []))
    assert done.code == 2 and "'old'" in done.err


def test_a_model_without_a_schema_takes_no_rows(fedsage: Call, owners: Path) -> None:
    small = "--dataset synthetic --set synthetic.nodes=90 --method fedsage".split()
    assert fedsage("run", *small, *RUN[:4], "--out", "m").code == 0
    words = "predict --model m --owner 1 --out p.csv --new".split()
    assert "without a schema" in fedsage(*words, new_rows(NODES, [])).err
    both = fedsage(*words, "new", "--data", "synthetic")
    assert both.code == 2 and "cannot be combined" in both.err


def test_surroundings_hold_all_that_an_answer_depends_on(graph: Graph) -> None:
    near = ball(graph, np.array([4]), 2)
    reached = {4} | set(graph.neighbors(4))
    reached |= {int(u) for v in graph.neighbors(4) for u in graph.neighbors(v)}
    assert near.tolist() == sorted(reached)
    x, y = graph.x[[0, 1]], np.array([-1, 1])
    among, into = np.array([[0], [1]]), np.array([[1, 0], [4, 9]])
    found = with_surroundings(graph, x, y, among, into, reach=2)
    assert found.neighbors(0).tolist()[0] == 1 and len(found.neighbors(0)) == 2
    whole = with_surroundings(graph, x, y, among, into, reach=None)
    links = np.concatenate([among, into + np.array([[0], [2]]), graph.links + 2], axis=1)
    assert all(map(np.array_equal, symmetric(links, 62), (whole.indptr, whole.indices)))


@pytest.mark.slow
def test_links_of_new_rows_to_other_owners_are_looked_up_in_what_the_run_got(
    owners: Path, fedsage: Call
) -> None:
    (owners / "schema.toml").write_text('links = "known"\n' + SCHEMA)
    with (owners / "b" / "edges.csv").open("a") as file:
        file.writelines(f"b{v},a{v}\nc{v},b{v}\n" for v in range(40))
    assert fedsage("run", "--dataset", str(owners), "--method", "fedsage+links", *RUN,
                   "--out", "run").code == 0  # fmt: skip
    held = load_answering(Path("run/owners/b"))
    known = HeldMeans.from_tensors(held.remembered)
    got = [name for name in (f"a{v}" for v in range(40)) if known.of([name])[0] != ALONE]
    links = [f"n0,{got[0]}", f"{got[1]},n0", "n1,b3", "n2,nobody", "nobody,b5", "n2,n4"]
    words = ("predict", "--model", "run", "--owner", "b", "--out", "p.csv")
    done = fedsage(*words, "--new", new_rows([*NODES, "n4,old,70"], links))
    assert done.code == 0 and "3 rows skipped" in done.err, done.err
    assert "'b5' is an old node, whose links to other owners count in the next" in done.err
    assert "'n4' is neither" in done.err  # not a node of another owner
    rows = rows_in("p.csv")
    assert [row["neighbors"] for row in rows] == ["0", "1", "0"]
    assert [row["generated"] for row in rows] == ["2", "1", "1"]  # two rows, two copies
    assert fedsage(*words).code == 0  # old nodes have the answers of the run
    assert rows_in("p.csv") == rows_in("run/owners/b/predictions.csv")
