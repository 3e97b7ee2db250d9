"""OpenFGL beside ours: it gets our owners and splits, and its answer is read."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.openfgl import read_answer, write_owners
from benchmarks.openfgl_inside import PARTS, graph_in, write_splits
from fedsage.config import load_config
from fedsage.data.load import load
from fedsage.graph.partition import partition
from fedsage.runs.setup import prepare
from tests.small import SMALL


@pytest.mark.slow
def test_owners_and_splits_are_ours(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    config = load_config(SMALL)
    graph = load("synthetic", **config.synthetic.model_dump())
    owners = partition(graph, config.data.owners, config.data.partition, config.run.seed)
    setup = prepare(config, owners, graph)
    write_owners(config, tmp_path)
    files = sorted(tmp_path.glob("owner-*.npz"))
    assert len(files) == owners.num_owners == 3
    for i, file in enumerate(files):
        one, made = owners.subgraphs[i], graph_in(file)
        np.testing.assert_array_equal(made.x.numpy(), one.x.toarray())
        np.testing.assert_array_equal(made.y.numpy(), one.y)
        pairs = {(u, v) for u in range(one.num_nodes) for v in one.neighbors(u).tolist()}
        assert {*map(tuple, made.edge_index.T.tolist())} == pairs
        write_splits(i, file, tmp_path / "splits")
        for part in PARTS:
            mask = torch.load(tmp_path / "splits" / f"{part}_{i}.pt")
            wanted = np.sort(getattr(setup.splits[i], part))
            np.testing.assert_array_equal(np.flatnonzero(mask.numpy()), wanted)
            numbers = pickle.loads((tmp_path / "splits" / f"glb_{part}_{i}.pkl").read_bytes())
            assert numbers == owners.nodes[i][wanted].tolist()
    whole = graph_in(tmp_path / "whole.npz")
    assert len(whole.y) == graph.num_nodes and whole.num_global_classes == 3


def test_the_last_line_is_the_answer() -> None:
    printed = 'round # 0\n[client 0]\tloss: 1.0\n{"cpu": 3.5, "gigabytes": 1.5, "local": 0.8}\n'
    assert read_answer(printed) == {"cpu": 3.5, "gigabytes": 1.5, "local": 0.8}
