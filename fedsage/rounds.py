"""The rounds of federated training, whatever the server and the owners do in each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from fedsage.protocol.changes.server import ByChanges
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import NO_HITS, Ask, Classifier, Hits, OwnerId, View
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import NO_CLASSIFIER, Progress, RoundRecord
from fedsage.protocol.procedures import in_full
from fedsage.protocol.server import ByModels, Rule, share_of_hits

Selection: TypeAlias = Literal["validation", "last"]
Queries: TypeAlias = Literal["auto"] | View
VIEWS: tuple[View, ...] = ("both", "mended", "plain")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A classifier, its round, and how it did at the owners."""

    classifier: Classifier
    round: int
    validation: float | None  # accuracy over all owners' validation nodes, if they were asked
    view: View  # which of its graphs an owner should query
    hits: dict[OwnerId, Hits]  # on each owner's test nodes and its own graph, if known
    tested: Hits = NO_HITS  # on all of them

    def beaten_by(self, validation: float) -> bool:
        """Whether an accuracy on validation nodes is higher."""
        return self.validation is None or validation > self.validation


def averaging_of(exchange: Exchange, rule: Rule) -> ByModels | ByChanges:
    """The way of averaging that the run's settings ask for."""
    full = in_full(exchange.plan.config)
    return ByModels(exchange, rule) if full else ByChanges(exchange, rule)


def in_rounds(
    server: ByModels | ByChanges,
    exchange: Exchange,
    classifier: Classifier,
    rounds_c: int,
    selection: Selection,
    queries: Queries,
) -> Outcome:
    """The rounds of :func:`fedsage`, whatever the server does in each of them."""
    journal = exchange.journal
    start = journal.start if journal.start.phase == "training" else Progress("training", 0)
    classifier = start.classifier if start.classifier.phi else classifier
    best = Outcome(
        start.best if start.best.phi else classifier,
        start.best_round, start.best_validation, start.best_view, {},
    )  # fmt: skip
    top = Top(start.top_round, start.top_validation)
    patience = exchange.plan.config.classifier.patience
    server.begin(classifier)
    last = start.t - 1
    for t in exchange.rounds(rounds_c, start.t):
        if top.waited(last, patience):
            break
        classifier, loss, hits = server.round(t, keep=best.round == last >= 0)
        validation = validation_of(hits, queries)
        counted = hits.total > 0
        if counted and validation > top.validation:
            top = Top(t, validation)
        if not (counted and selection == "validation") or best.beaten_by(validation):
            best = Outcome(classifier, t, validation, view_to_ask(hits, queries), {})
        exchange.on_round(RoundRecord("training", t, loss, validation, classifier))
        journal.keep(progress_of(classifier, t + 1, best, top))
        last = t
    ended = server.end(best.classifier, best.round, last=last)
    if ended is not None and ended.total:
        best = replace(best, validation=validation_of(ended, queries))
    tested, each = exchange.sum_and_each(DataOwner.test_classifier, Ask(0))
    return replace(best, hits=each, tested=tested)


@dataclass(frozen=True, slots=True)
class Top:
    """The best accuracy on validation nodes so far, and the round that had it."""

    round: int
    validation: float

    def waited(self, last: int, patience: int) -> bool:
        """Whether ``patience`` rounds up to ``last`` were no better; never if it is 0."""
        return 0 < patience <= last - self.round and self.round >= 0


def progress_of(classifier: Classifier, t: int, best: Outcome, top: Top) -> Progress:
    """The progress of FedSage after ``t`` rounds."""
    other = NO_CLASSIFIER if best.classifier is classifier else best.classifier
    return Progress(
        "training", t, {}, classifier, other, best.round,
        -1.0 if best.validation is None else best.validation, best.view, top.round,
        top.validation,
    )  # fmt: skip


def validation_of(hits: Hits, queries: Queries) -> float:
    """Accuracy on validation nodes: on the graph that is queried, or the mean of both."""
    if queries == "auto":
        return (share_of_hits(hits, "plain") + share_of_hits(hits, "mended")) / 2
    return share_of_hits(hits, queries)


def view_to_ask(hits: Hits, queries: Queries) -> View:
    """The view to query, as set or as chosen by validation nodes."""
    if queries == "auto":
        return max(VIEWS, key=lambda view: share_of_hits(hits, view))
    return queries
