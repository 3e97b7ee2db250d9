"""The agreed run, the engine that carries its messages, and how far it has come.

A plan is what server and owners each derive from the same settings; it holds no data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from fedsage.config import Config
from fedsage.models.backbone import Shape, new_model
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.protocol.messages import Classifier, OwnerId, View
from fedsage.protocol.procedures import Phase, Procedure, Reply, Request
from fedsage.rng import Stream, generator


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What a run begins with instead of fresh weights: those of an earlier one."""

    phi: Parameters
    generators: Mapping[OwnerId, Parameters] = field(default_factory=dict)  # as far as known


@dataclass(frozen=True, eq=False)
class Plan:
    """The agreed run.

    ``asks`` are the only procedures that an owner may be asked to run, by name.
    """

    config: Config
    num_features: int  # d_x
    num_classes: int  # d_y
    nodes: tuple[int, ...]  # of each owner
    asks: Mapping[str, Procedure[Any, Any, Any]]
    weights: Mapping[OwnerId, float] = field(default_factory=dict)  # if agreed
    counted: int = 0  # nodes of all owners, if the number of each is not known
    numbers: int | None = None  # columns to scale, if known
    start: Start | None = None  # from an earlier run, if it begins with one

    @property
    def d_x(self) -> int:
        """How many features there are."""
        return self.num_features

    @property
    def d_y(self) -> int:
        """How many classes there are."""
        return self.num_classes

    @cached_property
    def nodes_of(self) -> Mapping[OwnerId, int]:
        """How many nodes each owner has, for owners that joined."""
        return dict(zip(self.weights or range(len(self.nodes)), self.nodes, strict=True))

    @property
    def num_nodes(self) -> int:
        """How many nodes all owners have together."""
        return self.counted or sum(self.nodes)

    @property
    def seed(self) -> int:
        """The seed of all random streams."""
        return self.config.run.seed

    @property
    def shape(self) -> Shape:
        """Everything needed to build the classifier F."""
        return Shape(self.d_x, self.d_y, self.config.model)

    @cached_property
    def phi(self) -> Classifier:
        """The first φ: of an earlier run, or of the seed; depends on no data but its size."""
        return Classifier(self.start.phi if self.start else self.fresh_phi(self.shape), {})

    def fresh_phi(self, shape: Shape) -> Parameters:
        """Weights of the classifier that are drawn by the seed."""
        return parameters_of(new_model(shape, self.stream("phi")))

    def generator_of(self, owner: OwnerId) -> Parameters:
        """The generator that an owner begins with; empty if it is a fresh one."""
        return dict(self.start.generators.get(owner, {})) if self.start else {}

    def stream(self, *path: str | int) -> Stream:
        """The random stream for one purpose."""
        return generator(self.seed, *path)


@dataclass(slots=True)
class Traffic:
    """Serialized bytes carried so far."""

    up: int = 0  # owners → server
    down: int = 0  # server → owners
    full_up: int = 0  # had all messages been full ones
    full_down: int = 0

    @property
    def sent(self) -> dict[str, int]:
        """The bytes carried, as in results."""
        return {"up": self.up, "down": self.down}

    @property
    def full(self) -> dict[str, int]:
        """The bytes that full messages would have taken."""
        return {"up": self.full_up, "down": self.full_down}


@dataclass(frozen=True, slots=True)
class Miss:
    """An owner was left out of one exchange."""

    owner: OwnerId
    procedure: str
    why: str  # it did not answer in time, or what was wrong with its answer


def no_traffic() -> dict[Phase, Traffic]:
    """No bytes carried in any phase."""
    return {phase: Traffic() for phase in get_args(Phase)}


class Engine(ABC):
    """Runs a procedure on owners; in what order, and where, is up to the engine."""

    def __init__(self, owners: Sequence[OwnerId], min_owners: int | None = None) -> None:
        self.owners = list(owners)
        self.min_owners = len(self.owners) if min_owners is None else min_owners
        self.traffic = no_traffic()
        self.owed: dict[OwnerId, list[tuple[Procedure[Any, Any, Any], Any]]] = {}  # to be sent

    @abstractmethod
    def carry(
        self,
        procedure: Procedure[Any, Request, Reply],
        requests: Mapping[OwnerId, Request],
        lot: int | None = None,
    ) -> dict[OwnerId, Reply | Miss]:
        """Carry requests there and replies back, masked by a ``lot`` if there is one."""

    def name_of(self, owner: OwnerId) -> str:
        """An owner's name."""
        return str(owner)


@runtime_checkable
class Hidden(Protocol):
    """How to get sums of which the server sees only the total."""

    def sum(
        self,
        procedure: Procedure[Any, Request, Reply],
        request: Request | Mapping[OwnerId, Request],
        combine: Callable[[Sequence[Reply]], Reply],
        least: int | None,
    ) -> Reply:
        """Like :meth:`Exchange.sum`."""

    def ready(self, sums: int) -> Sequence[OwnerId]:
        """Who has keys that last for that many sums."""

    def tell(self, procedure: Procedure[Any, Any, Any], request: Any) -> None:
        """Note what all owners were told."""

    def vouchers(self, state: str) -> dict[str, Any]:
        """Signatures of owners under a state that they computed from sums."""


NO_CLASSIFIER = Classifier({}, {})


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One finished round, for progress lines and learning curves."""

    phase: Literal["mending", "training"]
    t: int
    loss: float | None  # mean over owners; None in a private run, which does not ask for it
    validation: float | None  # accuracy of the averaged classifier on validation nodes
    classifier: Classifier | None = None  # after this round, if there is one
    terms: dict[str, float] = field(default_factory=dict)  # of the loss, if it has several


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a method has come: everything the server must remember between two rounds."""

    phase: Literal["mending", "training"]
    t: int  # finished rounds of that phase
    kept: Parameters = field(default_factory=dict)  # by a way of mending, from round to round
    classifier: Classifier = NO_CLASSIFIER
    best: Classifier = NO_CLASSIFIER  # if it is another one
    best_round: int = -1
    best_validation: float = -1.0
    best_view: View = "plain"
    top_round: int = -1  # with the best validation, whichever round is kept
    top_validation: float = -1.0


class Journal:
    """Where a method records its progress, and where it starts. This one forgets."""

    start = Progress("mending", 0)

    def keep(self, progress: Progress) -> None:
        """Called after every round."""


OnRound: TypeAlias = Callable[[RoundRecord], None]
FORGET = Journal()


def ignore(record: RoundRecord) -> None:
    """For callers that want no progress."""
