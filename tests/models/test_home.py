"""The second stage at home: what it sees, and that answers come back from its folder."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import fedsage as fs
from fedsage.models.home import known_labels, mean_of_neighbors, ridge_of, seen_at_home
from fedsage.runs.stored_graph import load_answering


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    graph = fs.load("synthetic", nodes=90, classes=3, features=40)
    owners = fs.partition(graph, 3, how="random", seed=0)
    out = tmp_path_factory.mktemp("runs") / "private"
    settings = {"classifier": {"rounds_c": 5}, "privacy": {"epsilon": 50.0}}
    fs.run(owners, "fedsage", privacy="private", settings=settings, out=out, progress=False)
    return out


@pytest.mark.slow
def test_an_owner_s_answers_come_back_from_its_folder(result):
    model = fs.load_result(result).model
    held = load_answering(result / "owners" / "0")
    assert held.home is not None
    again = held.shares(model)
    with (result / "owners" / "0" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = np.array(model.class_names)
    assert [row["predicted"] for row in rows] == names[again.argmax(axis=1)].tolist()
    assert np.allclose(again.sum(axis=1), 1)


def test_no_node_sees_its_own_label(result):
    model, held = fs.load_result(result).model, load_answering(result / "owners" / "0")
    graph, train = held.graph, held.graph.split.train
    known = known_labels(graph, train)
    mean = mean_of_neighbors(graph)
    seen = seen_at_home(model.module(), graph, known, mean)
    for v in train[:5]:
        other = known.copy()
        other[v] = (known[v] + 1) % graph.num_classes
        assert np.allclose(
            seen_at_home(model.module(), graph, other, mean)[v], seen[v], atol=1e-6
        )
    assert (known[held.graph.split.test] == -1).all()
    hidden = replace(graph, y=known, split=None)
    assert (held.with_known().y == hidden.y).all()


def test_ridge_answers_for_a_row_as_if_it_had_not_been_there():
    draws = np.random.default_rng(0)
    x, y = draws.standard_normal((15, 4)), draws.integers(0, 3, 15)
    weights, without = ridge_of(csr_array(x), y, 3)
    for v in range(15):
        rest = np.arange(15) != v
        errors = []
        for strength in (0.3, 1.0, 3.0, 10.0):
            gram = x[rest].T @ x[rest] + strength * np.eye(4)
            errors.append(x[v] @ np.linalg.solve(gram, x[rest].T @ np.eye(3)[y[rest]]))
        assert min(np.abs(one - without[v]).max() for one in errors) < 1e-8
    assert weights.shape == (4, 3)
