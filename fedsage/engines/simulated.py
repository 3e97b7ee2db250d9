"""Hidden sums in a simulation: owners in one process that know each other's keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import PrivacyError
from fedsage.privacy.accountant import honest
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.hidden_sums.masks import Masks
from fedsage.protocol.hidden_sums.memory import FILE, Remembered
from fedsage.protocol.hidden_sums.server import HiddenSums
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.private import PrivateOwner

RUN = "simulation"


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """An owner that knows everybody's key beforehand."""

    everyone: Mapping[OwnerId, Ed25519PublicKey]
    key: Ed25519PrivateKey
    certificate: str = field(default="", init=False)
    names: tuple[str, ...] = ()  # of all owners, where they have some

    @property
    def owners(self) -> int:
        """How many owners it knows, including itself."""
        return len(self.everyone)

    def sign(self, text: bytes) -> str:
        """A signature for a text."""
        return self.key.sign(text).hex()

    def check(self, owner: OwnerId, certificate: str, text: bytes, signature: str) -> None:
        """Refuse a signature that is not that owner's."""
        try:
            self.everyone[owner].verify(bytes.fromhex(signature), text)
        except (InvalidSignature, KeyError, ValueError):
            raise PrivacyError(
                f"A signature of owner {owner} is not valid. Nothing was sent."
            ) from None


def known_keys(
    owners: Iterable[OwnerId], names: tuple[str, ...] = ()
) -> dict[OwnerId, KnownKeys]:
    """Owners that know each other."""
    keys = {i: Ed25519PrivateKey.generate() for i in owners}
    everyone = {i: key.public_key() for i, key in keys.items()}
    return {i: KnownKeys(everyone, key, names) for i, key in keys.items()}


def hide_sums(exchange: Exchange, engine: InProcessEngine) -> None:
    """Give every owner masks, and let the server remove them from sums."""
    for i, known in known_keys(engine.doors).items():
        owner, door = engine.data_owners[i], engine.doors[i]
        folder = engine.keepers[i].folder if engine.keepers else None
        kept = Remembered(folder and folder / FILE)
        masks = owner.sum_masks = door.masks = Masks(i, RUN, known, remembered=kept)
        if isinstance(owner, PrivateOwner):
            masks.enough = honest(len(engine.owners))
            door.receipt = owner.purse.receipt
    exchange.hidden = HiddenSums(exchange, RUN, exchange.plan.config)
