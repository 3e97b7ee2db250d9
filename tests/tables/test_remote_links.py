from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedsage.config import MendConfig, NeighGenConfig
from fedsage.data.new_rows import read_new
from fedsage.data.owned import load_owners
from fedsage.errors import DataError
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import NOBODY, UNKNOWN, RemoteLinks, known_links
from fedsage.graph.partition import partition
from fedsage.mending.links.far_ends import FarEnds, once
from fedsage.mending.links.leaves import for_new_nodes, remembered
from fedsage.mending.links.received import HeldMeans, fingerprints
from fedsage.mending.way import NewNodes
from fedsage.rng import generator
from fedsage.tables.tables import Tables, read_tables
from fedsage.tables.write import write_tables
from tests.cli.conftest import Call, fedsage  # noqa: F401

SCHEMA = 'classes = ["a", "b"]\n{}\n[features]\nage = {{ kind = "number" }}\n'
NODES = "id,age,label\np1,1,a\np2,2,b\np3,3,a\n"


def tables(folder: Path, edges: str, links: str = 'links = "known"') -> Tables:
    (folder / "schema.toml").write_text(SCHEMA.format(links))
    (folder / "nodes.csv").write_text(NODES)
    (folder / "edges.csv").write_text(edges)
    return read_tables(folder)


def test_either_end_of_a_link_may_be_another_owners(tmp_path: Path) -> None:
    found = tables(tmp_path, "source,target,owner\np1,p2,\np3,x9,west\ny1,p1,\n")
    assert found.links.tolist() == [[0], [1]]
    assert found.remote is not None
    assert found.remote.here.tolist() == [2, 0]
    assert found.remote.there == ("x9", "y1")
    assert found.remote.owner == ("west", "")


def test_check_counts_links_to_others(tmp_path: Path, fedsage: Call) -> None:  # noqa: F811
    tables(tmp_path, "source,target,owner\np1,p2,\np3,x9,west\ny1,p1,\n")
    done = fedsage("data", "check", str(tmp_path))
    assert "3 nodes, 1 link, 2 links to other owners' nodes, 1 feature" in done.out


def test_the_column_owner_is_not_needed(tmp_path: Path) -> None:
    found = tables(tmp_path, "source,target\np1,p2\np3,x9\n")
    assert found.remote is not None and found.remote.owner == ("",)


def test_without_leave_a_foreign_node_is_an_error_that_says_how_to_allow_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match=r"x9.*not the id of a node(.|\n)*links = \"known\""):
        tables(tmp_path, "source,target\np1,x9\n", links="")


def test_a_link_between_two_foreign_nodes_and_an_empty_end_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither 'x9' nor 'x8' is a node of yours"):
        tables(tmp_path, "source,target\nx9,x8\n")
    with pytest.raises(DataError, match="is empty"):
        tables(tmp_path, "source,target\np1,\n")


def test_links_have_no_direction_and_a_schema_that_says_so_is_refused(tmp_path: Path) -> None:
    known = 'links = "known"\ndirected = {}'
    with pytest.raises(
        DataError, match=r"directed: links have no direction.*Leave the key out"
    ):
        tables(tmp_path, "source,target\np1,p2\n", known.format("true"))
    edges = "source,target\np1,p2\np2,p1\np1,x9\nx9,p1\n"
    found = tables(tmp_path, edges, known.format("false"))
    assert found.remote is not None
    links = FarEnds(found.remote.known(["p1", "p2", "p3"], []))
    assert once(links.here, links.there, None, np.arange(2)).tolist() == [
        0
    ]  # one neighbor, not two


@pytest.mark.slow
@pytest.mark.parametrize("match", ["intersection", "hashes"])
def test_which_end_of_a_link_is_listed_first_makes_no_difference(
    fedsage: Call,  # noqa: F811
    tmp_path: Path,
    match: str,
) -> None:
    """Of a payment both banks may list the payer first, or each its own account."""
    small = ["--dataset", "synthetic", "--set", "synthetic.nodes=60", "--owners", "3"]
    fedsage("split", *small, "--partition", "random", "--links", "known", "--out", "own-first")
    shutil.copytree(tmp_path / "own-first", tmp_path / "other-first")
    edges = tmp_path / "other-first" / "owner-0" / "edges.csv"
    header, *rows = (line.split(",") for line in edges.read_text().splitlines())
    places = header.index("source"), header.index("target")
    for row in rows:
        row[places[0]], row[places[1]] = row[places[1]], row[places[0]]
    edges.write_text("".join(f"{','.join(row)}\n" for row in (header, *rows)))
    assert any(row[header.index("owner")] for row in rows)
    models = []
    for name in ("own-first", "other-first"):
        run = ["run", "--dataset", name, "--method", "fedsage+links", "--out", f"{name}-run"]
        few = ["--set", "classifier.rounds_c=2", "--set", f"links.match={match}"]
        done = fedsage(*run, *few)
        assert done.code == 0, done.err
        models.append(load_file(tmp_path / f"{name}-run" / "model.safetensors"))
    assert all(torch.equal(models[0][key], models[1][key]) for key in models[0])


def test_owners_are_found_by_name() -> None:
    links = RemoteLinks(np.array([0, 1, 2]), ("a", "b", "c"), ("west", "", "nobody"))
    known = links.known(["p"], ["east", "west"])
    assert known.at.tolist() == [1, UNKNOWN, NOBODY] and known.absent == {"nobody": 1}
    unnamed = links.known(["p"], [])
    assert unnamed.at.tolist() == [UNKNOWN] * 3 and not unnamed.absent


def test_links_of_new_nodes_weigh_what_their_table_says(tmp_path: Path, graph: Graph) -> None:
    schema = tables(
        tmp_path, "source,target,n\np1,p2,1\n", 'links = "known"\nweight = "n"'
    ).schema
    (tmp_path / "nodes.csv").write_text("id,age\nn1,1\nn2,2\n")
    rows = "source,target,n\nn1,x1,2\nn2,p1,3\nx2,n2,5\nn2,x9,7\nn1,x2,-1\n"
    (tmp_path / "edges.csv").write_text(rows)
    new = read_new(tmp_path, schema, {"p1": 0})
    assert new.weights is not None and new.weights.tolist() == [3]
    assert len(new.skipped) == 1 and "not a weight above 0" in new.skipped[0]
    means = np.ones((1, graph.num_features), np.float32)
    held = HeldMeans.of_groups(fingerprints(["x1", "x2"]), np.zeros(2, np.int64), means)
    links = np.array([0, 1]), np.array([0, 1])
    kept = remembered(held, *links, words=0, copies=False)
    old = graph.with_split([0, 1], [2], [3])
    asked = new.remote, old, kept, MendConfig(), NeighGenConfig(), generator(0, "new")
    made = for_new_nodes(NewNodes(graph, np.array([4, 6]), *asked))
    assert made.parents.tolist() == [4, 6]
    assert made.weights is not None and made.weights.tolist() == [2, 5]  # x9 is in no group


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_links_to_others_are_written_and_read_back(tmp_path: Path, format: str) -> None:
    (tmp_path / "one").mkdir()
    found = tables(tmp_path / "one", "source,target,owner\np1,p2,\np3,x9,west\ny1,p1,\n")
    write_tables(found, tmp_path / "two", format)  # type: ignore[arg-type]
    again = read_tables(tmp_path / "two")
    assert again.sha256 == found.sha256


def test_split_writes_what_owners_know(
    fedsage: Call,  # noqa: F811
    tmp_path: Path,
) -> None:
    small = ["--dataset", "synthetic", "--set", "synthetic.nodes=60", "--owners", "3"]
    fedsage("split", *small, "--partition", "random", "--links", "known", "--out", "all")
    part = load_owners(tmp_path / "all")
    from fedsage.data.synthetic import synthetic

    graph = synthetic(nodes=60)
    cut = partition(graph, 3, how="random", seed=0)
    truth = known_links(graph, cut.nodes, 1.0, 0)
    for one, other in zip(part.known, truth, strict=True):
        assert list(one.ids) == list(other.ids)
        links = set(zip(one.here.tolist(), one.there, one.at.tolist(), strict=True))
        assert links == set(
            zip(other.here.tolist(), other.there, other.at.tolist(), strict=True)
        )
    fedsage("split", *small, "--partition", "random", "--links", "known:0.5", "--out", "half")
    half = load_owners(tmp_path / "half")
    assert 0 < sum(len(one.here) for one in half.known) < sum(len(k.here) for k in part.known)


@pytest.mark.parametrize("links", ["some", "known:2", "known:x"])
def test_split_refuses_other_links(fedsage: Call, links: str) -> None:  # noqa: F811
    found = fedsage("split", "--dataset", "synthetic", "--links", links)
    assert found.code == 2
    assert "Give known, or known:SHARE" in found.err


@pytest.mark.slow
def test_split_writes_nodes_that_two_owners_hold(
    fedsage: Call,  # noqa: F811
    tmp_path: Path,
) -> None:
    small = ["--dataset", "synthetic", "--set", "synthetic.nodes=90", "--owners", "3"]
    shared = ["--shared", "0.4", "--links", "known", "--out", "common"]
    fedsage("split", *small, "--partition", "random", *shared)
    part = load_owners(tmp_path / "common")
    held = [set(part.ids_of(i)) for i in range(3)]
    both = (held[0] & held[1]) | (held[0] & held[2]) | (held[1] & held[2])
    assert len(set.union(*held)) == 90 and 20 < len(both) < 50
    for i, known in enumerate(part.known):
        assert known.shared and not held[i] & set(known.there)
    parts: list[dict[str, str]] = [{}, {}, {}]
    for i, split in enumerate(part.splits):
        for name in ("train", "val", "test"):
            parts[i] |= {part.ids_of(i)[v]: name for v in getattr(split, name)}
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert all(parts[i][v] == parts[j][v] for v in held[i] & held[j])
    run = ["run", "--dataset", "common", "--method", "fedsage+links", "--json"]
    found = fedsage(*run, "--set", "classifier.rounds_c=2", "--out", "run")
    assert found.code == 0, found.err
    asked = ["--model", "run", "--data", "common/owner-0", "--out", "answers.csv"]
    found = fedsage("predict", *asked)
    assert found.code == 0, found.err
    assert len((tmp_path / "answers.csv").read_text().splitlines()) == 1 + len(held[0])


def test_shared_nodes_need_tables(fedsage: Call) -> None:  # noqa: F811
    found = fedsage("split", "--dataset", "synthetic", "--shared", "0.5", "--format", "npz")
    assert found.code == 2 and "need tables" in found.err
