"""What an owner remembers while known links are matched and their sums are asked for."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from fedsage.errors import PrivacyError
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import UNKNOWN
from fedsage.mending.links.contributions import GroupParts, GroupsAsked, exponent_of, total_of
from fedsage.mending.links.far_ends import NOWHERE, FarEnds, FoundNodes, SoughtNodes, once
from fedsage.mending.links.groups import ALONE
from fedsage.mending.links.memory import LinkMemory
from fedsage.mending.links.received import HeldMeans, fingerprints, numbers, tensor
from fedsage.mending.links.shared_nodes import (
    Dropped,
    SharedNodes,
    Sides,
    several_hold,
    sides_of,
)
from fedsage.mending.links.summed_rows import (
    may_be_summed,
    summed_rows,
    usual_count,
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
from fedsage.protocol.letters import Abroad, Channel, Introduction
from fedsage.protocol.messages import OwnerId
from fedsage.rng import generator
from fedsage.shapes import Array, NodeFeatures, NodeIds

NO_POINTS = np.empty((0, 32), np.int8)


@dataclass(frozen=True, slots=True)
class HeldState:
    """The means that an owner has got."""

    held: Parameters


class LinkWork:
    """One owner's part of the exchange. Only the means that it got are ever on a disk.

    ``words`` is the first column of which only presence is summed, and ``usual`` the number of
    words in a row: first as this owner has them, then as all agree.

    Args:
        owner: Who this is.
        abroad: What it knows of others.
        match: ``intersection``, or ``hashes`` where both ends know every link.
        width: d_x.
    """

    def __init__(self, owner: OwnerId, abroad: Abroad, match: str, width: int) -> None:
        self.owner, self.abroad, self.links, self.match = owner, abroad, abroad.links, match
        self.ends, self.dropped = FarEnds(self.links), Dropped()
        self.memory = LinkMemory(abroad.memory, abroad.run)
        self.held = self.before = self.memory.held(width)
        self.asked: dict[OwnerId, GroupsAsked] = {}

    def state(self) -> HeldState | None:
        """What it got."""
        kept = self.held.tensors() | self.ends.tensors() | self.dropped.tensors()
        return HeldState(kept) if any(len(one) for one in kept.values()) else None

    def restore(self, state: HeldState) -> None:
        """Have it again."""
        self.held = HeldMeans.from_tensors(state.held)
        self.ends.restore(state.held)
        self.dropped = Dropped.from_tensors(state.held)

    def begin(self, x: NodeFeatures, facts: Sequence[str]) -> Introduction:
        """New keys, and what to tell others about the own rows.

        ``facts`` must be the same on all sides of a node that several owners hold.
        """
        self.words = words_from(x, self.abroad.form)
        self.usual = usual_count(x, self.words)
        self.channel = Channel(self.owner, self.abroad.run, self.abroad.identity)
        self.blind, self.draws = new_blind(), generator(secrets.randbits(63), "order of nodes")
        self.own: Array | None = None  # own points, blinded and shuffled
        self.order_of: dict[OwnerId, NodeIds] = {}  # what was sought, in that order
        self.asked, self.ends = {}, FarEnds(self.links)
        ids, told = (self.links.ids, facts) if self.links.shared else ((), ())
        self.shared = SharedNodes(ids, told, self.blind, self.about, self.draws)
        return self.channel.introduction()

    @property
    def about(self) -> str:
        """What ids are hashed for."""
        return f"{self.abroad.run}, known links"

    def towards(self, other: OwnerId) -> NodeIds:
        """The links that may lead to that owner."""
        return np.flatnonzero((self.links.at == other) | (self.links.at == UNKNOWN))

    def away(self) -> dict[str, int]:
        """Owners who do not take part, and how many links lead to each."""
        at, count = np.unique(self.links.at[self.links.at >= 0], return_counts=True)
        found = dict(zip(at.tolist(), count.tolist(), strict=True))
        gone = found.keys() - {self.owner, *self.channel.keys}
        return {self.abroad.name_of(i): found[i] for i in sorted(gone)} | {**self.links.absent}

    def sought(self) -> dict[OwnerId, SoughtNodes]:
        """For each other owner, the ids that may be its own."""
        for j in self.channel.keys:
            links = self.towards(j)
            sought = links if self.match == "hashes" else np.unique(self.ends.there[links])
            self.order_of[j] = self.draws.permutation(sought)
        rows = self.words, self.usual
        return {
            j: SoughtNodes(tensor(self.points_for(j)), tensor(self.shared.shown_to(j)), *rows)
            for j in self.order_of
        }

    def agree(self, told: Collection[SoughtNodes], x: NodeFeatures) -> None:
        """What all sum, from what each told; and the own nodes that others may find, shuffled.

        Owners who were told different things have other keys, and their parts do not add up.
        """
        self.usual = int(np.median([self.usual, *(one.usual for one in told)]))
        self.words = min([self.words, *(one.words for one in told)])
        if not 0 <= self.words <= x.shape[1]:
            raise PrivacyError(f"An owner has words from column {self.words} on.")
        self.rows = summed_rows(x, self.words, self.usual)
        self.own_exponent = exponent_of(self.rows)
        self.order = self.draws.permutation(may_be_summed(x, self.words, self.usual))

    def points_for(self, other: OwnerId) -> Array:
        """What is sent to that owner to find nodes by."""
        if self.match == "hashes":
            return packed(self.tags_with(other, self.order_of[other]))
        names = self.ends.names[self.order_of[other]].tolist()
        return packed(blinded(hashed(names, self.about), self.blind))

    def tags_with(self, other: OwnerId, links: NodeIds) -> list[bytes]:
        """The tags of some links to that owner."""
        ids, there = self.links.ids, self.links.there
        ends = ((ids[self.links.here[k]], there[k]) for k in links.tolist())
        return tags(ends, self.channel.common(other, "tags of links"))

    def found_for(self, other: OwnerId, asked: SoughtNodes) -> FoundNodes:
        """The answer to that owner."""
        points, back = (
            unpacked(asked.points.numpy()),
            self.shared.multiplied(other, asked.shared.numpy()),
        )
        own = self.own_exponent, tensor(back)
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

    def locate(self, found: Mapping[OwnerId, FoundNodes]) -> None:
        """Learn whose nodes known links lead to, and which own nodes others hold, too."""
        for j, one in found.items():
            places, order = self.places_at(one), self.order_of[j]
            if len(places) != len(order):
                raise PrivacyError(f"Owner {j} answered for other ids than were sought.")
            numbers = self.ends.there[order] if self.match == "hashes" else order
            self.ends.found(j, numbers, places)
        self.exponent = max((one.exponent for one in found.values()), default=0)
        self.common = {
            j: self.shared.common_with(j, one.shared.numpy()) for j, one in found.items()
        }
        self.dropped = Dropped.of(self.common, self.owner)
        self.withheld = self.in_no_sum()

    def in_no_sum(self) -> NodeIds:
        """The own nodes that other owners hold, too, in this run or in an earlier one."""
        if not self.links.shared:
            return np.empty(0, np.int64)
        ids = fingerprints(self.links.ids)
        return np.flatnonzero(np.isin(ids, self.memory.several(ids[several_hold(self.common)])))

    def sides_for(self, graph: Graph) -> dict[OwnerId, Sides]:
        """For each other owner, neighbors of the nodes that both hold; nothing if none are."""
        if not self.links.shared:
            return {}
        place = np.full(graph.num_nodes, NOWHERE)
        place[self.order] = np.arange(len(self.order))
        given = graph, self.links.ids, place, self.withheld, self.memory.secret()
        return {
            j: sides_of(one, *given, self.abroad.name_of(j)) for j, one in self.common.items()
        }

    def add_sides(self, told: Mapping[OwnerId, Sides]) -> None:
        """Have links to the neighbors that own nodes have at others who hold them, too."""
        for j, one in told.items():
            here, places, tags = self.common[j].read(one, self.shared.order[j])
            found = self.ends.add(here, self.ends.ids_at(j, places, tags))
            self.ends.found(j, found, places)
        for j, one in told.items():
            self.ends.lose(j, one.withheld.numpy())

    def places_at(self, found: FoundNodes) -> NodeIds:
        """Where in the other owner's list each node is that was sought."""
        if self.match == "hashes":
            return found.places.numpy().astype(np.int64)
        theirs = blinded(unpacked(found.nodes.numpy()), self.blind)
        at = {point: place for place, point in enumerate(theirs)}
        again = unpacked(found.again.numpy())
        return np.array([at.get(point, NOWHERE) for point in again], dtype=np.int64)

    def requests(self, group: NodeIds) -> dict[OwnerId, GroupsAsked]:
        """What each contributor is told: the groups of its nodes, and who else is in them."""
        self.group, nodes, place = group, np.flatnonzero(group != ALONE), self.ends.place
        self.memory.asked(self.ends.ids[nodes])
        nodes = nodes[np.lexsort((place[nodes], group[nodes]))]
        name, owner = group[nodes], self.ends.whose[nodes]
        parties = np.unique(np.stack([name, owner], axis=1), axis=0)
        for j in np.unique(owner).tolist():
            mine = owner == j
            members = np.stack([name[mine], place[nodes[mine]]], axis=1)
            told = parties[np.isin(parties[:, 0], name[mine])]
            self.asked[j] = GroupsAsked(numbers(members), numbers(told), self.exponent)
        return self.asked

    def own_nodes(self, asked: GroupsAsked) -> GroupsAsked:
        """The same, with nodes as they are numbered here."""
        members = asked.members.numpy()
        if members.ndim != 2 or members.shape[1] != 2:
            raise PrivacyError("An owner asked for something that is not a list of nodes.")
        place = members[:, 1]
        if len(place) and not 0 <= place.min() <= place.max() < len(self.order):
            raise PrivacyError("An owner asked for nodes that this owner does not have.")
        own = np.stack([members[:, 0], self.order[place]], axis=1)
        if np.isin(own[:, 1], self.withheld).any():
            raise PrivacyError("An owner asked for nodes that several owners hold.")
        order = np.lexsort((own[:, 1], own[:, 0]))  # as after a restart
        return replace(asked, members=numbers(own[order]))

    def give(self, receiver: OwnerId, asked: GroupsAsked, again: bool) -> None:
        """Remember the nodes that are in sums of that owner; refuses those of earlier runs.

        ``again``: what it was shown in this run is known, and was compared already.
        """
        members, parties = asked.members.numpy(), asked.parties.numpy()
        ids = fingerprints([self.links.ids[v] for v in members[:, 1].tolist()])
        groups = np.ascontiguousarray(members[:, 0]).tobytes() + parties.tobytes()
        mark = sha256(f"{asked.exponent} ".encode() + ids.tobytes() + groups).digest()
        self.memory.gave(self.abroad.name_of(receiver), ids, mark, again)

    def take(self, found: Mapping[OwnerId, GroupParts], x: NodeFeatures) -> None:
        """Hold the means of the groups that everybody added to; words count as in ``x``."""
        if not self.asked:
            return
        names, means = total_of(self.asked, found, self.held.means.shape[1], self.words)
        means = means * usual_values(x, self.words)
        at = np.searchsorted(names, self.group).clip(max=max(len(names) - 1, 0))
        got = np.isin(self.group, names)
        new = HeldMeans.of_groups(self.ends.ids, np.where(got, at, ALONE), means)
        self.memory.got(new)
        self.held = self.before.joined(new)

    def neighbors(self) -> tuple[NodeIds, NodeIds, Array | None]:
        """Every link whose other end is in a group: its own end, the other one, its weight.

        The other end is given by its place among the nodes that are held.
        """
        ends = self.ends
        place = self.held.places(ends.ids)[ends.there]
        weights = ends.weights
        kept = once(ends.here, ends.there, weights, np.flatnonzero(place != ALONE))
        return ends.here[kept], place[kept], None if weights is None else weights[kept]

    def key_for(self, receiver: OwnerId) -> Callable[[OwnerId, str], bytes]:
        """The keys of masks on parts that go to that owner."""

        def key(other: OwnerId, story: str) -> bytes:
            rows = f"words from {self.words} on, usually {self.usual}"
            return self.channel.common(other, f"for {receiver}, {rows}, {story}")

        return key
