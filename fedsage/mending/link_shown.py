"""What an owner has added to others' sums, so that it never shows a difference of two sums."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from jaxtyping import Int8

from fedsage.errors import PrivacyError
from fedsage.mending.link_parts import RowsAsked
from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import OwnerId
from fedsage.shapes import Array

NEVER, SHARED, PRIVATE = 0, 1, 2  # how a node was shown to a receiver
MARKS, ROWS = "marks/", "rows/"


@dataclass(frozen=True, slots=True)
class ShownState:
    """By receiver, how each node was shown, and a fingerprint of each sum."""

    of: Parameters


@dataclass(slots=True, eq=False)
class ShownTo:
    """What one receiver was shown."""

    marks: Int8[Array, " V"]
    rows: dict[int, bytes]  # the fingerprint of each sum, by its name


class Shown:
    """In which sums of which owners this owner's nodes are; it never forgets one.

    Asked for the same sums again, after a restart, it answers. A sum that changed, or one with
    a private node of another, is refused: the difference would show rows.
    """

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.to: dict[OwnerId, ShownTo] = {}

    def state(self) -> ShownState | None:
        """All that was shown."""
        kept: Parameters = {}
        for i, one in self.to.items():
            kept[f"{MARKS}{i}"] = torch.from_numpy(one.marks.copy())
            kept[f"{ROWS}{i}"] = torch.from_numpy(packed(one.rows))
        return ShownState(kept) if kept else None

    def restore(self, state: ShownState) -> None:
        """Know it again."""
        names = [name for name in state.of if name.startswith(MARKS)]
        for i in (int(name.removeprefix(MARKS)) for name in names):
            marks, rows = state.of[f"{MARKS}{i}"].numpy(), state.of[f"{ROWS}{i}"].numpy()
            self.to[i] = ShownTo(marks.copy(), unpacked(rows))

    def enter(self, receiver: OwnerId, asked: RowsAsked) -> None:
        """Remember the sums for one owner; refuses what would show more than sums."""
        before = self.to.get(receiver, ShownTo(np.zeros(self.num_nodes, np.int8), {}))
        rows = fingerprints(asked)
        row, node, private = asked.members.numpy().T
        fresh = ~np.isin(row, list(before.rows))
        old = before.marks[node]
        wrong = fresh & ((old == PRIVATE) | ((old != NEVER) & (private == 1)))
        if wrong.any() or any(
            before.rows.get(name, mark) != mark for name, mark in rows.items()
        ):
            raise PrivacyError(
                f"Owner {receiver} asked for sums that differ in few nodes from sums that it "
                "got before. It was sent nothing."
            )
        marks = before.marks.copy()
        marks[node] = np.where(private == 1, PRIVATE, SHARED)
        self.to[receiver] = ShownTo(marks, before.rows | rows)


def fingerprints(asked: RowsAsked) -> dict[int, bytes]:
    """A checksum of each row: this owner's nodes in it, and who else takes part."""
    members, groups = asked.members.numpy(), asked.groups.numpy()
    rows = np.unique(members[:, 0])
    own = np.split(members[:, 1:], np.searchsorted(members[:, 0], rows)[1:])
    others = np.split(groups[:, 1:], np.searchsorted(groups[:, 0], rows)[1:])
    return {
        name: sha256(np.sort(mine, axis=0).tobytes() + more.tobytes()).digest()[:8]
        for name, mine, more in zip(rows.tolist(), own, others, strict=True)
    }


def packed(rows: dict[int, bytes]) -> Array:
    """Names and fingerprints as numbers."""
    marks = np.frombuffer(b"".join(rows.values()), np.int32).reshape(-1, 2)
    return np.column_stack([np.array(list(rows), np.int32), marks]).astype(np.int32)


def unpacked(found: Array) -> dict[int, bytes]:
    """The inverse of ``packed``."""
    return {int(row[0]): row[1:].tobytes() for row in found.astype(np.int32)}
