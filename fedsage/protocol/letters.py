"""Letters from owner to owner: the server carries them and cannot read them.

Owners introduce themselves with a key for one exchange, signed by who they are. A letter is a
message, sealed with the key that its writer and its reader have in common.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from fedsage.errors import PrivacyError
from fedsage.graph.feature_forms import RAW, FeatureForm
from fedsage.graph.known_links import KnownLinks
from fedsage.privacy.keys import agreed, new_secret, public_key, sealed, unsealed
from fedsage.privacy.sums import Whole
from fedsage.protocol.hidden_sums.integers import in_numbers, in_raw
from fedsage.protocol.hidden_sums.masks import Identity
from fedsage.protocol.messages import Each, Form, Ints, OwnerId, message
from fedsage.protocol.plan import Plan
from fedsage.protocol.wire import decode, encode

M = TypeVar("M")


@message
class Introduction:
    """D_i → S → every D_j: the key for letters to D_i, signed."""

    key: str
    certificate: str
    signature: str


@message
class Introductions:
    """S → every D_i: the keys of all who take part."""

    of: dict[str, Introduction]


@message
class Letters:
    """D_i → S, and then of all others S → D_i: sealed messages, by who gets or wrote them."""

    of: dict[str, Whole]


def letters_form(plan: Plan) -> dict[str, Form]:
    """Sealed bytes, of any length."""
    return {"of": Each(Ints((None,)))}


@dataclass(frozen=True, slots=True)
class Abroad:
    """What an owner knows of others: links to their nodes, and how to tell who they are."""

    links: KnownLinks
    identity: Identity
    run: str
    memory: Path | None = None  # where it keeps what it gave and got, from run to run
    form: FeatureForm = RAW  # that features have

    def name_of(self, owner: OwnerId) -> str:
        """What an owner is called in all runs."""
        return self.identity.names[owner] if self.identity.names else str(owner)


@dataclass(slots=True)
class Channel:
    """One owner's end of all letters of one exchange; nothing of it is written to a disk."""

    owner: OwnerId
    run: str
    identity: Identity
    secret: int = field(default_factory=new_secret)
    keys: dict[OwnerId, str] = field(default_factory=dict)

    def introduction(self) -> Introduction:
        """The key that others write to."""
        key = public_key(self.secret).hex()
        signature = self.identity.sign(signed_key(self.run, self.owner, key))
        return Introduction(key, self.identity.certificate, signature)

    def meet(self, introductions: Introductions) -> None:
        """Take in the keys of all others, each signed by its owner."""
        if self.keys:
            raise PrivacyError("Owners were introduced twice. Nothing was sent.")
        for name, one in introductions.of.items():
            text = signed_key(self.run, int(name), one.key)
            self.identity.check(int(name), one.certificate, text, one.signature)
        self.keys = {int(name): one.key for name, one in introductions.of.items()}
        if self.keys.pop(self.owner, "") != public_key(self.secret).hex():
            raise PrivacyError("Another key than this owner's was given out in its name.")

    def common(self, other: OwnerId, about: str) -> bytes:
        """A key that only this owner and that one have, for one purpose."""
        if other not in self.keys:
            raise PrivacyError(f"Owner {other} was not introduced. Nothing was sent.")
        return agreed(self.secret, bytes.fromhex(self.keys[other]), f"{self.run}, {about}")

    def written(self, messages: Mapping[OwnerId, object], about: str) -> Letters:
        """A letter to each of these owners."""
        return Letters({
            str(j): in_numbers(
                sealed(self.common(j, "letters"), encode(one), f"{about}, {self.owner} to {j}")
            )
            for j, one in messages.items()
        })  # fmt: skip

    def read(self, kind: type[M], letters: Letters, about: str) -> dict[OwnerId, M]:
        """The letters of others, each of them by who wrote it."""
        found = {int(name): in_raw(box) for name, box in letters.of.items()}
        return {
            j: decode(
                kind, unsealed(self.common(j, "letters"), box, f"{about}, {j} to {self.owner}")
            )
            for j, box in sorted(found.items())
        }


def signed_key(run: str, owner: OwnerId, key: str) -> bytes:
    """What an owner signs when it introduces itself."""
    return json.dumps(["letters", run, owner, key]).encode()


def delivered(letters: Mapping[OwnerId, Letters]) -> dict[OwnerId, Letters]:
    """What each owner that wrote letters gets from the others."""
    return {
        i: Letters({str(j): one.of[str(i)] for j, one in letters.items() if str(i) in one.of})
        for i in letters
    }
