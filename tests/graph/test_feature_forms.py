"""Forms of features: what they are, and that it does not matter who adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

import fedsage as fs
from fedsage.errors import ConfigError
from fedsage.graph.feature_forms import (
    FeatureForm,
    form_from,
    looks_of,
    pooled_form,
    word_counts,
)
from fedsage.models.classifier import load_models
from fedsage.rng import generator

COUNTS = np.array([[3, 0, 4, 0], [0, 0, 0, 0], [1, 2, 0, 2], [0, 0, 0, 5]], np.float32)
NAMES = ("unit", "root", "log", "tfidf")


def pooled(name: str, *features: Any, first: int = 0) -> FeatureForm:
    """The form of several owners' features."""
    none = np.zeros((2, 0), np.int64)
    graphs = [fs.Graph.from_arrays(x, none, np.arange(x.shape[0]) % 2) for x in features]
    return pooled_form(name, graphs, first)


def slowly(name: str, x: np.ndarray) -> np.ndarray:
    """The same by the formulas, row by row, for words that are all frequent enough."""
    rows = [row for row in x if row.any()]
    length = np.mean([np.linalg.norm(row) for row in rows])
    if name == "root":
        return np.sqrt(x)
    if name == "log":
        return np.log(1 + x)
    weight = np.ones(x.shape[1])
    if name == "tfidf":
        weight = np.array([np.log(len(rows) / max((c != 0).sum(), 4)) for c in x.T])
    made = x * weight
    norms = [np.linalg.norm(row) for row in made]
    return np.array([r * (length / n if n else 0) for r, n in zip(made, norms, strict=True)])


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_form_is_its_formula(
    monkeypatch: pytest.MonkeyPatch, name: str, sparse: bool
) -> None:
    monkeypatch.setattr("fedsage.graph.feature_forms.RAREST", 4)
    x = np.tile(COUNTS, (4, 1))
    x[:8, 0] = 0
    held = csr_array(x) if sparse else x
    found = pooled(name, held).of(held)
    assert issparse(found) == sparse and found.dtype == np.float32
    dense = found.toarray() if sparse else found
    np.testing.assert_allclose(dense, slowly(name, x), atol=1e-5)


@pytest.mark.parametrize("name", [*NAMES, "auto"])
def test_a_form_does_not_depend_on_who_holds_which_rows(name: str) -> None:
    draws = generator(0, "rows")
    x = csr_array(draws.poisson(0.3, (200, 30)).astype(np.float32))
    order = draws.permutation(200)
    parts = [x[order[:20]], x[order[20:150]], x[order[150:]]]
    one, many = pooled(name, x), pooled(name, *parts)
    assert (one.name, one.length) == (many.name, many.length)
    assert (one.weights == many.weights).all()
    assert (one.of(x)[order[:20]] != many.of(parts[0])).nnz == 0


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        ([0, 1, 1], "raw"),
        ([0, 1, 7], "unit"),
        ([0, 0.2, 1], "root"),
        ([-1, 3, 0], "raw"),
        ([0, 0, 0], "raw"),
    ],
)
def test_auto_looks_at_the_values_of_all_owners(values: list[float], taken: str) -> None:
    ones = np.ones((3, 3), np.float32)
    assert pooled("auto", ones, np.array([values] * 2, np.float32)).name == taken


def test_only_words_are_changed() -> None:
    x = np.concatenate([-np.ones((4, 2), np.float32), COUNTS], axis=1)
    for held in (x, csr_array(x)):
        form = pooled("auto", held, first=2)
        made = form.of(held)
        made = made.toarray() if issparse(made) else made
        assert form.name == "unit" and (made[:, :2] == -1).all()
        np.testing.assert_allclose(made[:, 2:], slowly("unit", COUNTS), atol=1e-5)


def test_a_rare_word_weighs_no_more_than_one_of_eight_nodes() -> None:
    x = csr_array(np.eye(40, dtype=np.float32))
    form = form_from("tfidf", looks_of(x), word_counts(x))
    assert form.weights == pytest.approx(np.full(40, np.log(40 / 8)))


@pytest.fixture(scope="module")
def graph() -> fs.Graph:
    draws = generator(1, "counts")
    made = fs.load("synthetic", nodes=150, features=40, classes=3)
    x = made.x.copy()
    x.data = draws.integers(1, 9, len(x.data)).astype(np.float32)
    return fs.Graph.from_arrays(x, made.links, made.y)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedsage+", "globsage"])
def test_a_model_gives_raw_features_the_form_of_its_training(
    graph: fs.Graph, method: str, tmp_path: Path
) -> None:
    """A run that is given features in that form is the same run, and so are its answers."""
    owners = fs.partition(graph, num_owners=3, how="random")
    settings = {"data": {"features": "unit"}, "classifier": {"rounds_c": 3}}
    ours = fs.run(owners, method, evaluate_on=graph, settings=settings, out=tmp_path / "run")
    form = ours.model.form
    assert form.name == ours.record.feature_form == "unit"
    before = form.of_graph(graph)
    cut = fs.partition(before, num_owners=3, how="random")
    settings["data"] = {"features": "raw"}
    theirs = fs.run(cut, method, evaluate_on=before, settings=settings)
    assert ours.record.model_sha256 == theirs.record.model_sha256
    assert ours.accuracy == theirs.accuracy
    answers = ours.model.predict_proba(graph)
    assert (answers == theirs.model.predict_proba(before)).all()
    (kept,) = load_models(tmp_path / "run")
    assert (kept.predict_proba(graph) == answers).all()
    again = fs.load_result(tmp_path / "run").answering[0]
    assert (again.shares(kept) == ours.answering[0].shares(ours.model)).all()


def test_tfidf_comes_back_from_disk(graph: fs.Graph, tmp_path: Path) -> None:
    owners = fs.partition(graph, num_owners=3, how="random")
    settings = {"data": {"features": "tfidf"}, "classifier": {"rounds_c": 1}}
    ours = fs.run(owners, "fedsage", evaluate_on=graph, settings=settings, out=tmp_path / "r")
    (kept,) = load_models(tmp_path / "r")
    assert isinstance(kept.form, FeatureForm)
    assert (kept.form.weights == ours.model.form.weights).all()
    assert (kept.form.of(graph.x) != ours.model.form.of(graph.x)).nnz == 0


@pytest.mark.slow
def test_a_run_does_not_begin_with_a_classifier_of_another_form(
    graph: fs.Graph, tmp_path: Path
) -> None:
    owners = fs.partition(graph, num_owners=3, how="random")
    settings: dict[str, Any] = {"classifier": {"rounds_c": 1}}
    raw = {"data": {"features": "raw"}}
    fs.run(owners, "fedsage", settings=settings | raw, out=tmp_path / "raw")
    with pytest.raises(ConfigError, match=r"had the form 'raw', those of this run .*'unit'"):
        fs.run(owners, "fedsage", settings=settings, start_from=tmp_path / "raw")
    fs.run(owners, "fedsage", settings=settings | raw, start_from=tmp_path / "raw")
