"""What an owner remembers while known links are matched and their sums are asked for."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedsage.errors import PrivacyError
from fedsage.graph.known_links import NOBODY, UNKNOWN
from fedsage.mending.links.groups import ALONE
from fedsage.mending.links.held import HeldMeans, fingerprints
from fedsage.mending.links.memory import ASKED, GAVE, LinkMemory
from fedsage.mending.links.parts import GroupParts, GroupsAsked, exponent_of, total_of
from fedsage.mending.links.rows import (
    may_be_summed,
    summed_rows,
    usual_values,
    words_from,
)
from fedsage.models.parameters import Parameters
from fedsage.privacy.intersection import (
    blinded,
    hashed,
    new_blind,
    packed,
    tags,
    unpacked,
)
from fedsage.privacy.sums import Whole
from fedsage.protocol.letters import Abroad, Channel, Introduction
from fedsage.protocol.messages import OwnerId, message
from fedsage.rng import generator
from fedsage.shapes import Array, NodeFeatures, NodeIds

NOWHERE = -1
NO_POINTS = np.empty((0, 32), np.int8)


@message
class SoughtNodes:
    """D_i → D_j, sealed: the ids that D_i has links to, blinded; or tags of the links."""

    points: Whole  # n × 32


@message
class FoundNodes:
    """D_j → D_i, sealed: those points blinded by D_j too, and its own, blinded and shuffled.

    By tags: of each link the place of D_j's end in its shuffled list, or -1.
    """

    again: Whole  # n × 32
    nodes: Whole  # V_j × 32
    places: Whole  # n
    exponent: int  # no feature of D_j is above 2^e
    words: int  # the first column of which it gives only presence


@dataclass(frozen=True, slots=True)
class HeldState:
    """The means that an owner has got."""

    held: Parameters


class LinkWork:
    """One owner's part of the exchange. Only the means that it got are ever on a disk.

    Args:
        owner: Who this is.
        abroad: What it knows of others.
        match: ``intersection``, or ``hashes`` where both ends know every link.
        width: d_x.
    """

    def __init__(self, owner: OwnerId, abroad: Abroad, match: str, width: int) -> None:
        self.owner, self.abroad, self.links, self.match = owner, abroad, abroad.links, match
        self.names, self.there = np.unique(np.asarray(self.links.there), return_inverse=True)
        self.group = np.full(len(self.names), ALONE)
        self.memory = LinkMemory(abroad.memory, abroad.run)
        self.held = self.before = self.memory.held(width)
        self.asked: dict[OwnerId, GroupsAsked] = {}

    def state(self) -> HeldState | None:
        """What it got."""
        return HeldState(self.held.tensors()) if len(self.held.ids) else None

    def restore(self, state: HeldState) -> None:
        """Have it again."""
        self.held = HeldMeans.from_tensors(state.held)

    def begin(self, x: NodeFeatures) -> Introduction:
        """New keys, and another order of the own nodes that others may find."""
        self.own_words = words_from(x, self.abroad.form)
        rows = summed_rows(x, self.own_words)
        self.own_exponent, offered = exponent_of(rows), may_be_summed(rows)
        self.channel = Channel(self.owner, self.abroad.run, self.abroad.identity)
        self.blind, self.draws = new_blind(), generator(secrets.randbits(63), "order of nodes")
        self.order = self.draws.permutation(offered)
        self.own: Array | None = None  # own points, blinded and shuffled
        self.order_of: dict[OwnerId, NodeIds] = {}  # what was sought, in that order
        self.asked = {}
        return self.channel.introduction()

    @property
    def about(self) -> str:
        """What ids are hashed for."""
        return f"{self.abroad.run}, known links"

    def towards(self, other: OwnerId) -> NodeIds:
        """The links that may lead to that owner."""
        return np.flatnonzero((self.links.at == other) | (self.links.at == UNKNOWN))

    def away(self) -> dict[str, int]:
        """Owners who do not take part, and how many links lead to each; '' is nobody known."""
        at, count = np.unique(self.links.at[self.links.at != UNKNOWN], return_counts=True)
        here = {self.owner, *self.channel.keys}
        found = zip(at.tolist(), count.tolist(), strict=True)
        return {
            "" if i == NOBODY else self.abroad.name_of(i): n for i, n in found if i not in here
        }

    def sought(self) -> dict[OwnerId, SoughtNodes]:
        """For each other owner, the ids that may be its own."""
        for j in self.channel.keys:
            links = self.towards(j)
            sought = links if self.match == "hashes" else np.unique(self.there[links])
            self.order_of[j] = self.draws.permutation(sought)
        return {j: SoughtNodes(tensor(self.points_for(j))) for j in self.order_of}

    def points_for(self, other: OwnerId) -> Array:
        """What is sent to that owner to find nodes by."""
        if self.match == "hashes":
            return packed(self.tags_with(other, self.order_of[other]))
        names = self.names[self.order_of[other]].tolist()
        return packed(blinded(hashed(names, self.about), self.blind))

    def tags_with(self, other: OwnerId, links: NodeIds) -> list[bytes]:
        """The tags of some links to that owner."""
        ids, there = self.links.ids, self.links.there
        ends = ((ids[self.links.here[k]], there[k]) for k in links.tolist())
        return tags(ends, self.channel.common(other, "tags of links"))

    def found_for(self, other: OwnerId, asked: SoughtNodes) -> FoundNodes:
        """The answer to that owner."""
        points, own = unpacked(asked.points.numpy()), (self.own_exponent, self.own_words)
        if self.match == "hashes":
            links = self.towards(other)
            at = dict(zip(self.tags_with(other, links), self.links.here[links], strict=True))
            place = np.full(len(self.links.ids), NOWHERE)
            place[self.order] = np.arange(len(self.order))
            found = [place[at[tag]] if tag in at else NOWHERE for tag in points]
            places = np.array(found, dtype=np.int32)
            return FoundNodes(tensor(NO_POINTS), tensor(NO_POINTS), tensor(places), *own)
        if self.own is None:
            ids = [self.links.ids[v] for v in self.order.tolist()]
            self.own = packed(blinded(hashed(ids, self.about), self.blind))
        again = packed(blinded(points, self.blind))
        return FoundNodes(tensor(again), tensor(self.own), tensor(np.empty(0, np.int32)), *own)

    def located(self, found: Mapping[OwnerId, FoundNodes]) -> tuple[NodeIds, NodeIds, NodeIds]:
        """Links with both ends: own node, remote node by number, and whose each number is."""
        whose = np.full(len(self.names), NOWHERE)
        self.place = np.full(len(self.names), NOWHERE)
        for j, one in found.items():
            places = self.places_at(one)
            if len(places) != len(self.order_of[j]):
                raise PrivacyError(f"Owner {j} answered for other ids than were sought.")
            order = self.order_of[j]
            names = self.there[order] if self.match == "hashes" else order
            new = (places != NOWHERE) & (whose[names] == NOWHERE)
            whose[names[new]], self.place[names[new]] = j, places[new]
        self.exponent = max((one.exponent for one in found.values()), default=0)
        self.words = min((one.words for one in found.values()), default=0)
        old = self.memory.ids_before(ASKED, "")
        real = (whose != NOWHERE) & ~np.isin(fingerprints(self.names.tolist()), old)
        real = real[self.there]
        return self.links.here[real], self.there[real], whose

    def places_at(self, found: FoundNodes) -> NodeIds:
        """Where in the other owner's list each node is that was sought."""
        if self.match == "hashes":
            return found.places.numpy().astype(np.int64)
        theirs = blinded(unpacked(found.nodes.numpy()), self.blind)
        at = {point: place for place, point in enumerate(theirs)}
        again = unpacked(found.again.numpy())
        return np.array([at.get(point, NOWHERE) for point in again], dtype=np.int64)

    def requests(self, whose: NodeIds, group: NodeIds) -> dict[OwnerId, GroupsAsked]:
        """What each contributor is told: the groups of its nodes, and who else is in them."""
        self.group, nodes = group, np.flatnonzero(group != ALONE)
        self.memory.asked(fingerprints(self.names[nodes].tolist()))
        nodes = nodes[np.lexsort((self.place[nodes], group[nodes]))]
        name, owner = group[nodes], whose[nodes]
        pairs, count = np.unique(np.stack([name, owner]), axis=1, return_counts=True)
        parties = np.stack([*pairs, count], axis=1)
        for j in np.unique(owner).tolist():
            mine = owner == j
            members = np.stack([name[mine], self.place[nodes[mine]]], axis=1)
            told = parties[np.isin(parties[:, 0], name[mine])]
            self.asked[j] = GroupsAsked(
                numbers(members), numbers(told), self.exponent, self.words
            )
        return self.asked

    def own_nodes(self, asked: GroupsAsked) -> GroupsAsked:
        """The same, with nodes as they are numbered here."""
        members = asked.members.numpy()
        if members.ndim != 2 or members.shape[1] != 2:
            raise PrivacyError("An owner asked for a list of nodes that is none.")
        place = members[:, 1]
        if len(place) and not 0 <= place.min() <= place.max() < len(self.order):
            raise PrivacyError("An owner asked for nodes that this owner does not have.")
        own = np.stack([members[:, 0], self.order[place]], axis=1)
        order = np.lexsort((own[:, 1], own[:, 0]))  # as after a restart
        return replace(asked, members=numbers(own[order]))

    def give(self, receiver: OwnerId, asked: GroupsAsked) -> None:
        """Remember the nodes that are in sums of that owner; refuses those of earlier runs."""
        nodes, name = asked.members.numpy()[:, 1], self.abroad.name_of(receiver)
        ids = fingerprints([self.links.ids[v] for v in nodes.tolist()])
        if np.isin(ids, self.memory.ids_before(GAVE, name)).any():
            raise PrivacyError(
                f"Owner {receiver} asked for nodes that it got sums of in an earlier run, and "
                "the difference could show rows. It was sent nothing."
            )
        self.memory.gave(name, ids)

    def take(self, found: Mapping[OwnerId, GroupParts], x: NodeFeatures) -> None:
        """Hold the means of the groups that everybody added to; words count as in ``x``."""
        if not self.asked:
            return
        names, means = total_of(self.asked, found, self.held.means.shape[1])
        means = means * usual_values(x, self.words)
        at = np.searchsorted(names, self.group).clip(max=max(len(names) - 1, 0))
        got = np.isin(self.group, names)
        new = HeldMeans.by_name(self.names.tolist(), np.where(got, at, ALONE), means)
        self.memory.got(new)
        self.held = self.before.joined(new)

    def neighbors(self) -> tuple[NodeIds, NodeIds, Array | None]:
        """Every link whose other end is in a group: its own end, that group, what it weighs.

        A link that is listed twice has its largest weight.
        """
        group = self.held.of(self.names.tolist())[self.there]
        some = np.flatnonzero(group != ALONE)
        weights = self.links.weights
        heavy = some if weights is None else some[np.argsort(-weights[some], kind="stable")]
        pairs = np.stack([self.links.here, self.there])[:, heavy]
        kept = heavy[np.unique(pairs, axis=1, return_index=True)[1]]
        return self.links.here[kept], group[kept], None if weights is None else weights[kept]

    def key_for(self, receiver: OwnerId) -> Callable[[OwnerId, str], bytes]:
        """The keys of masks on parts that go to that owner."""

        def key(other: OwnerId, story: str) -> bytes:
            return self.channel.common(other, f"for {receiver}, {story}")

        return key


def tensor(values: Array) -> Whole:
    """As a message holds it."""
    return torch.from_numpy(np.array(values, order="C"))


def numbers(values: Array) -> Whole:
    """Small whole numbers as a message holds them."""
    return tensor(values.astype(np.int32))
