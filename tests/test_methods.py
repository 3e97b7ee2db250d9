from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedsage.config import load_config
from fedsage.errors import ConfigError, DataError, FedSageError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, by_owner
from fedsage.runs.compare import compare
from fedsage.runs.execute import run_config
from fedsage.runs.run import run

if TYPE_CHECKING:
    from tests.fixtures import Train

METHODS = ("locsage", "fedsage", "globsage")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_rounds_asked_for_are_rounds_run(train: Train, method: str) -> None:
    history = train(method, classifier={"rounds_c": 4}).history
    models = 3 if method == "locsage" else 1
    assert len(history) == 4 * models
    assert [line.round for line in history] == [0, 1, 2, 3] * models


@pytest.mark.slow
def test_all_methods_on_one_seed_see_the_same_owners_and_test_nodes(train: Train) -> None:
    results = [train(method) for method in METHODS]
    lines = [
        [(o.nodes, o.links, o.train, o.val, o.test) for o in result.record.per_owner]
        for result in results
    ]
    assert lines[0] == lines[1] == lines[2]
    confusions = [np.array(result.record.confusion) for result in results]
    tested = [counts.sum(axis=1) for counts in confusions]
    assert (tested[0] == 3 * tested[1]).all()  # LocSage's three models are all asked
    assert (tested[1] == tested[2]).all()


@pytest.mark.slow
def test_the_kept_round_is_the_first_that_is_best_on_validation_nodes(train: Train) -> None:
    result = train(classifier={"rounds_c": 8})
    best = max(line.validation for line in result.history)
    first = next(line.round for line in result.history if line.validation == best)
    assert (result.record.round, result.record.validation) == (first, best)
    last = train(classifier={"rounds_c": 8, "selection": "last"})
    assert last.record.round == 7


@pytest.mark.slow
def test_labels_of_test_nodes_change_no_weight(graph: Graph, owners: Partition) -> None:
    from fedsage.graph.split import split_labels

    y = graph.y.copy()
    for i, (part, ids) in enumerate(zip(owners.subgraphs, owners.nodes, strict=True)):
        test = ids[split_labels(part.y, 0.6, 0.2, 0, i).test]
        y[test] = (y[test] + 1) % graph.num_classes
    other = Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names)
    owner = np.empty(graph.num_nodes, dtype=np.int64)
    for i, ids in enumerate(owners.nodes):
        owner[ids] = i
    settings = {"classifier": {"rounds_c": 3}}
    first = run(owners, "fedsage", evaluate_on=graph, settings=settings)
    second = run(by_owner(other, owner, 3, "random", 0), "fedsage", evaluate_on=other,
                 settings=settings)  # fmt: skip
    assert first.record.model_sha256 == second.record.model_sha256
    assert first.record.confusion != second.record.confusion


def test_local_accuracy_is_over_all_test_nodes(train: Train) -> None:
    record = train().record
    expected = np.average([o.local for o in record.per_owner], weights=[4, 4, 4])
    assert record.accuracy["local"] == pytest.approx(expected)


@pytest.mark.slow
def test_accuracy_agrees_with_the_confusion_matrix(train: Train) -> None:
    for method in METHODS:
        record = train(method).record
        counts = np.array(record.confusion)
        assert record.accuracy["global"] == pytest.approx(np.trace(counts) / counts.sum())


@pytest.mark.slow
def test_bytes_cross_in_fedsage_alone(train: Train) -> None:
    carried = {method: train(method).record.bytes["training"]["up"] for method in METHODS}
    assert carried["fedsage"] > 0
    assert carried["locsage"] == carried["globsage"] == 0


@pytest.mark.slow
def test_the_model_predicts_as_it_was_judged(train: Train, graph: Graph) -> None:
    result = train(classifier={"rounds_c": 30, "eta": 0.01})
    predicted = result.model.predict(graph)
    assert predicted.shape == (graph.num_nodes,)
    assert (predicted == graph.y).mean() > 0.5


def test_one_owner_of_the_whole_graph_may_have_more_nodes_than_any_other(graph: Graph) -> None:
    owners = by_owner(graph, np.arange(graph.num_nodes) % 6, 6, "random", 0)
    data = {"train": 0.3, "val": 0.4}  # more validation nodes in all than an owner has nodes
    settings = {"classifier": {"rounds_c": 2}, "data": data}
    found = run(owners, "globsage", evaluate_on=graph, settings=settings)
    assert found.record.round is not None
    counted = sum(owner.val for owner in found.record.per_owner)
    assert counted > max(owner.nodes for owner in found.record.per_owner)


def test_only_globsage_has_a_learning_rate_of_its_own(graph: Graph, owners: Partition) -> None:
    def model(method: str, **etas: float) -> str:
        settings = {"classifier": {"rounds_c": 2, **etas}}
        found = run(owners, method, preset="paper", evaluate_on=graph, settings=settings)
        return found.record.model_sha256

    for method, has_one in (("globsage", True), ("locsage", False), ("fedsage", False)):
        usual, asked = model(method, eta=0.002), model(method, eta=0.02, eta_whole=0.002)
        assert (usual == asked) is has_one, method
        assert model(method, eta=0.002, eta_whole=0) == usual


def test_without_the_whole_graph_there_is_no_global_accuracy(owners: Partition) -> None:
    settings = {"classifier": {"rounds_c": 1}}
    assert run(owners, "fedsage", settings=settings).accuracy["global"] is None
    with pytest.raises(ConfigError, match="globsage needs the whole graph"):
        run(owners, "globsage", settings=settings)


def test_local_models_are_not_taken_for_a_shared_one(train: Train) -> None:
    result = train("locsage")
    assert len(result.models) == 3
    with pytest.raises(FedSageError, match="3 local models"):
        _ = result.model


def test_a_class_without_a_training_node_is_refused(graph: Graph, owners: Partition) -> None:
    named = Graph(graph.x, graph.indptr, graph.indices, graph.y, (*graph.class_names, "rare"))
    owner = np.arange(60) % 3
    part = by_owner(named, owner, 3, "random", 0)
    with pytest.raises(DataError, match="Class 'rare' has no training node"):
        run(part, "fedsage")


def test_an_unknown_method_is_refused_with_the_nearest_one(owners: Partition) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'fedsage'"):
        run(owners, "fedsag")


def test_a_device_that_is_not_there_is_refused(owners: Partition) -> None:
    with pytest.raises(ConfigError, match="cannot be used here"):
        run(owners, "fedsage", settings={"run": {"device": "cuda:77"}})


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["full", "sampled"])
def test_training_beats_guessing(inference: str) -> None:
    larger = {
        "data": {"dataset": "synthetic"},
        "synthetic": {"nodes": 400, "classes": 4, "features": 200},
        "classifier": {"rounds_c": 12},
        "evaluation": {"inference": inference},
    }
    result = run_config(load_config(larger))
    assert result.accuracy["global"] > 0.6
    assert result.accuracy["local"] > 0.6
    assert result.record.macro_f1 > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedsage+copy", "oracle"])
def test_a_mended_run_differs_from_fedsage_and_mixes_both_graphs(
    train: Train, method: str
) -> None:
    last = {"selection": "last"}
    plain = train(classifier=last).record.model_sha256
    ways = [
        train(method, classifier=last, mend={"mix": mix}).record.model_sha256
        for mix in ("rounds", "epochs", "off")
    ]
    assert len({plain, *ways}) == 4


@pytest.mark.slow
def test_owners_query_the_graph_that_does_better_on_validation_nodes(train: Train) -> None:
    longer = {"rounds_c": 6, "selection": "last"}
    auto, *ways = (
        train("oracle", classifier=longer, mend={"queries": way})
        for way in ("auto", "both", "mended", "plain")
    )
    both, mended, plain = (way.record.validation for way in ways)
    assert auto.record.validation == pytest.approx((mended + plain) / 2)
    kept = max(ways, key=lambda way: way.record.validation)
    assert auto.accuracy == kept.accuracy and auto.record.view == kept.record.view
    assert len({auto.accuracy["global"], *(way.accuracy["global"] for way in ways)}) == 1
    assert len({both, mended, plain}) > 1


def test_the_oracle_is_refused_where_nobody_holds_the_whole_graph(owners: Partition) -> None:
    with pytest.raises(ConfigError, match="oracle needs the whole graph"):
        run(owners, "oracle", settings={"classifier": {"rounds_c": 1}})


def test_compare_refuses_the_oracle_before_it_trains_anything(
    owners: Partition, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="oracle needs the whole graph"):
        compare(owners, ["fedsage", "oracle"], seeds=1, out=tmp_path / "found")
    assert not (tmp_path / "found").exists()


def test_without_validation_nodes_the_last_round_is_kept(train: Train) -> None:
    assert train(data={"val": 0.0}).record.round == 2


def test_an_owner_without_a_label_is_refused_by_name(graph: Graph) -> None:
    owner = np.arange(60) % 3
    y = np.where(owner == 1, -1, graph.y)
    part = by_owner(
        Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names), owner, 3, "own", 0
    )
    with pytest.raises(DataError, match="Owner 1 has 20 nodes, but none of them is labelled"):
        run(part, "fedsage")


def test_an_owner_without_test_nodes_counts_in_no_average(graph: Graph) -> None:
    owner = np.arange(60) % 3
    y = graph.y.copy()
    y[np.flatnonzero(owner == 1)[2:]] = -1  # two labels: one to train on, one to choose by
    labelled = Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names)
    part = by_owner(labelled, owner, 3, "own", 0)
    settings = {"classifier": {"rounds_c": 2}, "data": {"train": 0.5, "val": 0.4}}
    record = run(part, "locsage", evaluate_on=labelled, settings=settings).record
    shares = [line.local for line in record.per_owner]
    assert shares[1] is None
    assert record.accuracy["local"] == pytest.approx((shares[0] + shares[2]) / 2)


def test_divergence_is_an_error_and_not_a_result(diverge: Train) -> None:
    with pytest.raises(ConfigError, match="Training diverged"):
        diverge(classifier={"eta": 1e30})


def test_another_graph_is_not_taken_for_the_whole_one(graph: Graph, owners: Partition) -> None:
    other = graph.induced(np.arange(60)[::-1].copy())
    with pytest.raises(DataError, match="not the graph that was partitioned"):
        run(owners, "fedsage", evaluate_on=other)


def test_a_graph_with_one_class_is_refused(graph: Graph) -> None:
    one = Graph(graph.x, graph.indptr, graph.indices, np.zeros(60, dtype=np.int64), ("only",))
    with pytest.raises(DataError, match="needs two"):
        run(by_owner(one, np.arange(60) % 3, 3, "own", 0), "fedsage")


@pytest.mark.slow
def test_the_record_names_the_graph_it_was_given(graph: Graph, owners: Partition) -> None:
    settings = {"classifier": {"rounds_c": 1}}
    assert run(owners, "fedsage", settings=settings).record.dataset == "own"
    named = run(owners, "fedsage", settings=settings, dataset="mine")
    assert named.record.dataset == "mine"


def test_a_run_where_nobody_can_be_tested_has_no_accuracy(graph: Graph) -> None:
    owner = np.arange(60) % 2
    y = np.full(60, -1)
    y[:2] = 0, 1  # one label for each owner, to train on
    few = Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names[:2])
    part = by_owner(few, owner, 2, "own", 0)
    settings = {"classifier": {"rounds_c": 1}}
    record = run(part, "fedsage", evaluate_on=few, settings=settings).record
    assert record.accuracy["global"] is None and record.confusion is None
