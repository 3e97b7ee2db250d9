"""A procedure: what a server can ask of an owner. It declares everything about itself, once.

Where the owner's side is written, ``@procedure`` declares its phase, what its reply is for, the
reply's form, what it leaves on disk, and in plain words what leaves the owner. Engine, door,
guard, checkpoint, ``what-leaves.txt`` and tables of the documentation are made from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cached_property, partial
from inspect import unwrap
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
    runtime_checkable,
)
from typing import get_type_hints as type_hints

from fedsage.config import Config
from fedsage.errors import ConfigError
from fedsage.protocol.messages import Form, OwnerId

if TYPE_CHECKING:
    from fedsage.protocol.plan import Plan

Private: TypeAlias = Literal["never", "charged", "no data"]
Phase: TypeAlias = Literal["mending", "training", "evaluation"]
Party = TypeVar("Party")  # the party that runs it
Request = TypeVar("Request")
Reply = TypeVar("Reply")


class Use(Enum):
    """What a reply is for."""

    SUMMED = "the server needs only the sum over owners"
    SEALED = "it is for another owner; the server passes it on"
    OPEN = "a fact of the run that the server must see"


Summed, Sealed, Open = Use


@runtime_checkable
class Kept(Protocol):
    """A part of an owner that lasts from round to round, and on disk if it must."""

    def state(self) -> Any:
        """A dataclass with everything needed to continue; None if there is nothing to keep."""

    def restore(self, state: Any) -> None:
        """Continue from that state."""


def no_form(plan: Plan) -> Mapping[str, Form]:
    """For replies without tensors."""
    return {}


def nothing_wrong(plan: Plan, owner: OwnerId, request: Any, reply: Any) -> None:
    """For replies that need no check beyond their form."""


def nothing_wrong_with(plan: Plan, total: Any, owners: int) -> None:
    """For sums that need no check beyond their form."""


def no_sizes(held: Any, request: Any, reply: Any) -> dict[str, float]:
    """For replies that move nothing that is averaged or added up."""
    return {}


def the_same(request: Any) -> Any:
    """For requests that go to all owners as they are."""
    return request


def never_silent(reply: Any) -> bool:
    """For replies that always add something to a sum."""
    return False


def always(config: Config) -> bool:
    """For procedures that any run may need."""
    return True


def in_full(config: Config) -> bool:
    """For runs with full messages."""
    return config.traffic.how == "full"


def in_whole_numbers(config: Config) -> bool:
    """For runs with messages in whole numbers."""
    return config.traffic.how != "full"


def in_sums(config: Config) -> bool:
    """For runs with hidden sums; private runs need them too."""
    return config.privacy.level in ("sums", "private")


def in_private(config: Config) -> bool:
    """For runs in which only noisy sums leave, and each is charged."""
    return config.privacy.level == "private"


def by_balanced_classes(config: Config) -> bool:
    """For runs in which rare classes weigh more."""
    return config.classifier.class_weights == "balanced"


def begins_with_another(config: Config) -> bool:
    """For runs that begin with the classifier of an earlier one."""
    return bool(config.run.start_from)


@dataclass(frozen=True, eq=False)
class Procedure(Generic[Party, Request, Reply]):
    """One procedure of an owner; see :func:`procedure` for what it declares."""

    function: Callable[[Party, Request], Reply]
    phase: Phase
    uses: Use
    shapes: Callable[[Plan], Mapping[str, Form]] = no_form
    leaves: str | Callable[[Config], str] = ""
    owed: bool = False
    keeps: Callable[[Party], Kept] | None = None
    after: tuple[str, ...] = ()
    check: Callable[[Plan, OwnerId, Any, Any], str | None] = nothing_wrong
    check_sum: Callable[[Plan, Any, int], str | None] = nothing_wrong_with
    sizes: Callable[[Any, Any, Any], dict[str, float]] = no_sizes
    full: Callable[[Plan, Any], tuple[int, int]] | None = None
    when: Callable[[Config], bool] = always
    alike: Callable[[Any], Any] = the_same
    silent: Callable[[Any], bool] = never_silent
    rounds: bool = False
    binds: bool = False
    private: Private = "never"
    fewest: int = 0

    @property
    def name(self) -> str:
        """Its name; the paper's if there is one."""
        return self.function.__name__

    @property
    def module(self) -> str:
        """The module that it is in."""
        return self.function.__module__

    @cached_property
    def types(self) -> tuple[type[Request], type[Reply]]:
        """The types of its request and reply, from its signature."""
        known, code = type_hints(self.function), unwrap(self.function).__code__
        asked = code.co_varnames[1 : code.co_argcount]
        types: list[Any] = [known.get(name) for name in (*asked, "return")]
        if len(types) != 2 or not all(map(is_dataclass, types)):
            raise ConfigError(
                f"Procedure '{self.name}' in {code.co_filename} must name its two messages, as "
                f"in def {self.name}(owner: fs.DataOwner, ask: fs.Ask) -> Count."
            )
        return types[0], types[1]

    @property
    def request(self) -> type[Request]:
        """The message that asks for it."""
        return self.types[0]

    @property
    def reply(self) -> type[Reply]:
        """The message that answers."""
        return self.types[1]

    def fits(self, config: Config) -> bool:
        """Whether a run with these settings may ask for it."""
        return self.when(config) and not (in_private(config) and self.private == "never")

    @property
    def by_round(self) -> bool:
        """Whether its state is kept every round; then it ends the owner's round."""
        return self.keeps is not None and "t" in type_hints(self.request)

    def run(self, party: Party, request: Request) -> Reply:
        """Run it; a method is looked up on the party, so that subclasses can override it."""
        if "." in self.function.__qualname__.rpartition("<locals>.")[2]:
            method: Callable[[Request], Reply] = getattr(party, self.name)
            return method(request)
        return self.function(party, request)

    def words(self, config: Config) -> str:
        """What leaves the owner by it in a run with these settings."""
        said = self.leaves
        words = said(config) if callable(said) else said.format(config=config)
        reply: Any = self.reply
        if fields(reply) and not words:
            raise ConfigError(
                f"{self.name} answers with a {reply.__name__} but does not say what leaves. "
                "Give @procedure one sentence for the owner: leaves=…"
            )
        if str in type_hints(reply).values() and not self.module.startswith("fedsage."):
            raise ConfigError(
                f"A {reply.__name__} has text, and text can hold anything. Send numbers."
            )
        return words

    def __call__(self, party: Party, request: Request) -> Reply:
        """Call it as a function, or as the method of a parent class."""
        return self.function(party, request)

    @overload
    def __get__(self, party: None, kind: type) -> Procedure[Party, Request, Reply]: ...
    @overload
    def __get__(self, party: Party, kind: type) -> Callable[[Request], Reply]: ...
    def __get__(self, party: Party | None, kind: type) -> Any:
        """The procedure itself on a class, its method on an owner."""
        return self if party is None else partial(self, party)


PROCEDURES: dict[tuple[str, str], Procedure[Any, Any, Any]] = {}  # by file and name


def procedure(
    *,
    phase: Phase,
    uses: Use = Open,
    shapes: Callable[[Plan], Mapping[str, Form]] = no_form,
    leaves: str | Callable[[Config], str] = "",
    owed: bool = False,
    keeps: Callable[[Any], Kept] | None = None,
    after: tuple[str, ...] = (),
    check: Callable[[Plan, OwnerId, Any, Any], str | None] = nothing_wrong,
    check_sum: Callable[[Plan, Any, int], str | None] = nothing_wrong_with,
    sizes: Callable[[Any, Any, Any], dict[str, float]] = no_sizes,
    full: Callable[[Plan, Any], tuple[int, int]] | None = None,
    when: Callable[[Config], bool] = always,
    alike: Callable[[Any], Any] = the_same,
    silent: Callable[[Any], bool] = never_silent,
    rounds: bool = False,
    binds: bool = False,
    private: Private = "never",
    fewest: int = 0,
) -> Callable[[Callable[[Party, Request], Reply]], Procedure[Party, Request, Reply]]:
    """Let the server ask an owner for this function of an owner and a message.

    Args:
        phase: When it is asked for; traffic and time are counted by phase.
        uses: What the reply is for: ``Summed``, ``Sealed`` or ``Open``.
        shapes: The form of the reply's tensors in an agreed run, by field.
        leaves: What leaves the owner, in one sentence; settings as ``{config.model.widths}``.
            Empty if the reply says only that it is done.
        owed: Whether an owner that missed it must get it before anything else.
        keeps: The part of the owner that it changes and that must survive a restart. If the
            request names a round, every round is kept.
        after: Names of procedures: only owners that last answered one of them are asked.
        check: Why a reply is wrong although its form is right, or None.
        check_sum: Why a sum of masked replies is wrong, given the sum and the number of
            owners in it, or None.
        sizes: How far a reply would move what is averaged, by quantity; given the common state
            (the φ broadcast last), the request and the reply.
        full: The bytes of request and reply as full messages, if these ones are shorter.
        when: In which runs it may be asked for.
        alike: The part of the request that all owners in a hidden sum must have got alike.
        silent: Whether a reply adds nothing; such an owner is not counted in a hidden sum.
        rounds: Whether a hidden sum of each round may be of other owners than the last. If
            not, all such sums of a run are of the same owners.
        binds: Whether the request changes what an owner answers later; then hidden sums are
            only of owners that got the same.
        private: Whether a private run may ask for it: ``never``; ``charged``, if the reply is
            a noisy sum that the owner pays for; ``no data``, if no reply depends on its data.
        fewest: A hidden sum of fewer owners is not opened, if two thirds of all are fewer.
    """

    def declare(
        function: Callable[[Party, Request], Reply],
    ) -> Procedure[Party, Request, Reply]:
        made = Procedure(
            function, phase, uses, shapes, leaves, owed, keeps, after, check, check_sum,
            sizes, full, when, alike, silent, rounds, binds, private, fewest,
        )  # fmt: skip
        PROCEDURES[made.module, made.name] = made
        return made

    return declare


def procedures_in(*modules: str) -> dict[str, Procedure[Any, Any, Any]]:
    """The procedures in those modules, by name; in their order, whatever was imported first."""
    found = [(file, name) for file, name in PROCEDURES if file in modules]
    ordered = sorted(found, key=lambda one: modules.index(one[0]))
    return {name: PROCEDURES[file, name] for file, name in ordered}
