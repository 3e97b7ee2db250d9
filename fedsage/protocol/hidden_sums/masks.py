"""An owner's secrets for hidden sums, and how it masks what it adds to one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from fedsage.errors import PrivacyError
from fedsage.privacy.keys import PUBLIC, agreed, derived, in_bytes
from fedsage.privacy.sums import masked
from fedsage.protocol.hidden_sums.integers import in_raw, whole_numbers
from fedsage.protocol.hidden_sums.memory import AGAIN, Remembered
from fedsage.protocol.hidden_sums.messages import NO_BATCH, Batch, Keys, Voucher
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.procedures import Procedure
from fedsage.protocol.wire import encode
from fedsage.readable import counted

M = TypeVar("M")


@runtime_checkable
class Identity(Protocol):
    """How an owner proves who it is, and checks who the others are."""

    @property
    def certificate(self) -> str:
        """The certificate by which others check its signatures."""

    @property
    def names(self) -> Sequence[str]:
        """Of all owners, in order; empty where they have none."""

    @property
    def owners(self) -> int:
        """How many owners it knows, including itself."""

    def sign(self, text: bytes) -> str:
        """A signature for a text."""

    def check(self, owner: OwnerId, certificate: str, text: bytes, signature: str) -> None:
        """Refuse a signature that is not that owner's."""


@dataclass(slots=True)
class Masks:
    """An owner's secrets for the sums of a batch; they are never written to disk.

    Args:
        owner: Who this is.
        run: The name of the run, part of every signed text.
        identity: Signs, and checks signatures.
        least: It adds nothing to a sum of fewer owners.
        remembered: What lasts beyond a restart.
    """

    owner: OwnerId
    run: str
    identity: Identity
    least: int = 2
    remembered: Remembered = field(default_factory=Remembered)
    batch: Batch = NO_BATCH
    channel: int = 0
    pairs: list[int] = field(default_factory=list)  # the secret of the key of each lot
    own: list[int] = field(default_factory=list)  # the secret of its own mask
    members: Mapping[OwnerId, Keys] = field(default_factory=dict)
    around: Mapping[OwnerId, Sequence[OwnerId]] = field(default_factory=dict)
    common: bytes = b""  # known to all owners but not to the server
    shares: dict[OwnerId, bytes] = field(default_factory=dict)
    part: int = 0  # this owner's part of ``common``
    used: int = -1  # the last lot it added to
    asked: str = ""  # what that sum was over
    bound: dict[str, str] = field(default_factory=dict)  # what it was told, by procedure
    told: dict[int, bytes] = field(default_factory=dict)  # who was in the last sums
    signers: dict[OwnerId, str] = field(default_factory=dict)  # keys these were signed with
    enough: int = 0  # it opens no sum of fewer: their noise would not suffice
    fewest: int = 0  # it does not open the last sum if it is of fewer

    def key(self, other: OwnerId) -> bytes:
        """The key for what only that owner may read."""
        public = bytes.fromhex(self.members[other].channel)
        return agreed(self.channel, public, f"{self.run}, batch {self.batch.number}")

    def masked(self, procedure: Procedure[Any, Any, M], request: Any, reply: M, lot: int) -> M:
        """A reply as it leaves; every lot is used once."""
        at = lot - self.batch.number
        if not self.common or not 0 <= at < self.batch.lots:
            raise PrivacyError(f"There are no keys for sum {lot}. Nothing was sent.")
        if lot <= self.used:
            raise PrivacyError(f"Sum {lot} was asked for again. Nothing was sent.")
        self.used, self.asked = lot, question_of(procedure, request)
        self.fewest = procedure.fewest
        what = about(self.run, lot, procedure, request, self.bound)
        plus, minus = [derived(in_bytes(self.own[at]), "own mask")], list[bytes]()
        for j in self.around[self.owner]:
            seed = agreed(self.pairs[at], lot_key(self.members[j], at), what)
            (plus if self.owner < j else minus).append(seed)
        numbers, rebuilt = whole_numbers(reply)
        return rebuilt(masked(numbers, plus, minus))

    def accept(self, state: str, checksum: str, vouchers: Mapping[str, Voucher]) -> None:
        """Refuse a state that neither this owner computed nor enough others vouch for."""
        if self.remembered.states.get(state) == checksum:
            return
        text, enough = signed_state(self.run, state, checksum), self.identity.owners // 3 + 1
        others = {int(name): one for name, one in vouchers.items()}
        for i, one in others.items():
            self.identity.check(i, one.certificate, text, one.signature)
        if len(others.keys() - {self.owner}) < enough:
            raise PrivacyError(
                f"The server handed over {state} with {counted(len(others), 'signature')} of "
                f"owners whose sums it follows from; {enough} are required. Nothing was sent."
            )


def question_of(procedure: Procedure[Any, Any, Any], request: Any) -> str:
    """What a sum is over: the same question in two sums must be put to the same owners."""
    if not procedure.rounds:
        return procedure.name
    again = getattr(procedure.alike(request), "again", 0)  # another try is drawn anew
    return f"{procedure.name} {request.t}" + (f"{AGAIN}{again}" if again else "")


def about(
    run: str,
    lot: int,
    procedure: Procedure[Any, Any, Any],
    request: Any,
    bound: Mapping[str, str],
) -> str:
    """What a key of two owners is for: their masks cancel only if both were asked the same."""
    asked = procedure.name, checksum_of(procedure.alike(request)), sorted(bound.items())
    return f"{run}, sum {lot}, {json.dumps(asked)}"


def checksum_of(message: Any) -> str:
    """Of a message as bytes."""
    return hashlib.sha256(encode(message)).hexdigest()


def lot_key(keys: Keys, at: int) -> bytes:
    """An owner's public key for one lot of a batch."""
    return in_raw(keys.lots[PUBLIC * at : PUBLIC * (at + 1)])


def signed_state(run: str, state: str, checksum: str) -> bytes:
    """What an owner signs when it vouches for a state."""
    return json.dumps([run, state, checksum]).encode()
