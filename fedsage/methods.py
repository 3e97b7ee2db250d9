"""The methods of the paper: which loop runs on whose owners. No method needs a class."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from fedsage.errors import ConfigError
from fedsage.protocol.engine import Engine
from fedsage.protocol.messages import Classifier, Hits, OwnerId
from fedsage.protocol.server import server_execution_for_c, share_of_hits

Selection: TypeAlias = Literal["validation", "last"]
Queries: TypeAlias = Literal["auto", "mended", "plain"]


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One finished round, for progress lines and learning curves."""

    phase: Literal["classifier"]
    t: int
    loss: float  # mean over owners
    validation: float  # accuracy of the averaged classifier over all owners' validation nodes
    owner: OwnerId | None = None  # whose local model, where every owner trains its own


@dataclass(frozen=True, slots=True)
class Outcome:
    """A classifier, the round it is of, and how it did at the owners."""

    classifier: Classifier
    round: int
    validation: float  # accuracy over all owners' validation nodes
    mended: bool  # whether owners had better query G'_i than G_i
    hits: dict[OwnerId, Hits]  # on each owner's test nodes, on what it holds


OnRound: TypeAlias = Callable[[RoundRecord], None]


def ignore(record: RoundRecord) -> None:
    """For callers that want no progress."""


def fedsage(
    engine: Engine,
    classifier: Classifier,
    *,
    rounds_c: int,
    selection: Selection = "validation",
    queries: Queries = "auto",
    on_round: OnRound = ignore,
) -> Outcome:
    """FedSage (Sec. 3.2): GraphSage trained by federated averaging.

    Algorithm 1, lines 4 and 5: broadcast φ, then ``rounds_c`` times procedures F and B. With
    ``selection="validation"`` the outcome is the round whose mean classifier got most of the
    owners' validation nodes right (the earliest of equals), else, or where nobody has any,
    the last one. Where owners
    mended their graphs, ``queries="auto"`` asks on G'_i if that is no worse on validation
    nodes than asking on G_i.
    """
    engine.broadcast_classifier(classifier)
    best, best_round, best_validation, best_mended = classifier, -1, -1.0, False
    for t in range(rounds_c):
        classifier, losses, hits = server_execution_for_c(engine, t)
        mended = ask_mended(hits, queries)
        validation = share_of_hits(hits, mended)
        judged = selection == "validation" and any(reply.total for reply in hits.values())
        if not judged or validation > best_validation:
            best, best_round, best_validation, best_mended = classifier, t, validation, mended
        loss = sum(losses.values()) / len(losses)
        if not math.isfinite(loss):
            raise ConfigError(
                f"Training diverged: the loss is {loss} after round {t + 1}. Lower the "
                "learning rate (classifier.eta), or check the scale of the features."
            )
        on_round(RoundRecord("classifier", t, loss, validation))
    if best_round != rounds_c - 1:
        engine.broadcast_classifier(best)
    return Outcome(best, best_round, best_validation, best_mended, engine.test_classifier())


def ask_mended(hits: Mapping[OwnerId, Hits], queries: Queries) -> bool:
    """Whether to query G'_i, as set or as validation nodes say."""
    if queries == "auto":
        return share_of_hits(hits, mended=True) >= share_of_hits(hits)
    return queries == "mended"


def locsage(
    engines: Sequence[Engine],
    classifier: Classifier,
    *,
    rounds_c: int,
    selection: Selection = "validation",
    on_round: OnRound = ignore,
) -> list[Outcome]:
    """LocSage: the same training with every owner on its own, one engine each."""
    outcomes = []
    for engine in engines:
        (owner,) = engine.owners

        def of_owner(record: RoundRecord, owner: OwnerId = owner) -> None:
            on_round(replace(record, owner=owner))

        outcomes.append(
            fedsage(
                engine,
                classifier,
                rounds_c=rounds_c,
                selection=selection,
                on_round=of_owner,
            )
        )
    return outcomes


def globsage(
    engine: Engine,
    classifier: Classifier,
    *,
    rounds_c: int,
    selection: Selection = "validation",
    on_round: OnRound = ignore,
) -> Outcome:
    """GlobSage, the upper bound: the same training with one owner whose subgraph is G."""
    return fedsage(
        engine, classifier, rounds_c=rounds_c, selection=selection, on_round=on_round
    )
