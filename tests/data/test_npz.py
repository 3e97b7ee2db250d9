from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedsage.data.npz import content_sha256, load_graph, save_graph
from fedsage.errors import DataError
from fedsage.files import write_atomically
from fedsage.graph.graph import Graph


@pytest.mark.parametrize("dense", [False, True])
def test_a_graph_comes_back_as_it_was_saved(graph: Graph, tmp_path: Path, dense: bool) -> None:
    if dense:
        graph = Graph.from_arrays(graph.x.toarray(), graph.links, graph.y, graph.class_names)
    save_graph(graph, tmp_path / "g.npz")
    back = load_graph(tmp_path / "g.npz")
    assert content_sha256(back) == content_sha256(graph)
    assert back.class_names == graph.class_names
    assert isinstance(back.x, np.ndarray) == dense


def test_a_truncated_file_is_refused(graph: Graph, tmp_path: Path) -> None:
    save_graph(graph, tmp_path / "g.npz")
    whole = (tmp_path / "g.npz").read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 5):
        (tmp_path / "g.npz").write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"g\.npz"):
            load_graph(tmp_path / "g.npz")


def test_a_file_with_python_objects_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", x=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="Python objects"):
        load_graph(tmp_path / "g.npz")


def test_a_file_without_features_says_what_it_holds(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", y=np.zeros(3, dtype=int), z=np.zeros(1))
    with pytest.raises(DataError, match="it holds y, z"):
        load_graph(tmp_path / "g.npz")


def test_inconsistent_sparse_features_are_refused(graph: Graph, tmp_path: Path) -> None:
    np.savez(
        tmp_path / "g.npz", edge_index=graph.links, y=graph.y, x_data=graph.x.data,
        x_indices=graph.x.indices + 1000, x_indptr=graph.x.indptr, x_shape=graph.x.shape,
    )  # fmt: skip
    with pytest.raises(DataError, match="inconsistent"):
        load_graph(tmp_path / "g.npz")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "out" / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "changed",
    [
        {"y": np.array(3)},
        {"y": np.eye(60, dtype=int)},
        {"class_names": np.array("one")},
        {"x_shape": np.array(60)},
        {"x_shape": np.array(["a", "b"])},
        {"x_data": np.array(["word"] * 5)},
        {"edge_index": np.array(1)},
    ],
    ids=str,
)
def test_arrays_of_another_kind_are_refused(
    graph: Graph, tmp_path: Path, changed: dict[str, np.ndarray]
) -> None:
    save_graph(graph, tmp_path / "g.npz")
    arrays = dict(np.load(tmp_path / "g.npz")) | changed
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(DataError, match=r"g\.npz"):
        load_graph(tmp_path / "g.npz")


def test_files_that_only_look_like_npz_are_refused(graph: Graph, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "array.npz").write_bytes((tmp_path / "a.npy").read_bytes())
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("x", "hello")
        archive.writestr("edge_index", "hello")
    save_graph(graph, tmp_path / "bent.npz")
    bent = bytearray((tmp_path / "bent.npz").read_bytes())
    bent[len(bent) // 3] ^= 0xFF
    (tmp_path / "bent.npz").write_bytes(bytes(bent))
    for name in ("array", "text", "bent"):
        with pytest.raises(DataError, match=f"{name}.npz"):
            load_graph(tmp_path / f"{name}.npz")


def test_a_graph_without_labels_can_be_read(graph: Graph, tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=graph.links, x=graph.x.toarray())
    back = load_graph(tmp_path / "g.npz")
    assert (back.y == -1).all()
    assert back.num_classes == 0


def test_files_have_the_permissions_that_the_user_asks_for(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomically(tmp_path / "file", lambda file: file.write(b""))
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
