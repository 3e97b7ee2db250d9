"""The methods of the paper: which loop runs on which owners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from fedsage.config import Config
from fedsage.errors import ConfigError, nearest
from fedsage.mending.way import WAYS, Way
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Classifier
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.personal import PersonalOwner
from fedsage.protocol.plan import Progress, RoundRecord
from fedsage.protocol.server import ByModels, Rule, average
from fedsage.registry import Registry, is_file, run_file
from fedsage.rounds import Outcome, Queries, Selection, averaging_of, in_rounds

Topology: TypeAlias = Literal["federated", "alone", "whole"]
AS_SET = "as mend.how says"
PLUS = "fedsage+"  # a way of mending may follow
ETAS = {"classifier.eta": (3e-3, 1e-2, 1e-3)}  # what every method may try; the first is usual
ETAS_WHOLE = {"classifier.eta_whole": (1e-3, 3e-3, 1e-2)}


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
    how = rounds_c, selection, queries
    return in_rounds(averaging_of(exchange, rule), exchange, classifier, *how)


def privately(
    exchange: Exchange,
    classifier: Classifier,
    *,
    rounds_c: int,
    selection: Selection,
    queries: Queries,
    rule: Rule = average,
) -> Outcome:
    """Private training: ``rounds_c`` steps along noisy sums; the last weights are averaged.

    Nothing is chosen by validation nodes, and no test node is counted: that would cost ε.
    """
    from fedsage.protocol import private_server  # takes time to load

    journal = exchange.journal
    start = journal.start if journal.start.phase == "training" else Progress("training", 0)
    at = private_server.begun(exchange, start.kept)
    for t in exchange.rounds(rounds_c, start.t):
        private_server.step(exchange, at, t)
        classifier = private_server.classifier_of(exchange.plan, at)
        exchange.on_round(RoundRecord("training", t, None, None, classifier))
        journal.keep(Progress("training", t + 1, at.kept(), classifier))
    classifier = private_server.classifier_of(exchange.plan, at)
    private_server.hand_out(exchange, classifier)
    return Outcome(classifier, rounds_c - 1, None, "plain", {})


@dataclass(frozen=True, slots=True)
class LoopWith:
    """The loop of :func:`fedsage` with another server's side of training."""

    server: type[ByModels]

    def __call__(
        self,
        exchange: Exchange,
        classifier: Classifier,
        *,
        rounds_c: int,
        selection: Selection,
        queries: Queries,
        rule: Rule = average,
    ) -> Outcome:
        """Train, and return the outcome."""
        how = rounds_c, selection, queries
        return in_rounds(self.server(exchange, rule), exchange, classifier, *how)


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
    ``options`` are settings of its own, ``--set method.NAME=VALUE``. ``search`` is what may be
    tried for it, by setting; the first value is the usual one. ``resumes`` says whether owners
    keep no more from round to round than those of FedSage do.
    """

    name: str
    train: Loop = fedsage
    owner: type[DataOwner] = DataOwner
    topology: Topology = "federated"
    mends: str = "none"
    options: Mapping[str, float] = field(default_factory=dict)
    search: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: ETAS)
    resumes: bool = True

    def __post_init__(self) -> None:
        """Refuse impossible combinations."""
        if self.topology == "whole" and self.mends != "none":
            raise ConfigError(f"{self.name}: one owner of the whole graph misses no neighbors.")

    def way(self, how: str) -> Way:
        """How it mends; ``how`` is the setting."""
        return WAYS.find(how if self.mends == AS_SET else self.mends).thing

    @property
    def personal(self) -> bool:
        """Whether every owner ends with a classifier of its own."""
        return issubclass(self.owner, PersonalOwner)

    @property
    def sees_models(self) -> bool:
        """Whether the server must see each owner's classifier as it is."""
        return isinstance(self.train, LoopWith)

    @property
    def modules(self) -> list[str]:
        """Where its procedures are written."""
        server = self.train.server.__mro__ if isinstance(self.train, LoopWith) else ()
        kinds = [kind.__module__ for kind in (*self.owner.__mro__, *server)]
        return [*kinds, getattr(self.train, "__module__", "")]


METHODS: Registry[Method] = Registry("method", "method", "fedsage.methods", "fedsage.rivals")
T = TypeVar("T", bound=Loop | type[DataOwner] | type[ByModels])


def method(
    name: str,
    *,
    topology: Topology = "federated",
    mends: str = "none",
    owner: type[DataOwner] = DataOwner,
    options: Mapping[str, float] | None = None,
    search: Mapping[str, tuple[Any, ...]] | None = None,
    resumes: bool = True,
) -> Any:
    """Register a method: decorates a kind of owner, a server's side, or a loop.

    Args:
        name: For ``--method``.
        topology: Who trains together; see :class:`Method`.
        mends: The way of mending that comes first.
        owner: The kind of owner, if a server's side or a loop is decorated.
        options: Settings of its own with their usual values: ``--set method.NAME=VALUE``.
        search: What ``fedsage arena`` may try, by setting, beside the learning rate.
        resumes: Whether its owners keep nothing else from round to round than those of FedSage
            do, so that a run that was stopped can go on. One with a server's side or a loop of
            its own starts again.
    """
    if is_file(mends):
        raise ConfigError(f"Method '{name}' mends by a file, {mends}. Name a way of mending.")
    tried = {**(search or {}), **(ETAS_WHOLE if topology == "whole" else ETAS)}
    own = dict(options or {})
    check_options(name, own, tried)

    def register(thing: T) -> T:
        kind: Any = owner
        loop: Any = thing
        if isinstance(thing, type) and issubclass(thing, DataOwner):
            kind, loop = thing, fedsage
        elif isinstance(thing, type):
            loop = LoopWith(thing)
        made = Method(name, loop, kind, topology, mends, own, tried, resumes)
        METHODS.add(name, made, thing)
        return thing

    return register


def check_options(name: str, own: Mapping[str, Any], tried: Mapping[str, Any]) -> None:
    """Refuse settings of a method's own that are no numbers, and a search for unknown ones."""
    for option, value in own.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise ConfigError(f"Option '{option}' of {name} is {value!r}. Give a number.")
    known = [*all_settings(), *(f"method.{option}" for option in own)]
    for setting, values in tried.items():
        if setting not in known:
            close = nearest(setting, known)
            raise ConfigError(f"{name} searches '{setting}': no such setting exists.{close}")
        if not values:
            raise ConfigError(f"{name} has no values to try for '{setting}'. Give some.")


@cache
def all_settings() -> list[str]:
    """The names of all settings: ``section.key``."""
    sections = vars(Config()).items()
    return [f"{name}.{key}" for name, one in sections for key in type(one).model_fields]


for registered, about in (
    (Method("fedsage"), "FedSage: a classifier trained by federated averaging, Sec. 3.2."),
    (Method("fedsage+", mends=AS_SET), "FedSage+: mends as mend.how says, then FedSage."),
    (Method("locsage", topology="alone"), "LocSage: every owner on its own, Sec. 4.2."),
    (
        Method("locsage+", topology="alone", mends="neighgen"),
        "LocSage+: every owner on its own, mended by its own NeighGen.",
    ),
    (
        Method("globsage", topology="whole", search=ETAS_WHOLE),
        "GlobSage: one owner holds the whole graph.",
    ),
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


def with_options(about: str, method: Method) -> str:
    """What a method is, and the settings that it has for itself, with their usual values."""
    own = ", ".join(f"method.{name}={value:g}" for name, value in method.options.items())
    return f"{about} Settings: {own}." if own else about


def all_methods() -> dict[str, str]:
    """Every method that has a name, with its description."""
    ours = {name: with_options(one.about, one.thing) for name, one in METHODS.ours().items()}
    ways = {name: entry for name, entry in WAYS.ours().items() if entry.thing.asks}
    return ours | {f"{PLUS}{name}": entry.about for name, entry in ways.items()}
