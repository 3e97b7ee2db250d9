"""The methods of the paper: which loop runs on which owners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from fedsage.errors import ConfigError, nearest
from fedsage.mending.way import WAYS, Way
from fedsage.protocol.averaging import averaging_of
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import NO_HITS, Ask, Classifier, Hits, OwnerId, View
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.progress import NO_CLASSIFIER, Progress, RoundRecord
from fedsage.protocol.server import Rule, average, share_of_hits
from fedsage.registry import Registry, is_file, run_file

Selection: TypeAlias = Literal["validation", "last"]
Queries: TypeAlias = Literal["auto"] | View
Topology: TypeAlias = Literal["federated", "alone", "whole"]
VIEWS: tuple[View, ...] = ("both", "mended", "plain")
AS_SET = "as mend.how says"
PLUS = "fedsage+"  # a way of mending may follow


@dataclass(frozen=True, slots=True)
class Outcome:
    """A classifier, its round, and how it did at the owners."""

    classifier: Classifier
    round: int
    validation: float  # accuracy over all owners' validation nodes
    view: View  # which of its graphs an owner should query
    hits: dict[OwnerId, Hits]  # on each owner's test nodes and its own graph, if known
    tested: Hits = NO_HITS  # on all of them


@runtime_checkable
class Loop(Protocol):
    """What runs on owners after their graphs are mended: see :func:`fedsage`."""

    def __call__(
        self,
        exchange: Exchange,
        classifier: Classifier,
        *,
        rounds_c: int,
        selection: Selection,
        queries: Queries,
        rule: Rule,
    ) -> Outcome:
        """Train, and return the outcome."""


def fedsage(
    exchange: Exchange,
    classifier: Classifier,
    *,
    rounds_c: int,
    selection: Selection,
    queries: Queries,
    rule: Rule = average,
) -> Outcome:
    """FedSage (Sec. 3.2): a classifier trained by federated averaging.

    Algorithm 1, lines 4 and 5: broadcast φ, then ``rounds_c`` times procedures F and B. With
    ``selection="validation"`` the outcome is the round whose mean classifier got most of the
    owners' validation nodes right (the earliest if several are equal); otherwise, or if nobody
    has any, the last one. If owners mended their graphs, ``queries="auto"`` counts validation
    nodes on both G_i and G'_i, and then queries whichever of the two, or both, did better.
    With ``classifier.patience`` training ends after so many rounds without a better accuracy
    on validation nodes.
    """
    journal = exchange.journal
    start = journal.start if journal.start.phase == "training" else Progress("training", 0)
    classifier = start.classifier if start.classifier.phi else classifier
    best = Outcome(
        start.best if start.best.phi else classifier,
        start.best_round, start.best_validation, start.best_view, {},
    )  # fmt: skip
    top = Top(start.top_round, start.top_validation)
    patience = exchange.plan.config.classifier.patience
    server = averaging_of(exchange, rule)
    server.start(classifier)
    last = start.t - 1
    for t in exchange.rounds(rounds_c, start.t):
        if top.waited(last, patience):
            break
        classifier, loss, hits = server.round(t, keep=best.round == last >= 0)
        validation = validation_of(hits, queries)
        counted = hits.total > 0
        if counted and validation > top.validation:
            top = Top(t, validation)
        if not (counted and selection == "validation") or validation > best.validation:
            best = Outcome(classifier, t, validation, view_to_ask(hits, queries), {})
        exchange.on_round(RoundRecord("training", t, loss, validation, classifier))
        journal.keep(progress_of(classifier, t + 1, best, top))
        last = t
    server.end(best.classifier, best.round, last=last)
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
        "training", t, {}, classifier, other, best.round, best.validation, best.view,
        top.round, top.validation,
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


def fedsage_plus(
    exchange: Exchange,
    classifier: Classifier,
    *,
    mend: Callable[[Exchange], None],
    train: Loop = fedsage,
    rounds_c: int,
    selection: Selection,
    queries: Queries,
    rule: Rule = average,
) -> Outcome:
    """FedSage+, Alg. 1, lines 2 to 5: every owner mends its graph, then FedSage.

    In the paper ``mend`` is :func:`fedsage.mending.neighgen.by_neighgen`.
    """
    if exchange.journal.start.phase == "mending":
        mend(exchange)
    return train(
        exchange,
        classifier,
        rounds_c=rounds_c,
        selection=selection,
        queries=queries,
        rule=rule,
    )


@dataclass(frozen=True, slots=True)
class Method:
    """A method: a name, the loop, the kind of owners, who they are, and how they mend.

    ``mends`` is a way of mending, or ``AS_SET``. With ``topology="alone"`` every owner runs the
    loop by itself (LocSage); with ``"whole"`` there is one owner, which holds G (GlobSage).
    """

    name: str
    train: Loop = fedsage
    owner: type[DataOwner] = DataOwner
    topology: Topology = "federated"
    mends: str = "none"

    def __post_init__(self) -> None:
        """Refuse impossible combinations."""
        if self.topology == "whole" and self.mends != "none":
            raise ConfigError(f"{self.name}: one owner of the whole graph misses no neighbors.")

    def way(self, how: str) -> Way:
        """How it mends; ``how`` is the setting."""
        return WAYS.find(how if self.mends == AS_SET else self.mends).thing


METHODS: Registry[Method] = Registry("method", "method", "fedsage.methods")
T = TypeVar("T", bound=Loop | type[DataOwner])


def method(name: str, *, topology: Topology = "federated", mends: str = "none") -> Any:
    """Register a method: decorates a loop or a kind of owner; see :class:`Method`."""
    if is_file(mends):
        raise ConfigError(f"Method '{name}' mends by a file, {mends}. Name a way of mending.")

    def register(thing: T) -> T:
        loop: Any = fedsage if isinstance(thing, type) else thing
        owner: Any = thing if isinstance(thing, type) else DataOwner
        METHODS.add(name, Method(name, loop, owner, topology, mends), thing)
        return thing

    return register


for registered, about in (
    (Method("fedsage"), "FedSage: a classifier trained by federated averaging, Sec. 3.2."),
    (Method("fedsage+", mends=AS_SET), "FedSage+: mends as mend.how says, then FedSage."),
    (Method("locsage", topology="alone"), "LocSage: every owner on its own, Sec. 4.2."),
    (
        Method("locsage+", topology="alone", mends="neighgen"),
        "LocSage+: every owner on its own, mended by its own NeighGen.",
    ),
    (Method("globsage", topology="whole"), "GlobSage: one owner holds the whole graph."),
    (Method("oracle", mends="oracle"), "FedSage on graphs with their true missing links."),
):
    METHODS.add(registered.name, registered, about)


def find_method(name: str) -> Method:
    """The method of that name, in that file, or ``fedsage+WAY``."""
    if is_file(name) and not name.startswith(PLUS):
        given = [one for one in vars(run_file(name)).values() if isinstance(one, Method)]
        return given[0] if given else METHODS.find(name).thing
    if name in METHODS.ours():
        return METHODS.find(name).thing
    way = name.removeprefix(PLUS)
    if name.startswith(PLUS) and (is_file(way) or way in WAYS.ours()):
        return Method(f"{PLUS}{WAYS.find(way).name}", mends=way)
    raise ConfigError(f"Unknown method '{name}'.{nearest(name, all_methods())}")


def all_methods() -> dict[str, str]:
    """Every method that has a name, with its description."""
    ours = {name: entry.about for name, entry in METHODS.ours().items()}
    ways = {name: entry for name, entry in WAYS.ours().items() if entry.thing.asks}
    return ours | {f"{PLUS}{name}": entry.about for name, entry in ways.items()}
