"""What an exchange works with: a transport, the Engine, and a way to hide sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args, runtime_checkable

from fedsage.protocol.messages import OwnerId
from fedsage.protocol.procedures import Phase, Procedure, Reply, Request


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
