"""Nodes that several owners hold: each has a side, and sees the other sides' neighbors as sums.

Two owners find the ids that both have by private set intersection: each shows the other all of
its ids as points, which both multiply. Beside each id goes another point, for the id with its
class and part of the split: equal on both sides if and only if these agree. Then each tells the
other, by places in shuffled lists, which of its nodes are neighbors of nodes that both hold.
These become remote nodes like any other.

A node that several owners hold is in no sum. A receiver that holds it, too, could subtract its
row. Of others it could get it from each side, in another sum each: from a + b, b + c and c + a
follow a, b and c, and no owner sees more than one sum over each of its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Bool

from fedsage.errors import PrivacyError
from fedsage.graph.graph import Graph
from fedsage.graph.split import PARTS, Split
from fedsage.mending.links.received import fingerprints, numbers, tensor
from fedsage.models.parameters import Parameters
from fedsage.privacy.intersection import SIZE, Points, blinded, hashed, packed, unpacked
from fedsage.privacy.sums import Whole
from fedsage.protocol.messages import OwnerId, message
from fedsage.rng import Stream
from fedsage.shapes import Array, NodeIds, NodeLabels


@message
class Sides:
    """D_j → D_i, sealed: neighbors at D_j of nodes that both hold, and what is in no sum."""

    links: Whole  # n × 2: the shared node in D_i's list, the neighbor in D_j's
    tags: Whole  # n: a number for each neighbor, the same in all runs
    withheld: Whole  # the nodes in D_j's list that are in no sum, as others hold them, too


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """The nodes that this owner and another one hold."""

    nodes: NodeIds
    places: NodeIds  # of the same nodes in the list that the other one showed
    agree: Bool[Array, " nodes"]  # on class and part

    def neighbors(self, graph: Graph) -> tuple[NodeIds, NodeIds]:
        """Of each of them its place and its neighbors here that the other one does not hold."""
        near, count = graph.neighbors_of(self.nodes)
        own = ~np.isin(near, self.nodes)
        return np.repeat(self.places, count)[own], near[own]

    def read(self, told: Sides, order: NodeIds) -> tuple[NodeIds, NodeIds, Array]:
        """What the other one tells: own node, neighbor's place in its list, and tag."""
        links, tags = told.links.numpy().astype(np.int64), told.tags.numpy()
        if links.shape != (len(tags), 2) or links.min(initial=0) < 0:
            raise PrivacyError("An owner told of neighbors of shared nodes in a wrong form.")
        if links[:, 0].max(initial=-1) >= len(order):
            raise PrivacyError("An owner told of neighbors of nodes that it was not shown.")
        here = order[links[:, 0]]
        both = np.isin(here, self.nodes)
        return here[both], links[both, 1], tags[both]


@dataclass(frozen=True, slots=True, eq=False)
class Dropped:
    """Shared nodes that are left out of this owner's split."""

    differ: NodeIds = field(default_factory=lambda: np.empty(0, np.int64))
    elsewhere: NodeIds = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, common: Mapping[OwnerId, Common], owner: OwnerId) -> Dropped:
        """Those whose sides differ, and those that an owner before this one counts."""
        none = [np.empty(0, np.int64)]
        differ = np.concatenate([*none, *(one.nodes[~one.agree] for one in common.values())])
        before = [one.nodes for j, one in common.items() if j < owner]
        return cls(np.unique(differ), np.unique(np.concatenate([*none, *before])))

    def apply(self, split: Split) -> Split:
        """The split without them; a node that others count is still trained on."""
        both = np.union1d(self.differ, self.elsewhere)
        return Split(
            np.setdiff1d(split.train, self.differ),
            np.setdiff1d(split.val, both),
            np.setdiff1d(split.test, both),
        )

    def tensors(self) -> Parameters:
        """In the form that is kept."""
        found = {"differ": self.differ, "elsewhere": self.elsewhere}
        return {name: torch.from_numpy(one.copy()) for name, one in found.items()}

    @classmethod
    def from_tensors(cls, kept: Parameters) -> Dropped:
        """The inverse of ``tensors``."""
        return cls(kept["differ"].numpy(), kept["elsewhere"].numpy())


class SharedNodes:
    """One owner's search for nodes that others hold, too.

    Args:
        ids: Of all its nodes; none if it shares no nodes.
        facts: What must be the same on all sides of a node.
        blind: Its secret.
        about: What ids are hashed for.
        draws: Shuffles its nodes, for each other owner anew.
    """

    def __init__(
        self,
        ids: Sequence[str],
        facts: Sequence[str],
        blind: X25519PrivateKey,
        about: str,
        draws: Stream,
    ) -> None:
        self.blind, self.draws = blind, draws
        known = [f"{one}\0{fact}" for one, fact in zip(ids, facts, strict=True)]
        points = hashed(ids, f"{about}, ids"), hashed(known, f"{about}, facts")
        self.points = np.stack([packed(blinded(one, blind)) for one in points], axis=1)
        self.order: dict[OwnerId, NodeIds] = {}
        self.theirs: dict[OwnerId, Points] = {}

    def shown_to(self, other: OwnerId) -> Points:
        """All own nodes, two points for each."""
        self.order[other] = self.draws.permutation(len(self.points))
        return self.points[self.order[other]].reshape(-1, SIZE)

    def multiplied(self, other: OwnerId, shown: Points) -> Points:
        """The nodes that another owner showed, multiplied by this owner, too."""
        if len(shown) % 2:
            raise PrivacyError(f"Owner {other} showed something that is not a list of nodes.")
        self.theirs[other] = packed(blinded(unpacked(shown), self.blind))
        return self.theirs[other]

    def common_with(self, other: OwnerId, back: Points) -> Common:
        """The nodes that both hold, once the other one has multiplied this owner's points."""
        order = self.order[other]
        if len(back) != 2 * len(order):
            raise PrivacyError(f"Owner {other} answered for other nodes than it was shown.")
        mine, theirs = unpacked(back), unpacked(self.theirs[other])
        place = {point: at for at, point in enumerate(theirs[::2])}
        found = [(k, place[one]) for k, one in enumerate(mine[::2]) if one in place]
        agree = np.array([mine[2 * k + 1] == theirs[2 * at + 1] for k, at in found], bool)
        k, at = np.array(found, np.int64).reshape(-1, 2).T
        return Common(order[k], at, agree)


def several_hold(common: Mapping[OwnerId, Common]) -> NodeIds:
    """The own nodes that any other owner holds, too."""
    found = np.concatenate([np.empty(0, np.int64), *(one.nodes for one in common.values())])
    return np.unique(found)


def sides_of(
    common: Common,
    graph: Graph,
    ids: Sequence[str],
    place: NodeIds,
    withheld: NodeIds,
    secret: bytes,
    receiver: str,
) -> Sides:
    """What a receiver is told of the nodes that it holds, too.

    Args:
        common: Those nodes.
        graph: G_i.
        ids: The names of its nodes.
        place: Where each is in the list that others were shown, or -1.
        withheld: Those that are in no sum.
        secret: Tags depend on it.
        receiver: The name of the receiver.
    """
    hidden = np.sort(place[withheld][place[withheld] >= 0])
    shared, near = common.neighbors(graph)
    told = (place[near] >= 0) & ~np.isin(near, withheld)
    shared, near = shared[told], near[told]
    names = [ids[v] for v in near.tolist()]
    order = np.lexsort((shared, fingerprints(names)))  # the same in every process
    links = np.stack([shared, place[near]], axis=1)[order]
    return Sides(
        numbers(links), tensor(tags_of(names, secret, receiver)[order]), numbers(hidden)
    )


def facts_of(y: NodeLabels, split: Split) -> list[str]:
    """The class and the part of the split of each node."""
    part = np.full(len(y), "none", dtype=object)
    for name in PARTS:
        part[getattr(split, name)] = name
    return [f"{one} {name}" for one, name in zip(y.tolist(), part.tolist(), strict=True)]


def tags_of(ids: Sequence[str], secret: bytes, receiver: str) -> Array:
    """A number for each id that tells nothing without the secret, for one receiver."""
    start = secret + receiver.encode() + b"\0"
    found = b"".join(sha256(start + one.encode()).digest()[:8] for one in ids)
    return np.frombuffer(found, "<i8").astype(np.int64)
