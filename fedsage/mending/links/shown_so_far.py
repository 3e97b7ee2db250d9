"""What an owner has added to others' sums, so that it never shows a difference of two sums."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from jaxtyping import Int32

from fedsage.errors import PrivacyError
from fedsage.mending.links.contributions import GroupsAsked
from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import OwnerId
from fedsage.shapes import Array

NEVER = -1  # in no sum of a receiver
NODES, GROUPS = "nodes/", "groups/"


@dataclass(frozen=True, slots=True)
class ShownState:
    """By receiver, the group that each node was in, and a fingerprint of each group."""

    of: Parameters


@dataclass(slots=True, eq=False)
class ShownTo:
    """What one receiver was shown."""

    nodes: Int32[Array, " V"]  # the group of each
    groups: dict[int, bytes]  # the fingerprint of each


class Shown:
    """In which sums of which owners this owner's nodes are; it never forgets one.

    Asked for the same sums again, after a restart, it answers. A group that changed, or a node
    that was in another group, is refused: the difference would show rows.
    """

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.to: dict[OwnerId, ShownTo] = {}

    def state(self) -> ShownState | None:
        """All that was shown."""
        kept: Parameters = {}
        for i, one in self.to.items():
            kept[f"{NODES}{i}"] = torch.from_numpy(one.nodes.copy())
            kept[f"{GROUPS}{i}"] = torch.from_numpy(packed(one.groups))
        return ShownState(kept) if kept else None

    def restore(self, state: ShownState) -> None:
        """Know it again."""
        names = [name for name in state.of if name.startswith(NODES)]
        for i in (int(name.removeprefix(NODES)) for name in names):
            nodes, groups = state.of[f"{NODES}{i}"].numpy(), state.of[f"{GROUPS}{i}"].numpy()
            self.to[i] = ShownTo(nodes.copy(), unpacked(groups))

    def with_more(self, receiver: OwnerId, asked: GroupsAsked) -> ShownTo:
        """What one owner was shown, and these sums; refuses what would show more than sums."""
        before = self.to.get(receiver, ShownTo(np.full(self.num_nodes, NEVER, np.int32), {}))
        marks = fingerprints(asked)
        group, node = asked.members.numpy().T
        other = (before.nodes[node] != NEVER) & (before.nodes[node] != group)
        changed = any(before.groups.get(name, mark) != mark for name, mark in marks.items())
        if other.any() or changed:
            raise PrivacyError(
                f"Owner {receiver} asked for sums that differ in few nodes from sums that it "
                "got before. It was sent nothing."
            )
        nodes = before.nodes.copy()
        nodes[node] = group
        return ShownTo(nodes, before.groups | marks)


def fingerprints(asked: GroupsAsked) -> dict[int, bytes]:
    """A checksum of each group: this owner's nodes in it, who else takes part, and the unit.

    In many units, sums of rounded parts would show of how many rows a value is above a bound.
    """
    unit = str(asked.exponent).encode()
    members, parties = asked.members.numpy(), asked.parties.numpy()
    names = np.unique(members[:, 0])
    own = np.split(members[:, 1], np.searchsorted(members[:, 0], names)[1:])
    others = np.split(parties[:, 1:], np.searchsorted(parties[:, 0], names)[1:])
    return {
        name: sha256(unit + np.sort(mine).tobytes() + more.tobytes()).digest()[:8]
        for name, mine, more in zip(names.tolist(), own, others, strict=True)
    }


def packed(groups: dict[int, bytes]) -> Array:
    """Names and fingerprints as numbers."""
    marks = np.frombuffer(b"".join(groups.values()), np.int32).reshape(-1, 2)
    return np.column_stack([np.array(list(groups), np.int32), marks]).astype(np.int32)


def unpacked(found: Array) -> dict[int, bytes]:
    """The inverse of ``packed``."""
    return {int(row[0]): row[1:].tobytes() for row in found.astype(np.int32)}
