"""What owners tell each other where sums are hidden: the server carries it, and cannot read it.

A *note* is for all owners of a batch. A *veil* hides what is added up for one of them: the
server removes the masks from the sum and finds it still veiled; its reader takes the veils off.
"""

from __future__ import annotations

import hashlib
import json
from typing import TypeVar

from fedsage.errors import PrivacyError
from fedsage.privacy.keys import derived, is_signed, sealed, signed, unsealed
from fedsage.privacy.sums import masked
from fedsage.protocol.hidden_sums.integers import in_numbers, in_raw, whole_numbers
from fedsage.protocol.hidden_sums.masks import Masks
from fedsage.protocol.hidden_sums.messages import Note
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.wire import decode, encode

M = TypeVar("M")


def written(mine: Masks, message: object, about: str) -> Note:
    """A message to all owners of the batch."""
    if not mine.common:
        raise PrivacyError("There are no keys for notes to other owners. Nothing was sent.")
    box = sealed(key_of(mine, mine.owner), encode(message), about)
    return Note(
        in_numbers(box), signed(mine.channel, signed_note(mine, mine.owner, about, box))
    )


def read(mine: Masks, writer: OwnerId, kind: type[M], note: Note, about: str) -> M:
    """What another owner wrote; refuses what it did not write itself."""
    box = in_raw(note.box)
    text, keys = signed_note(mine, writer, about, box), mine.members.get(writer)
    if keys is None or not is_signed(keys.signing, text, note.signature):
        raise PrivacyError(
            f"What owner {writer} is said to have sent ({about}) is not signed by it. Nothing "
            "was sent."
        )
    return decode(kind, unsealed(key_of(mine, writer), box, about))


def veiled(mine: Masks, numbers: M, reader: OwnerId, about: str) -> M:
    """Integers that are added up for another owner: only it can take off the veil."""
    found, rebuilt = whole_numbers(numbers)
    return rebuilt(masked(found, [veil(mine, reader, mine.owner, reader, about)], []))


def unveiled(mine: Masks, total: M, writers: list[OwnerId], about: str) -> M:
    """A sum for this owner, without the veils of those who added to it."""
    found, rebuilt = whole_numbers(total)
    veils = [veil(mine, i, i, mine.owner, about) for i in writers]
    return rebuilt(masked(found, [], veils))


def veil(mine: Masks, other: OwnerId, writer: OwnerId, reader: OwnerId, about: str) -> bytes:
    """The seed of a veil, which its writer and its reader know."""
    if other not in mine.members:
        raise PrivacyError(f"Owner {other} has no keys in this batch. Nothing was sent.")
    return derived(mine.key(other), f"{about}, from {writer} to {reader}")


def key_of(mine: Masks, writer: OwnerId) -> bytes:
    """The key of an owner's notes, which all owners of the batch know."""
    return derived(mine.common, f"notes of {writer}")


def signed_note(mine: Masks, writer: OwnerId, about: str, box: bytes) -> bytes:
    """What an owner signs when it writes a note."""
    checksum = hashlib.sha256(box).hexdigest()
    return json.dumps([mine.run, mine.batch.number, writer, about, checksum]).encode()
