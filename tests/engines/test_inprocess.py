"""Limits, parity and the boundary of the in-process engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fedsage.config import load_config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.methods import fedsage
from fedsage.models.parameters import sha256_of
from fedsage.prepare import Setting, data_owners, prepare
from fedsage.protocol.messages import Ask, Classifier, ClassifierUpdate, Hits
from fedsage.protocol.wire import Message, encode
from tests.conftest import SMALL

if TYPE_CHECKING:
    from tests.conftest import Train


@pytest.fixture
def setting(graph: Graph, owners: Partition) -> Setting:
    return prepare(load_config(SMALL), owners, graph)


def test_the_result_does_not_depend_on_how_many_owners_run_at_a_time(train: Train) -> None:
    hashes = {train(run={"workers": workers}).record.model_sha256 for workers in (1, 2, 3, 8)}
    assert len(hashes) == 1


def test_the_same_run_gives_the_same_model_and_another_seed_another(train: Train) -> None:
    first, again, other = train(), train(), train(seed=1)
    assert first.record.model_sha256 == again.record.model_sha256
    assert first.record.model_sha256 != other.record.model_sha256


def test_one_owner_who_holds_the_whole_graph_is_globsage(graph: Graph) -> None:
    from fedsage.graph.partition import partition
    from fedsage.runs import Stopwatch, execute, ignore_line

    alone = partition(graph, 1, "random", 0)
    results = []
    for method in ("fedsage", "globsage", "locsage"):
        config = load_config(SMALL, {"run": {"method": method}})
        results.append(execute(config, alone, graph, Stopwatch(), ignore_line))
    assert len({result.record.model_sha256 for result in results}) == 1
    assert len({result.accuracy["global"] for result in results}) == 1


def changed(setting: Setting, **classifier: object) -> Setting:
    other = setting.config.classifier.model_copy(update=classifier)
    return replace(setting, config=setting.config.model_copy(update={"classifier": other}))


def test_bytes_reported_are_bytes_serialized(setting: Setting) -> None:
    sent: list[tuple[int, Message]] = []
    engine = InProcessEngine(
        data_owners(setting), on_message=lambda i, message: sent.append((i, message))
    )
    fedsage(engine, setting.phi, rounds_c=2)
    up = sum(len(encode(m)) for _, m in sent if isinstance(m, ClassifierUpdate | Hits))
    down = sum(len(encode(m)) for _, m in sent if isinstance(m, Classifier | Ask))
    counted = list(engine.traffic.values())
    assert sum(t.up for t in counted) == up
    assert sum(t.down for t in counted) == down


@pytest.mark.parametrize("moments", ["own", "reset", "averaged"])
def test_moments_cross_only_if_they_are_averaged(setting: Setting, moments: str) -> None:

    chosen = changed(setting, moments=moments)
    sent: list[Message] = []
    engine = InProcessEngine(data_owners(chosen), on_message=lambda i, m: sent.append(m))
    fedsage(engine, chosen.phi, rounds_c=2)
    updates = [m for m in sent if isinstance(m, ClassifierUpdate)]
    assert all(bool(m.moments) == (moments == "averaged") for m in updates)


def test_the_three_ways_of_keeping_moments_are_three_ways(train: Train) -> None:
    hashes = {
        train(classifier={"moments": way, "selection": "last"}).record.model_sha256
        for way in ("own", "reset", "averaged")
    }
    assert len(hashes) == 3


def test_without_weighting_the_number_of_training_nodes_stays_home(setting: Setting) -> None:

    for weighting, seen in (("owners", {1.0}), ("nodes", {12.0})):
        chosen = changed(setting, weighting=weighting)
        engine = InProcessEngine(data_owners(chosen))
        engine.broadcast_classifier(chosen.phi)
        assert {u.weight for u in engine.local_update_c(0).values()} == seen


def test_owners_share_no_tensor_with_the_server_or_each_other(setting: Setting) -> None:
    owners = data_owners(setting)
    engine = InProcessEngine(owners)
    before = sha256_of(setting.phi.phi)
    outcome = fedsage(engine, setting.phi, rounds_c=1)
    assert sha256_of(setting.phi.phi) == before
    storages = [{weight.data_ptr() for weight in owner.model.parameters()} for owner in owners]
    storages.append({weight.data_ptr() for weight in outcome.classifier.phi.values()})
    for i, one in enumerate(storages):
        assert all(one.isdisjoint(other) for other in storages[:i])
