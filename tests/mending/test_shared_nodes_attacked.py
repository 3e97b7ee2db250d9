"""An owner who asks for sums over nodes that several owners hold, to solve for single rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import UNKNOWN
from fedsage.graph.partition import Partition
from fedsage.mending.links.contributions import GroupParts, GroupsAsked, total_of
from fedsage.mending.links.far_ends import FoundNodes
from fedsage.mending.links.memory import LinkMemory
from fedsage.mending.links.steps import by_links, work
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.runs.setup import data_owners, prepare
from tests.mending.test_shared_nodes import holders, sharing
from tests.small import small_config

Group = Mapping[OwnerId, int]  # a node of each of some owners, by its number in G


class Hostile:
    """Owner 0: it looks for all nodes, and asks for groups of its choice."""

    def __init__(self, owner: DataOwner, groups: Sequence[Group], num_nodes: int) -> None:
        assert owner.abroad is not None
        names = [str(v) for v in range(num_nodes)]
        here, at = np.zeros(num_nodes, np.int64), np.full(num_nodes, UNKNOWN)
        links = replace(owner.abroad.links, here=here, there=names, at=at)
        owner.abroad = replace(owner.abroad, links=links)
        self.mine, self.groups, self.width = work(owner), groups, owner.graph.num_features
        self.locate, self.place = self.mine.locate, dict[tuple[int, int], int]()
        self.sums: dict[int, np.ndarray] = {}
        self.mine.locate = self.located  # type: ignore[method-assign]
        self.mine.requests = self.requests  # type: ignore[method-assign]
        self.mine.take = self.take  # type: ignore[method-assign]

    def located(self, found: Mapping[OwnerId, FoundNodes]) -> None:
        for j, one in found.items():
            places = self.mine.places_at(one).tolist()
            for number, at in zip(self.mine.order_of[j].tolist(), places, strict=True):
                if at >= 0:
                    self.place[j, int(self.mine.ends.names[number])] = at
        self.locate(found)

    def requests(self, ignored: np.ndarray) -> dict[OwnerId, GroupsAsked]:
        known = {
            g: group
            for g, group in enumerate(self.groups)
            if all((j, v) in self.place for j, v in group.items())
        }
        for j in (1, 2, 3):
            members = [(g, self.place[j, one[j]]) for g, one in known.items() if j in one]
            parties = [(g, k) for g, one in known.items() if j in one for k in sorted(one)]
            if members:
                given = (torch.tensor(some, dtype=torch.int32) for some in (members, parties))
                self.mine.asked[j] = GroupsAsked(*given, self.mine.exponent)
        return self.mine.asked

    def take(self, found: Mapping[OwnerId, GroupParts], x: object) -> None:
        if self.mine.asked and found:
            names, means = total_of(self.mine.asked, found, self.width, self.mine.words)
            sums = {g: 2 * mean for g, mean in zip(names.tolist(), means, strict=True)}
            self.sums = sums


def attacked(
    graph: Graph, parts: Partition, groups: Sequence[Group]
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """The sums that the hostile owner got, by number, and the truth: the row of each node."""
    (owners,) = data_owners(prepare(small_config("links"), parts, None))
    hostile = Hostile(owners[0], groups, graph.num_nodes)
    by_links(
        Exchange(InProcessEngine(owners), prepare(small_config("links"), parts, None).plan)
    )
    rows = {
        int(v): row
        for ids, owner in zip(parts.nodes, owners, strict=True)
        for v, row in zip(ids, work(owner).rows.toarray(), strict=True)
    }
    return hostile.sums, rows


def with_own_nodes(parts: Partition) -> Iterator[Group]:
    """A node of one owner beside one of another that the hostile owner holds, too."""
    both, taken = holders(parts), set[int]()
    for s, who in both.items():
        if 0 in who:
            (k,) = (i for i in who if i != 0)
            j = next(i for i in (1, 2, 3) if i != k)
            free = (int(v) for v in parts.nodes[j] if int(v) not in {*taken, *both})
            if (a := next(free, None)) is not None:
                taken.add(a)
                yield {k: s, j: a}


def in_circles(parts: Partition) -> Iterator[Group]:
    """Three nodes that two of three owners hold each: a + b, b + c and c + a."""
    both = {v: set(who) for v, who in holders(parts).items() if 0 not in who}
    pairs = [
        [v for v, who in both.items() if who == {*pair}] for pair in ((1, 2), (2, 3), (1, 3))
    ]
    for a, b, c in zip(*pairs, strict=False):
        yield {1: a, 2: b}
        yield {2: a, 3: c}  # every owner shows each of its nodes once
        yield {3: b, 1: c}


def test_rows_cannot_be_subtracted_that_the_receiver_has(graph: Graph) -> None:
    parts = sharing(graph, 0.5)
    groups = list(with_own_nodes(parts))
    assert len(groups) > 10
    sums, rows = attacked(graph, parts, groups)
    found = 0
    for g, total in sums.items():
        own, other = (v for v in groups[g].values())
        found += np.allclose(total - rows[own], rows[other], atol=1e-3)
    assert not found


def test_sums_over_both_sides_of_nodes_cannot_be_solved(graph: Graph) -> None:
    parts = sharing(graph, 1.0)
    groups = list(in_circles(parts))
    assert len(groups) > 10
    sums, rows = attacked(graph, parts, groups)
    found = 0
    for g in range(0, len(groups), 3):
        if all(g + k in sums for k in range(3)):
            a = groups[g][1]
            found += np.allclose((sums[g] + sums[g + 1] - sums[g + 2]) / 2, rows[a], atol=1e-3)
    assert not found


def test_a_node_that_another_owner_held_once_is_in_no_sum_even_if_that_owner_is_away(
    tmp_path: Path,
) -> None:
    """Or both could show it, each when the other one is away."""
    memory = LinkMemory(tmp_path / "links.safetensors", "r1")
    assert memory.several(np.array([5, 3])).tolist() == [3, 5]
    later = LinkMemory(tmp_path / "links.safetensors", "r2")
    assert later.several(np.array([], np.int64)).tolist() == [3, 5]
    assert later.several(np.array([4])).tolist() == [3, 4, 5]
