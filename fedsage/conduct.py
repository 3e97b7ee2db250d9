"""One training from first to last round: which owners, which engine, which journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsage.checkpoint.server import DiskJournal, LocalJournals, ServerState, step_of
from fedsage.config import Config
from fedsage.custom import Method
from fedsage.engines.inprocess import InProcessEngine
from fedsage.evaluation.results import HistoryLine
from fedsage.methods import (
    FORGET,
    Journal,
    Mending,
    OnRound,
    Outcome,
    RoundRecord,
    fedsage,
    fedsage_plus,
    globsage,
    locsage,
)
from fedsage.prepare import Setting, data_owners, mending_of, way_of_mending, whole_graph_engine
from fedsage.protocol.engine import Engine, Miss, Traffic
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Phase
from fedsage.record import Stopwatch

OnLine = Callable[[HistoryLine], None]
EXCHANGED = ("neighgen", "shared", "copy", "classes", "subspace")  # mended by a procedure


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What came out of training, before it is judged."""

    outcomes: list[Outcome]
    traffic: dict[Phase, Traffic]  # that crossed a boundary
    owners: list[DataOwner]
    resumed: int = 0  # how often it was started again


def conduct(
    setting: Setting,
    config: Config,
    watch: Stopwatch,
    on_line: OnLine,
    own: Method | None = None,
    checkpoint: Path | None = None,
) -> Trained:
    """Run the method; time spent on mending counts as NeighGen's.

    With ``checkpoint``, every round is kept in that folder, and a run that was stopped goes
    on after the last round in it.
    """
    method, classifier = config.run.method, config.classifier
    common: dict[str, Any] = {
        "rounds_c": classifier.rounds_c,
        "selection": classifier.selection,
    }
    silent: dict[Phase, Traffic] = {
        "neighgen": Traffic(), "classifier": Traffic(), "evaluate": Traffic(),
    }  # fmt: skip
    if method == "globsage":
        engine = whole_graph_engine(setting, checkpoint)
        journal = journal_of(engine, checkpoint)
        on_round = told(journal, silent, on_line)
        outcome = globsage(engine, setting.phi, on_round=on_round, journal=journal, **common)
        return Trained([outcome], silent, [], resumed(journal))
    way = way_of_mending(method, config.mend.how)
    alone = method.startswith("locsage")
    owners = data_owners(setting, way, alone, own.owner if own else DataOwner)
    common |= {
        "mend": timed(mending_of(way, setting, config.neighgen.rounds_gen), watch),
        "queries": config.mend.queries,
        "aggregate": classifier.aggregate,
    }
    if alone:
        engines = [InProcessEngine([owner], folder=checkpoint) for owner in owners]
        journals = {
            engine.owners[0]: journal_of(engine, checkpoint, f"model-{i}")
            for i, engine in enumerate(engines)
        }
        kept = {i: one for i, one in journals.items() if isinstance(one, DiskJournal)}
        tellers = {i: told(one, silent, on_line) for i, one in journals.items()}

        def of_owner(record: RoundRecord) -> None:
            tellers[record.owner or 0](record)

        outcomes = locsage(
            engines, setting.phi, on_round=of_owner,
            journal=LocalJournals(kept) if kept else FORGET, **common,
        )  # fmt: skip
        return Trained(outcomes, silent, owners, max(map(resumed, journals.values())))
    engine = InProcessEngine(owners, config.run.workers, folder=checkpoint)
    if own:
        outcome, journal = by_own_method(own, engine, setting, common, checkpoint, on_line)
    else:
        journal = journal_of(engine, checkpoint)
        on_round = told(journal, engine.traffic, on_line, owners, engine.misses)
        outcome = fedsage_plus(
            engine, setting.phi, on_round=on_round, journal=journal, **common
        )
    return Trained([outcome], engine.traffic, owners, resumed(journal))


def by_own_method(
    own: Method,
    engine: InProcessEngine,
    setting: Setting,
    common: Mapping[str, Any],
    checkpoint: Path | None,
    on_line: OnLine,
) -> tuple[Outcome, Journal]:
    """A user's method; one with a loop of its own starts from the beginning again."""
    given = {key: value for key, value in common.items() if key != "mend"}
    if own.train is not fedsage:
        del given["aggregate"]
        on_round = told(FORGET, engine.traffic, on_line)
        return own.train(engine, setting.phi, on_round=on_round, **given), FORGET
    journal = journal_of(engine, checkpoint)
    on_round = told(journal, engine.traffic, on_line)
    return fedsage(engine, setting.phi, on_round=on_round, journal=journal, **given), journal


def journal_of(
    engine: InProcessEngine, checkpoint: Path | None, name: str = "server"
) -> Journal:
    """Where the server keeps its rounds; its owners are brought to where it starts."""
    if checkpoint is None:
        return FORGET
    keepers = list(engine.keepers.values())

    states: list[ServerState] = []

    def can(state: ServerState) -> bool:
        states.append(state)
        return all(keeper.has(*step_of(state, keeper.owner.id)) for keeper in keepers)

    journal = DiskJournal(checkpoint / name, engine, can)
    if journal.resumed:
        for keeper in keepers:
            keeper.restore(*step_of(states[-1], keeper.owner.id))
    return journal


def resumed(journal: Journal) -> int:
    """How often a run was started again."""
    return journal.resumed if isinstance(journal, DiskJournal) else 0


def timed(procedure: Mending, watch: Stopwatch) -> Mending:
    """The same, with its time counted as NeighGen's."""

    def mend(engine: Engine, on_round: OnRound, journal: Journal) -> None:
        with watch.phase("neighgen"):
            procedure(engine, on_round, journal)

    return mend


def told(
    journal: Journal,
    traffic: Mapping[Phase, Traffic],
    on_line: OnLine,
    owners: Sequence[DataOwner] = (),
    misses: list[Miss] | None = None,
) -> OnRound:
    """Make lines of history of rounds; those from before a restart are told first.

    ``misses`` are taken out of the engine's list, and stand in the line of their round.
    """
    missed = misses if misses is not None else []
    lines = journal.lines if isinstance(journal, DiskJournal) else []
    for line in lines:
        on_line(line)
    start = time.perf_counter() - (lines[-1].seconds if lines else 0.0)

    def on_round(record: RoundRecord) -> None:
        line = HistoryLine(
            record.phase,
            record.t,
            record.loss,
            record.validation,
            asdict(traffic[record.phase]),
            time.perf_counter() - start,
            record.owner,
            record.terms,
            share_picked(owners) if record.phase == "neighgen" else None,
            [asdict(miss) for miss in missed],
        )
        missed.clear()
        lines.append(line)
        on_line(line)

    return on_round


def share_picked(owners: Sequence[DataOwner]) -> float | None:
    """The share of all owners' nodes that were ever the nearest to a generated neighbor.

    None where nobody searched.
    """
    picked = [owner.gen.picked for owner in owners if owner.gen is not None]
    share = float(np.concatenate(picked).mean()) if picked else 0.0
    return share or None
