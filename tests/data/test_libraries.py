"""Datasets of PyG and OGB, through their own loaders, from raw files in their own formats."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import fedsage as fs
from fedsage import errors
from fedsage.data.synthetic import synthetic
from fedsage.errors import ConfigError, DataError
from fedsage.graph.graph import Graph
from tests.cli.conftest import fedsage  # noqa: F401

if TYPE_CHECKING:
    from tests.cli.conftest import Call

FEW = "--set model.widths=[8,4] --set classifier.rounds_c=2 --partition random".split()
TRAIN, TEST = 30, 1000


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSAGE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture(scope="module")
def whole() -> Graph:
    """Large enough for Planetoid's split: 500 validation nodes and 1,000 test nodes."""
    return synthetic(nodes=1600, classes=3, features=20, words=5.0)


def write_planetoid(folder: Path, graph: Graph) -> None:
    """``ind.cora.*`` as Planetoid has them: the last nodes are for testing, in any order."""
    folder.mkdir(parents=True)
    x, y = csr_matrix(graph.x), np.eye(3, dtype=np.int32)[graph.y]
    index = np.random.Generator(np.random.PCG64(0)).permutation(np.arange(TEST)) + 600
    held = {
        "x": x[:TRAIN], "y": y[:TRAIN], "allx": x[:600], "ally": y[:600],
        "tx": x[index], "ty": y[index],
        "graph": {v: graph.neighbors(v).tolist() for v in range(graph.num_nodes)},
    }  # fmt: skip
    for name, value in held.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.cora.test.index").write_text("".join(f"{v}\n" for v in index))


def write_ogb(folder: Path, graph: Graph) -> None:
    """Tables of OGB: every link once, labels as a column, the split by year."""
    (folder / "processed").mkdir(parents=True)
    (folder / "RELEASE_v1.txt").touch()
    tables = {
        "raw/edge": graph.links.T,
        "raw/num-node-list": [[graph.num_nodes]],
        "raw/num-edge-list": [[graph.num_links]],
        "raw/node-feat": graph.x.toarray(),
        "raw/node_year": np.full((graph.num_nodes, 1), 2015),
        "raw/node-label": graph.y[:, None],
        "split/time/train": np.arange(100)[:, None],
        "split/time/valid": np.arange(100, 150)[:, None],
        "split/time/test": np.arange(150, 200)[:, None],
    }
    for name, table in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            np.savetxt(file, table, fmt="%g", delimiter=",")


def same(found: Graph, graph: Graph) -> None:
    x = found.x if isinstance(found.x, np.ndarray) else found.x.toarray()
    assert np.array_equal(x, graph.x.toarray()) and np.array_equal(found.y, graph.y)
    assert np.array_equal(found.links, graph.links)


@pytest.mark.slow  # to import the library takes seconds
def test_a_planetoid_of_pyg_has_its_links_and_its_public_split(
    place: Path, whole: Graph
) -> None:
    pytest.importorskip("torch_geometric")
    write_planetoid(place / "pyg" / "Planetoid" / "Cora" / "raw", whole)
    for name in ("pyg:Planetoid/Cora", "pyg:Planetoid/cora"):  # the second time from its cache
        found = fs.load(name)
        same(found, whole)
        assert found.split is not None
        assert found.split.train.tolist() == list(range(TRAIN))
        assert found.split.val.tolist() == list(range(TRAIN, TRAIN + 500))
        assert found.split.test.tolist() == list(range(600, 1600))


@pytest.mark.slow  # to import the library takes seconds
def test_a_pyg_dataset_without_masks_has_no_split(place: Path, graph: Graph) -> None:
    pytest.importorskip("torch_geometric")
    folder = place / "pyg" / "Amazon" / "Photo" / "raw"
    folder.mkdir(parents=True)
    x, links = csr_matrix(graph.x), csr_matrix(graph.adjacency)
    np.savez(
        folder / "amazon_electronics_photo.npz", labels=graph.y,
        attr_data=x.data, attr_indices=x.indices, attr_indptr=x.indptr, attr_shape=x.shape,
        adj_data=links.data, adj_indices=links.indices, adj_indptr=links.indptr,
        adj_shape=links.shape,
    )  # fmt: skip
    found = fs.load("pyg:Amazon/Photo")
    same(found, graph)
    assert found.split is None


@pytest.mark.slow  # to import the library takes seconds
def test_ogb_s_arxiv_has_its_split_and_no_pickle_of_it_is_opened(
    place: Path, whole: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ogb")
    write_ogb(place / "ogb" / "ogbn_arxiv", whole)
    cache = place / "ogb" / "ogbn_arxiv" / "processed" / "data_processed"
    cache.write_bytes(b"whatever somebody put there")
    for _ in range(2):
        found = fs.load("ogb:ogbn-arxiv")
        same(found, whole)
        assert found.split is not None
        assert found.split.val.tolist() == list(range(100, 150)) and len(found.split.test) == 50
    assert capsys.readouterr().out == ""  # results go there, and nothing else


@pytest.mark.slow  # to import the library takes seconds
def test_a_run_keeps_the_dataset_s_own_split_or_draws_one(
    place: Path,
    whole: Graph,
    fedsage: Call,  # noqa: F811
) -> None:
    pytest.importorskip("ogb")
    write_ogb(place / "ogb" / "ogbn_arxiv", whole)
    words = ("run", "--dataset", "ogb:ogbn-arxiv", "--method", "fedsage", *FEW, "--out")
    assert asked_about(fedsage, *words, "own") == 50
    assert asked_about(fedsage, *words, "drawn", "--set", "data.split=drawn") == sum(
        size - round(0.6 * size) - round(0.2 * size) for size in (534, 533, 533)
    )


def asked_about(call: Callable[..., object], *words: str) -> int:
    """The number of test nodes of a run, by its folder."""
    done = call(*words)
    assert getattr(done, "code", 1) == 0, getattr(done, "err", "")
    folder = Path(words[words.index("--out") + 1])
    found = json.loads((folder / "result.json").read_text())
    return sum(line["test"] for line in found["per_owner"])


@pytest.mark.slow  # to import the library takes seconds
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pyg:Planetoyd/Cora", "PyG has no dataset 'Planetoyd'. Did you mean 'Planetoid'?"),
        ("pyg:Planetoid/Coral", "no dataset 'Coral'. Did you mean 'Cora'?"),
        ("pyg:Planetoid", "Say which: pyg:Planetoid/Cora"),
        ("pyg:Reddit/posts", "Leave out '/posts'"),
        ("pyg:KarateClub", "Graph.from_pyg"),
        ("ogb:ogbn-arxif", "OGB has no dataset 'ogbn-arxif'. Did you mean 'ogbn-arxiv'?"),
        ("ogb:ogbn-mag", "several kinds of nodes"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest_name(name: str, says: str) -> None:
    for package in ("torch_geometric", "ogb"):
        pytest.importorskip(package)
    with pytest.raises(ConfigError) as refused:
        fs.load(name)
    assert says in str(refused.value)


@pytest.mark.slow  # to import the library takes seconds
def test_files_that_cannot_be_read_are_named_with_the_folder_they_belong_in(
    place: Path,
) -> None:
    pytest.importorskip("torch_geometric")
    raw = place / "pyg" / "Amazon" / "Photo" / "raw"
    raw.mkdir(parents=True)
    (raw / "amazon_electronics_photo.npz").write_bytes(b"not an archive")
    with pytest.raises(DataError) as refused:
        fs.load("pyg:Amazon/Photo")
    assert "pyg:Amazon/Photo could not be loaded" in str(refused.value)
    assert str(place / "pyg" / "Amazon") in str(refused.value)


@pytest.mark.parametrize("name", ["pyg:Planetoid/Cora", "ogb:ogbn-arxiv"])
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=r"pip install 'fedsage\[data\]'"):
        fs.load(name)
