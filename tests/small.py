"""Runs on the small graph, one step below ``fedsage.run``: owners, an engine, an exchange."""

from __future__ import annotations

from typing import Any

from fedsage.config import Config, load_config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.methods import fedsage_plus
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Engine
from fedsage.rounds import Outcome
from fedsage.runs.setup import Setup, data_owners, prepare

SMALL: dict[str, dict[str, Any]] = {
    "data": {"dataset": "synthetic", "owners": 3},
    "synthetic": {"nodes": 60, "classes": 3, "features": 40, "words": 6.0, "topicality": 0.6},
    "model": {"widths": [16, 8], "dropout": 0.0},
    "classifier": {"rounds_c": 3, "batch_size": 16},
}

HOWS = ("full", "low-rank")  # the forms that procedures B and F are sent in


def traffic_of(how: str, rank: int = 2) -> dict[str, object]:
    """Settings by which messages go in that form, with large layers in the small run too."""
    return {"how": how, "rank": rank}


def small_config(
    way: str = "none", preset: str = "best", **sections: dict[str, object]
) -> Config:
    """The small run's settings, with a way of mending; keywords are settings by section."""
    return load_config(SMALL, sections, {"run": {"method": f"fedsage+{way}"}}, preset=preset)


def small_setup(
    graph: Graph, owners: Partition, way: str = "none", preset: str = "best", **sections: Any
) -> Setup:
    """A run on the small graph, before its first round."""
    return prepare(small_config(way, preset, **sections), owners, graph)


def owners_of(setup: Setup) -> list[DataOwner]:
    """The owners of a federated run."""
    (group,) = data_owners(setup)
    return group


def exchange_on(setup: Setup, engine: Engine | None = None) -> Exchange:
    """An exchange with the owners of a run, or over another engine."""
    return Exchange(engine or InProcessEngine(owners_of(setup)), setup.plan)


def trained(setup: Setup, exchange: Exchange, rounds_c: int) -> Outcome:
    """Mend and train on that exchange."""
    return fedsage_plus(
        exchange,
        setup.plan.phi,
        mend=setup.way.mend,
        rounds_c=rounds_c,
        selection=setup.config.classifier.selection,
        queries=setup.config.mend.queries,
    )
