"""FedSage+, LocSage+ and every way of mending, as a user runs them; the traps of the field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, by_owner
from fedsage.graph.split import split_nodes
from fedsage.runs import RunResult, run

if TYPE_CHECKING:
    from tests.conftest import Train

WAYS = ("fedsage+neighgen", "fedsage+copy", "fedsage+classes", "fedsage+subspace",
        "fedsage+shared", "oracle")  # fmt: skip
GEN = {"rounds_gen": 3, "widths": [8, 6], "hidden": [10], "batch_size": 12}
QUICK = {"classifier": {"rounds_c": 2, "selection": "last"}, "neighgen": GEN}


def relabelled(graph: Graph, owners: Partition, parts: tuple[str, ...]) -> Partition:
    """The same owners with other labels on the nodes of some parts of their splits."""
    y = graph.y.copy()
    owner = np.empty(graph.num_nodes, dtype=np.int64)
    for i, (subgraph, ids) in enumerate(zip(owners.subgraphs, owners.nodes, strict=True)):
        owner[ids] = i
        split = split_nodes(subgraph, 0.6, 0.2, 0, i)
        for part in parts:
            nodes = ids[getattr(split, part)]
            y[nodes] = (y[nodes] + 1) % graph.num_classes
    other = Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names)
    return by_owner(other, owner, 3, "random", 0)


@pytest.mark.parametrize("method", [way for way in WAYS if way != "oracle"])
def test_labels_of_validation_and_test_nodes_teach_nothing(
    graph: Graph, owners: Partition, method: str
) -> None:
    first = run(owners, method, settings=QUICK)
    second = run(relabelled(graph, owners, ("val", "test")), method, settings=QUICK)
    assert first.record.model_sha256 == second.record.model_sha256
    third = run(relabelled(graph, owners, ("train",)), method, settings=QUICK)
    assert first.record.model_sha256 != third.record.model_sha256


@pytest.mark.parametrize("method", ["fedsage+", "fedsage+neighgen"])
def test_labels_of_test_nodes_choose_nothing(
    graph: Graph, owners: Partition, method: str
) -> None:
    settings = {"classifier": {"rounds_c": 6}, "neighgen": GEN}
    first = run(owners, method, settings=settings)
    second = run(relabelled(graph, owners, ("test",)), method, settings=settings)
    assert first.record.model_sha256 == second.record.model_sha256
    assert first.record.view == second.record.view
    assert first.accuracy["local"] != second.accuracy["local"]


@pytest.mark.parametrize("method", ["fedsage+neighgen", "fedsage+shared", "locsage+"])
def test_rounds_asked_for_are_rounds_run(train: Train, method: str) -> None:
    history = train(method, classifier={"rounds_c": 4}, neighgen=GEN).history
    models = 3 if method == "locsage+" else 1
    expected = [("neighgen", t) for t in range(3)] + [("classifier", t) for t in range(4)]
    assert [(line.phase, line.round) for line in history] == expected * models
    assert all((line.validation is None) == (line.phase == "neighgen") for line in history)
    assert {line.owner for line in history} == ({0, 1, 2} if models == 3 else {None})


@pytest.mark.parametrize(
    ("method", "preset"),
    [("fedsage+neighgen", "paper"), ("fedsage+neighgen", "best"), ("fedsage+shared", "best")],
)
def test_predicted_counts_are_not_all_zero_after_training(
    graph: Graph, owners: Partition, method: str, preset: str
) -> None:
    gen = GEN | {"rounds_gen": 40, "eta": 0.01}
    settings = {"neighgen": gen, "classifier": {"rounds_c": 1}}
    record = run(owners, method, preset, evaluate_on=graph, settings=settings).record
    assert record.mending is not None and record.mending.generated > 0
    assert np.array(record.mending.counts)[:, 1:].sum() > 0


@pytest.mark.parametrize("method", WAYS)
def test_mending_changes_what_is_learned_and_what_is_answered(
    train: Train, method: str
) -> None:
    last = {"rounds_c": 2, "selection": "last"}
    plain = train("fedsage", classifier=last).record
    found = train(method, classifier=last, neighgen=GEN, mend={"mix": "off"}).record
    assert found.model_sha256 != plain.model_sha256
    assert found.mending is not None and found.mending.generated > 0


def test_fedsage_plus_mends_as_the_settings_say(train: Train) -> None:
    for way in ("neighgen", "copy", "classes", "subspace"):
        one = train("fedsage+", neighgen=GEN, mend={"how": way}).record
        other = train(f"fedsage+{way}", neighgen=GEN).record
        assert one.model_sha256 == other.model_sha256
    assert (
        train("fedsage+", mend={"how": "none"}).record.model_sha256
        == train("fedsage").record.model_sha256
    )


@pytest.mark.parametrize("method", ["fedsage+neighgen", "fedsage+shared", "fedsage+subspace"])
def test_the_result_does_not_depend_on_how_many_owners_run_at_a_time(
    train: Train, method: str
) -> None:
    hashes = {
        train(method, neighgen=GEN, run={"workers": workers}).record.model_sha256
        for workers in (1, 3)
    }
    assert len(hashes) == 1


def test_alone_nothing_crosses_and_every_owner_has_its_own_neighgen(train: Train) -> None:
    result = train("locsage+", neighgen=GEN)
    assert len(result.models) == 3
    assert result.record.bytes["neighgen"] == {"up": 0, "down": 0}
    assert result.record.mending is not None and result.record.mending.picked == 0
    assert result.record.model_sha256 != train("locsage").record.model_sha256


@pytest.fixture(scope="module")
def oracle(train: Train) -> RunResult:
    return train("oracle")


def test_the_oracle_s_mending_is_perfect(oracle: RunResult, owners: Partition) -> None:
    found = oracle.record.mending
    assert found is not None
    assert found.generated == found.missing == 2 * owners.missing_links
    assert found.count_error == 0 and found.count_correlation == pytest.approx(1)
    assert found.distance_mended is not None and found.distance_plain is not None
    assert found.distance_mended.mean == pytest.approx(0, abs=1e-3)
    assert found.distance_plain.mean > 0.1
    table = np.array(found.counts)
    assert table.sum() == 60 and (table == np.diag(np.diag(table))).all()


def test_diagnostics_are_in_the_history_and_in_the_result(train: Train) -> None:
    result = train("fedsage+neighgen", neighgen=GEN)
    lines = [line for line in result.history if line.phase == "neighgen"]
    for line in lines:
        assert set(line.terms) == {"degree", "feature", "classification"}
        assert line.loss == pytest.approx(sum(line.terms.values()), rel=1e-5)
    picked = [line.picked for line in lines]
    assert picked == sorted(picked) and 0 < picked[-1] <= 1
    found = result.record.mending
    assert found is not None and found.picked == picked[-1]
    assert found.norm_generated == pytest.approx(found.norm_real, rel=0.2)
    crossed = result.record.bytes["neighgen"]
    assert lines[-1].bytes["up"] <= crossed["up"] and crossed["up"] > 0
    assert result.record.seconds["neighgen"] > 0


def test_without_the_whole_graph_the_truth_is_left_out(owners: Partition) -> None:
    found = run(owners, "fedsage+copy", settings=QUICK).record.mending
    assert found is not None and found.generated == 60
    assert found.missing is None and found.counts is None and found.distance_mended is None


def test_a_diverging_neighgen_is_an_error(train: Train) -> None:
    from fedsage.errors import ConfigError

    with pytest.raises(ConfigError, match=r"Training diverged.*neighgen\.eta"):
        train("fedsage+neighgen", neighgen=GEN | {"eta": 1e30})
