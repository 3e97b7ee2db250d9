"""The methods of the paper: which loop runs on whose owners. No method needs a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from fedsage.models.parameters import Parameters
from fedsage.protocol.aggregate import Rule
from fedsage.protocol.engine import Engine
from fedsage.protocol.messages import (
    Classifier,
    GenDone,
    Hits,
    OwnerId,
    SharedNeighGen,
    Subspace,
    View,
)
from fedsage.protocol.server import (
    add_up_class_links,
    average_neighgen,
    common_subspace,
    server_execution_for_c,
    server_execution_for_gen,
    share_of_hits,
)

Selection: TypeAlias = Literal["validation", "last"]
Queries: TypeAlias = Literal["auto"] | View
VIEWS: tuple[View, ...] = ("both", "mended", "plain")
NO_CLASSIFIER = Classifier({}, {})


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One finished round, for progress lines and learning curves."""

    phase: Literal["neighgen", "classifier"]
    t: int
    loss: float  # mean over owners
    validation: float | None  # accuracy of the averaged classifier on validation nodes
    owner: OwnerId | None = None  # whose local model, where every owner trains its own
    terms: dict[str, float] = field(default_factory=dict)  # of the loss, where it has several


@dataclass(frozen=True, slots=True)
class Outcome:
    """A classifier, the round it is of, and how it did at the owners."""

    classifier: Classifier
    round: int
    validation: float  # accuracy over all owners' validation nodes
    view: View  # of its graph that an owner had better query
    hits: dict[OwnerId, Hits]  # on each owner's test nodes, on what it holds


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a method has come: all that the server must remember between two rounds."""

    phase: Literal["neighgen", "classifier"]
    t: int  # rounds of that phase that are over
    theta: Parameters = field(default_factory=dict)  # of a NeighGen that all share
    classifier: Classifier = NO_CLASSIFIER
    best: Classifier = NO_CLASSIFIER  # if another one
    best_round: int = -1
    best_validation: float = -1.0
    best_view: View = "plain"


class Journal:
    """Where a method writes how far it has come, and where it starts. This one forgets."""

    start = Progress("neighgen", 0)

    def keep(self, progress: Progress) -> None:
        """Called after every round."""

    def of(self, owner: OwnerId) -> Journal:
        """The journal of one owner's local model."""
        return self


OnRound: TypeAlias = Callable[[RoundRecord], None]
Mending: TypeAlias = Callable[[Engine, OnRound, Journal], None]
FORGET = Journal()


def ignore(record: RoundRecord) -> None:
    """For callers that want no progress."""


def fedsage_plus(
    engine: Engine,
    classifier: Classifier,
    *,
    mend: Mending,
    rounds_c: int,
    selection: Selection = "validation",
    queries: Queries = "auto",
    aggregate: Rule = "mean",
    on_round: OnRound = ignore,
    journal: Journal = FORGET,
) -> Outcome:
    """FedSage+, Alg. 1, lines 2 to 5: every owner mends its graph, then FedSage.

    In the paper ``mend`` is :func:`by_neighgen`.
    """
    if journal.start.phase == "neighgen":
        mend(engine, on_round, journal)
    return fedsage(
        engine,
        classifier,
        rounds_c=rounds_c,
        selection=selection,
        queries=queries,
        aggregate=aggregate,
        on_round=on_round,
        journal=journal,
    )


def by_neighgen(rounds_gen: int, partners: int = 0, seed: int = 0) -> Mending:
    """Alg. 1, lines 2 and 3: train NeighGen jointly, then mend."""

    def mend(engine: Engine, on_round: OnRound, journal: Journal = FORGET) -> None:
        for t in range(journal.start.t, rounds_gen):
            on_round(gen_record(t, server_execution_for_gen(engine, t, partners, seed)))
            journal.keep(Progress("neighgen", t + 1))
        engine.mend_graph()

    return mend


def by_shared_neighgen(rounds_gen: int, theta: Parameters) -> Mending:
    """The paper's ablation: one NeighGen for all owners, trained by FedAvg from ``theta``."""

    def mend(engine: Engine, on_round: OnRound, journal: Journal = FORGET) -> None:
        start = journal.start
        shared = SharedNeighGen(start.t, start.theta or theta)
        for t in range(start.t, rounds_gen):
            shared, done = average_neighgen(engine, shared)
            on_round(gen_record(t, done))
            journal.keep(Progress("neighgen", t + 1, theta=shared.theta))
        engine.receive_shared_neighgen(shared)

    return mend


def by_copies(engine: Engine, on_round: OnRound, journal: Journal = FORGET) -> None:
    """Copies of an owner's own nodes: nothing is exchanged."""
    engine.mend_by_copies()


def by_classes(engine: Engine, on_round: OnRound, journal: Journal = FORGET) -> None:
    """Neighbors drawn through the class-to-class links of all owners: one sum is exchanged."""
    engine.mend_by_classes(add_up_class_links(engine))


def by_subspace(start: Subspace, iterations: int) -> Mending:
    """Projections on the subspace of all owners' features: a few sums are exchanged."""

    def mend(engine: Engine, on_round: OnRound, journal: Journal = FORGET) -> None:
        engine.mend_by_subspace(common_subspace(engine, start, iterations))

    return mend


def by_nothing(engine: Engine, on_round: OnRound, journal: Journal = FORGET) -> None:
    """Leave G_i as it is, or as it was mended before."""


def gen_record(t: int, done: Mapping[OwnerId, GenDone]) -> RoundRecord:
    """One round of NeighGen, as means over owners."""

    def mean(name: str) -> float:
        return sum(getattr(each, name) for each in done.values()) / len(done)

    terms = {name: mean(name) for name in ("degree", "feature", "classification")}
    return RoundRecord("neighgen", t, mean("loss"), None, terms=terms)


def fedsage(
    engine: Engine,
    classifier: Classifier,
    *,
    rounds_c: int,
    selection: Selection = "validation",
    queries: Queries = "auto",
    aggregate: Rule = "mean",
    on_round: OnRound = ignore,
    journal: Journal = FORGET,
) -> Outcome:
    """FedSage (Sec. 3.2): GraphSage trained by federated averaging.

    Algorithm 1, lines 4 and 5: broadcast φ, then ``rounds_c`` times procedures F and B. With
    ``selection="validation"`` the outcome is the round whose mean classifier got most of the
    owners' validation nodes right (the earliest of equals), else, or where nobody has any,
    the last one. Where owners mended their graphs, ``queries="auto"`` counts validation nodes
    on G_i and on G'_i alike, and then asks on whichever of the two, or on both, did better.
    """
    start = journal.start if journal.start.phase == "classifier" else Progress("classifier", 0)
    classifier = start.classifier if start.classifier.phi else classifier
    best = Outcome(
        start.best if start.best.phi else classifier,
        start.best_round, start.best_validation, start.best_view, {},
    )  # fmt: skip
    engine.broadcast_classifier(classifier)
    for t in range(start.t, rounds_c):
        classifier, losses, hits = server_execution_for_c(engine, t, aggregate)
        validation = validation_of(hits, queries)
        judged = selection == "validation" and any(reply.total for reply in hits.values())
        if not judged or validation > best.validation:
            best = Outcome(classifier, t, validation, view_to_ask(hits, queries), {})
        loss = sum(losses.values()) / len(losses)
        on_round(RoundRecord("classifier", t, loss, validation))
        journal.keep(progress_of(classifier, t + 1, best))
    if best.round != rounds_c - 1 or len(engine.holding) < len(engine.owners):
        engine.broadcast_classifier(best.classifier)
    return replace(best, hits=engine.test_classifier())


def progress_of(classifier: Classifier, t: int, best: Outcome) -> Progress:
    """FedSage after ``t`` rounds."""
    other = NO_CLASSIFIER if best.classifier is classifier else best.classifier
    return Progress(
        "classifier", t, {}, classifier, other, best.round, best.validation, best.view
    )


def validation_of(hits: Mapping[OwnerId, Hits], queries: Queries) -> float:
    """Accuracy on validation nodes: on the graph that is queried, or the mean of both."""
    if queries == "auto":
        return (share_of_hits(hits, "plain") + share_of_hits(hits, "mended")) / 2
    return share_of_hits(hits, queries)


def view_to_ask(hits: Mapping[OwnerId, Hits], queries: Queries) -> View:
    """The view to query, as set or as validation nodes say."""
    if queries == "auto":
        return max(VIEWS, key=lambda view: share_of_hits(hits, view))
    return queries


def locsage(
    engines: Sequence[Engine],
    classifier: Classifier,
    *,
    mend: Mending = by_nothing,
    rounds_c: int,
    selection: Selection = "validation",
    queries: Queries = "auto",
    aggregate: Rule = "mean",
    on_round: OnRound = ignore,
    journal: Journal = FORGET,
) -> list[Outcome]:
    """LocSage and LocSage+ (Sec. 4.2): the same with every owner on its own, one engine each.

    With :func:`by_neighgen` it is LocSage+: no other owner adds to NeighGen's loss.
    """
    outcomes = []
    for engine in engines:
        (owner,) = engine.owners

        def of_owner(record: RoundRecord, owner: OwnerId = owner) -> None:
            on_round(replace(record, owner=owner))

        outcomes.append(
            fedsage_plus(
                engine,
                classifier,
                mend=mend,
                rounds_c=rounds_c,
                selection=selection,
                queries=queries,
                aggregate=aggregate,
                on_round=of_owner,
                journal=journal.of(owner),
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
    journal: Journal = FORGET,
) -> Outcome:
    """GlobSage, the upper bound: the same training with one owner whose subgraph is G."""
    return fedsage(
        engine,
        classifier,
        rounds_c=rounds_c,
        selection=selection,
        on_round=on_round,
        journal=journal,
    )
