"""FedSage+, LocSage+ and every way of mending, as a user runs them; the traps of the field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedsage.config import load_config
from fedsage.data.synthetic import synthetic
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ConfigError, PrivacyError
from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated, mend
from fedsage.graph.partition import Partition, by_owner, partition
from fedsage.graph.split import split_labels
from fedsage.runs.events import Stopwatch
from fedsage.runs.execute import execute
from fedsage.runs.result import RunResult
from fedsage.runs.run import run
from fedsage.runs.setup import prepare
from tests.small import SMALL, exchange_on, owners_of

if TYPE_CHECKING:
    from tests.fixtures import Train

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
        split = split_labels(subgraph.y, 0.6, 0.2, 0, i)
        for part in parts:
            nodes = ids[getattr(split, part)]
            y[nodes] = (y[nodes] + 1) % graph.num_classes
    other = Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names)
    return by_owner(other, owner, 3, "random", 0)


@pytest.mark.slow
@pytest.mark.parametrize("method", [way for way in WAYS if way != "oracle"])
def test_labels_of_validation_and_test_nodes_teach_nothing(
    graph: Graph, owners: Partition, method: str
) -> None:
    first = run(owners, method, settings=QUICK)
    second = run(relabelled(graph, owners, ("val", "test")), method, settings=QUICK)
    assert first.record.model_sha256 == second.record.model_sha256
    third = run(relabelled(graph, owners, ("train",)), method, settings=QUICK)
    assert first.record.model_sha256 != third.record.model_sha256


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedsage+", "fedsage+neighgen"])
def test_labels_of_test_nodes_choose_nothing(
    graph: Graph, owners: Partition, method: str
) -> None:
    settings = {"classifier": {"rounds_c": 6}, "neighgen": GEN}
    first = run(owners, method, settings=settings)
    second = run(relabelled(graph, owners, ("test",)), method, settings=settings)
    assert first.record.model_sha256 == second.record.model_sha256
    assert first.record.view == second.record.view
    shares = [[line.local for line in one.record.per_owner] for one in (first, second)]
    assert shares[0] != shares[1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedsage+neighgen", "fedsage+shared", "locsage+"])
def test_rounds_asked_for_are_rounds_run(train: Train, method: str) -> None:
    history = train(method, classifier={"rounds_c": 4}, neighgen=GEN).history
    models = 3 if method == "locsage+" else 1
    expected = [("mending", t) for t in range(3)] + [("training", t) for t in range(4)]
    assert [(line.phase, line.round) for line in history] == expected * models
    assert all((line.validation is None) == (line.phase == "mending") for line in history)
    assert {line.owner for line in history} == ({0, 1, 2} if models == 3 else {None})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "preset"),
    [("fedsage+neighgen", "paper"), ("fedsage+neighgen", "best"), ("fedsage+shared", "best")],
)
def test_predicted_counts_are_not_all_zero_after_training(
    graph: Graph, owners: Partition, method: str, preset: str
) -> None:
    gen = GEN | {"rounds_gen": 20, "at_least": 0}
    settings = {"neighgen": gen, "classifier": {"rounds_c": 1}}
    record = run(owners, method, preset, evaluate_on=graph, settings=settings).record
    assert record.mending is not None and record.mending.generated > 0
    assert np.array(record.mending.counts)[:, 1:].sum() > 0


@pytest.mark.parametrize("method", WAYS)
def test_mending_changes_what_is_answered_for_real_nodes(
    graph: Graph, owners: Partition, method: str
) -> None:
    """The same classifier answers otherwise for nodes that got a neighbor, and only there."""
    config = load_config(SMALL, {"neighgen": GEN}, {"run": {"method": method}})
    setup = prepare(config, owners, graph)
    made = owners_of(setup)
    setup.way.mend(exchange_on(setup, InProcessEngine(made)))
    for owner in made:
        assert owner.mended is not None
        nodes = np.arange(owner.graph.num_nodes)
        before, after = (owner.answers(g, nodes) for g in (owner.graph, owner.mended))
        got = owner.mended.degrees[nodes] > owner.graph.degrees
        changed = (before != after).any(dim=1).numpy()
        assert got.any() and changed[got].mean() > 0.8
        near = {u for v in np.flatnonzero(got) for u in (v, *owner.graph.neighbors(v))}
        assert set(np.flatnonzero(changed)) <= near


@pytest.mark.slow
@pytest.mark.parametrize("method", WAYS)
def test_mending_changes_what_is_learned(
    graph: Graph, owners: Partition, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links are what does it: without them, the same draws give another classifier."""
    settings = QUICK | {"mend": {"mix": "off"}}
    mended = run(owners, method, evaluate_on=graph, settings=settings).record.model_sha256

    def no_links(g: Graph, generated: Generated) -> Graph:
        nobody = Generated(np.empty(0, dtype=np.int64), generated.x[:0])
        return mend(g, nobody)

    monkeypatch.setattr("fedsage.protocol.owner.mend", no_links)
    monkeypatch.setattr("fedsage.runs.setup.mend", no_links)
    without = run(owners, method, evaluate_on=graph, settings=settings).record.model_sha256
    assert mended != without


@pytest.mark.slow
def test_fedsage_plus_mends_as_the_settings_say(train: Train) -> None:
    for way in ("neighgen", "copy", "classes", "subspace"):
        one = train("fedsage+", neighgen=GEN, mend={"how": way}).record
        other = train(f"fedsage+{way}", neighgen=GEN).record
        assert one.model_sha256 == other.model_sha256
    assert (
        train("fedsage+", mend={"how": "none"}).record.model_sha256
        == train("fedsage").record.model_sha256
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedsage+neighgen", "fedsage+shared", "fedsage+subspace"])
def test_the_result_does_not_depend_on_how_many_owners_run_at_a_time(
    train: Train, method: str
) -> None:
    hashes = {
        train(method, neighgen=GEN, run={"workers": workers}).record.model_sha256
        for workers in (1, 3)
    }
    assert len(hashes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_dense_products_round_alike_in_every_thread(seed: int) -> None:
    """In a thread where no number of threads is set, torch takes all cores for a product."""
    graph = synthetic(nodes=60, features=40, classes=3, words=6, seed=seed)
    owners = partition(graph, 3, "random", seed)
    hashes = {
        run(
            owners, "fedsage+neighgen", settings=QUICK | {"run": {"workers": workers}}
        ).record.model_sha256
        for workers in (1, 2)
    }
    assert len(hashes) == 1


@pytest.mark.slow
def test_alone_nothing_crosses_and_every_owner_has_its_own_neighgen(train: Train) -> None:
    result = train("locsage+", neighgen=GEN)
    assert len(result.models) == 3
    assert result.record.bytes["mending"] == {"up": 0, "down": 0}
    assert result.record.mending is not None and result.record.mending.picked is None
    assert result.record.view in ("plain", "mended", "both", "mixed")
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


@pytest.mark.slow
def test_diagnostics_are_in_the_history_and_in_the_result(train: Train) -> None:
    result = train("fedsage+neighgen", neighgen=GEN)
    lines = [line for line in result.history if line.phase == "mending"]
    for line in lines:
        assert set(line.terms) == {"degree", "feature", "classification"}
        assert line.loss == pytest.approx(sum(line.terms.values()), rel=1e-5)
    picked = [line.picked for line in lines]
    assert picked == sorted(picked) and 0 < picked[-1] <= 1
    found = result.record.mending
    assert found is not None and found.picked == picked[-1]
    assert found.norm_generated == pytest.approx(found.norm_real, rel=0.2)
    crossed = result.record.bytes["mending"]
    assert lines[-1].bytes["up"] <= crossed["up"] and crossed["up"] > 0
    assert result.record.seconds["mending"] > 0


def test_small_batches_are_refused_before_anything_is_trained(owners: Partition) -> None:
    started: list[str] = []

    for gen in ({"batch_size": 3}, {"min_batch": 18}):
        config = load_config(
            SMALL, {"run": {"method": "fedsage+neighgen"}, "neighgen": GEN | gen}
        )
        with pytest.raises(PrivacyError, match=r"is below neighgen\.min_batch"):
            execute(config, owners, None, Stopwatch(), started.append)
    assert not started


def test_other_methods_do_not_mind_neighgen_s_settings(train: Train) -> None:
    odd = GEN | {"batch_size": 2, "widths": [8, 8, 8]}
    assert train("fedsage", neighgen=odd).history
    with pytest.raises(ConfigError, match=r"neighgen\.widths has 3 layers"):
        train("fedsage+neighgen", neighgen=odd)


def test_without_the_whole_graph_the_truth_is_left_out(owners: Partition) -> None:
    found = run(owners, "fedsage+copy", settings=QUICK).record.mending
    assert found is not None and found.generated == 60
    assert found.missing is None and found.counts is None and found.distance_mended is None


def test_a_diverging_neighgen_is_an_error(diverge: Train) -> None:
    with pytest.raises(ConfigError, match=r"Training diverged.*neighgen\.eta"):
        diverge("fedsage+neighgen", neighgen={"eta": 1e30})
