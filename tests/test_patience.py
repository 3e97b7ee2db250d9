"""Early stopping: ``classifier.patience``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsage.config import load_config
from fedsage.graph.partition import Partition
from fedsage.methods import fedsage
from fedsage.protocol.plan import Journal, Progress
from fedsage.runs.events import Event, HistoryLine
from fedsage.runs.run import run
from tests.fixtures import Graph
from tests.small import exchange_on, small_setup

PATIENCE, ROUNDS = 3, 40


def settings(selection: str = "validation", how: str = "full", **more: Any) -> dict[str, Any]:
    classifier = {"rounds_c": ROUNDS, "selection": selection, "patience": PATIENCE}
    classifier |= {"cooling": 0.0} | more  # the rate does not depend on when the end would be
    return {"classifier": classifier, "traffic": {"how": how}, "model": {"dropout": 0.0}}


def first_top(history: list[HistoryLine]) -> int:
    """The earliest round with the best validation accuracy."""
    seen = [line.validation or 0.0 for line in history if line.phase == "training"]
    return seen.index(max(seen))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["full", "low-rank"])
@pytest.mark.parametrize("selection", ["validation", "last"])
def test_training_ends_when_validation_has_not_improved_for_so_many_rounds(
    owners: Partition, selection: str, how: str
) -> None:
    result = run(owners, "fedsage", settings=settings(selection, how))
    last = len(result.history) - 1
    assert last < ROUNDS - 1 and last == first_top(result.history) + PATIENCE
    assert result.record.round == (last if selection == "last" else last - PATIENCE)
    whole = settings(selection, how, patience=0, rounds_c=last + 1)
    again = run(owners, "fedsage", settings=whole)
    assert again.record.model_sha256 == result.record.model_sha256


@pytest.mark.slow
def test_local_models_and_the_whole_graph_stop_early_too(
    owners: Partition, graph: Graph
) -> None:
    for method, models in (("locsage", 3), ("globsage", 1)):
        result = run(owners, method, settings=settings(), evaluate_on=graph)
        assert len(result.history) < ROUNDS * models


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["validation", "last"])
def test_a_run_that_is_killed_on_its_way_stops_at_the_same_round(
    owners: Partition, tmp_path: Path, selection: str
) -> None:
    class Stop(Exception):
        pass

    whole = run(owners, "fedsage", settings=settings(selection))
    at = len(whole.history) - 2  # after the best round, before the last one

    def kill(event: Event) -> None:
        if event.round == at:
            raise Stop

    out = tmp_path / "r"
    with pytest.raises(Stop):
        run(owners, "fedsage", settings=settings(selection), out=out, callbacks=[kill])
    again = run(owners, "fedsage", settings=settings(selection), out=out, resume=True)
    assert again.record.resumed == 1
    assert again.record.model_sha256 == whole.record.model_sha256
    assert again.record.round == whole.record.round
    assert len(again.history) == len(whole.history)


def test_a_run_that_had_waited_long_enough_does_not_train_on(
    graph: Graph, owners: Partition
) -> None:
    class Kept(Journal):
        def keep(self, progress: Progress) -> None:
            self.start = progress

    setup = small_setup(graph, owners, classifier={"patience": PATIENCE, "rounds_c": ROUNDS})
    exchange, seen = exchange_on(setup), []
    exchange.journal, exchange.on_round = Kept(), lambda record: seen.append(record.t)
    how = {"rounds_c": ROUNDS, "selection": "last", "queries": "plain"}
    before = fedsage(exchange, setup.plan.phi, **how)  # type: ignore[arg-type]
    num_rounds = len(seen)
    assert num_rounds < ROUNDS
    after = fedsage(exchange, setup.plan.phi, **how)  # type: ignore[arg-type]
    assert len(seen) == num_rounds and after.round == before.round


def test_without_validation_nodes_nothing_is_waited_for(owners: Partition) -> None:
    how = settings() | {"data": {"val": 0.0}}
    how["classifier"]["rounds_c"] = PATIENCE + 3
    assert len(run(owners, "fedsage", settings=how).history) == PATIENCE + 3


def test_the_name_that_it_once_had_is_understood() -> None:
    old = load_config({"traffic": {"patience": 7, "rank": 4}})
    assert old.classifier.patience == 7 and old.traffic.rank == 4
    both = load_config({"traffic": {"patience": 7}, "classifier": {"patience": 2}})
    assert both.classifier.patience == 2
