from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, vstack

from fedsage.audit.attacks.link_sums import members_of, told_apart, without_alike
from fedsage.engines.inprocess import InProcessEngine
from fedsage.engines.simulated import hide_sums, known_keys
from fedsage.errors import ConfigError, PrivacyError
from fedsage.graph.feature_forms import RAW
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import UNKNOWN
from fedsage.graph.partition import Partition, partition
from fedsage.mending.links.contributions import GroupsAsked
from fedsage.mending.links.groups import ALONE, class_guesses, safe_groups
from fedsage.mending.links.likely_rows import likely_rows
from fedsage.mending.links.received import HeldMeans, fingerprints
from fedsage.mending.links.shown_so_far import Shown
from fedsage.mending.links.steps import (
    by_links,
    contribute,
    guesses_of,
    mend_by_links,
    shown,
    work,
)
from fedsage.mending.links.summed_rows import (
    FEWEST,
    MOST,
    may_be_summed,
    present,
    summed_rows,
    usual_count,
    usual_values,
    words_from,
    words_in,
)
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.letters import Channel, Letters
from fedsage.protocol.messages import Ask, OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Miss
from fedsage.protocol.procedures import Procedure
from tests.small import owners_of, small_setup, trained


@pytest.fixture
def parts(graph: Graph) -> Partition:
    return partition(graph, 4, how="random", seed=1)


def linked(graph: Graph, parts: Partition, **links: Any) -> list[DataOwner]:
    """Owners after the exchange of known links."""
    setup = small_setup(graph, parts, "links", links=links)
    owners = owners_of(setup)
    by_links(Exchange(InProcessEngine(owners), setup.plan))
    return owners


def members(owner: DataOwner) -> dict[int, list[int]]:
    """Which remote nodes, by number in G, were summed for an owner, by group."""
    mine = work(owner)
    found: dict[int, list[int]] = {}
    for name, group in zip(mine.ends.names, mine.group, strict=True):
        if group != ALONE:
            found.setdefault(int(group), []).append(int(name))
    return found


def rows_of(parts: Partition) -> dict[int, np.ndarray]:
    """The row of each node of G as it is summed."""
    usual = int(np.median([usual_count(part.x, 0) for part in parts.subgraphs]))
    return {
        int(v): row
        for ids, part in zip(parts.nodes, parts.subgraphs, strict=True)
        for v, row in zip(ids, summed_rows(part.x, 0, usual).toarray(), strict=True)
    }


def test_a_link_gets_the_mean_of_the_group_of_its_other_end(
    graph: Graph, parts: Partition
) -> None:
    summed = rows_of(parts)
    for owner in linked(graph, parts):
        held, sets = work(owner).held, members(owner)
        assert len(held.means) > 5
        for nodes in sets.values():
            found = set(held.of([str(u) for u in nodes]).tolist())
            assert len(found) == 1
            if found != {ALONE}:  # two owners' rows were alike
                truth = sum(summed[u] for u in nodes) / len(nodes)
                truth = truth * usual_values(owner.graph.x, 0)
                np.testing.assert_allclose(held.means[found.pop()], truth, atol=1e-3)


def test_every_remote_neighbor_is_in_one_group_at_two_owners(
    graph: Graph, parts: Partition
) -> None:
    whose = {int(v): i for i, ids in enumerate(parts.nodes) for v in ids}
    for owner in linked(graph, parts):
        sets = list(members(owner).values())
        together = [u for nodes in sets for u in nodes]
        assert len(together) == len(set(together)) == (work(owner).ends.whose >= 0).sum()
        for nodes in sets:
            assert len({whose[u] for u in nodes} - {owner.id}) == len(nodes) >= 2


def test_leaves_are_as_many_as_remote_neighbors_and_others_get_a_copy(
    graph: Graph, parts: Partition
) -> None:
    for owner in linked(graph, parts):
        assert owner.mended is not None
        held, n, ids = work(owner).held, owner.graph.num_nodes, parts.nodes[owner.id]
        here, there, _ = work(owner).neighbors()
        rest = owner.graph.x, guesses_of(owner), 0
        likely = likely_rows(held, here, there, *rest).toarray()
        for v in range(n):
            leaves = [u for u in owner.mended.neighbors(v) if u >= n]
            remote = [str(u) for u in np.setdiff1d(graph.neighbors(ids[v]), ids)]
            found = held.places(fingerprints(remote))
            rows = owner.mended.x[leaves].toarray()
            if (found != ALONE).any():
                truth = likely[found[found != ALONE]]
                assert np.array_equal(rows[np.lexsort(rows.T)], truth[np.lexsort(truth.T)])
            else:
                assert (rows == owner.graph.x[[v]].toarray()).all() and len(leaves) == 1


def sum_of_two(words: int) -> tuple[HeldMeans, np.ndarray]:
    """The mean of two remote nodes, and the rows of two own ones, each linked to one of them.

    The last word is in both remote rows; own nodes have the second and the third.
    """
    x = np.array([[2, 1, 0, 1], [4, 0, 1, 1]], np.float32)
    mean = np.array([[3, 0.5, 0.5, 1]], np.float32) * usual_values(x, words)
    return HeldMeans(np.arange(2), np.zeros(2, np.int64), mean), x


@pytest.mark.parametrize("sparse", [True, False])
def test_a_word_goes_to_the_node_whose_neighbor_has_it(sparse: bool) -> None:
    held, x = sum_of_two(1)
    ends = np.arange(2)
    made = likely_rows(held, ends, ends, csr_array(x) if sparse else x, NO_GUESS[:2], 1)
    rows = made.toarray() if sparse else made
    assert rows[0, 1] == rows[1, 2] > 0.55 and rows[0, 2] == rows[1, 1] < 0.45
    np.testing.assert_allclose(rows.mean(axis=0), held.means[0])  # the sum is what it was
    assert (rows[:, 3] == 1).all()  # both have it
    assert (rows[:, 0] == 3).all()  # a number, no word
    swapped = likely_rows(held, ends, ends[::-1], x, NO_GUESS[:2], 1)
    assert np.array_equal(swapped, rows[::-1])


def test_a_word_goes_to_the_node_whose_neighbor_may_be_of_its_class() -> None:
    x = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], np.float32)
    held = HeldMeans(np.arange(2), np.zeros(2, np.int64), np.array([[0, 0, 0.5, 0.5]], "f4"))
    guesses = np.array([[0.9, 0.1], [0.1, 0.9]] * 2)
    rows = likely_rows(held, np.arange(2), np.arange(2), x, guesses, 0)
    assert rows[0, 2] == rows[1, 3] > 0.55
    alike = likely_rows(held, np.arange(2), np.arange(2), x, NO_GUESS[:4], 0)
    np.testing.assert_allclose(alike, np.repeat(held.means, 2, axis=0))


def test_numbers_stay_means() -> None:
    held, x = sum_of_two(4)
    rows = likely_rows(held, np.arange(2), np.arange(2), x, NO_GUESS[:2], 4)
    assert np.array_equal(rows, np.repeat(held.means, 2, axis=0))


def test_without_copies_other_nodes_stay_as_they_are(graph: Graph, parts: Partition) -> None:
    for owner in linked(graph, parts, others="nothing"):
        assert owner.mended is not None
        remote = (work(owner).held.of(work(owner).links.there) != ALONE).sum()
        assert owner.mended.num_nodes == owner.graph.num_nodes + remote


@pytest.mark.parametrize("at_least", [2, 3])
def test_small_sums_are_not_asked_for(graph: Graph, parts: Partition, at_least: int) -> None:
    for owner in linked(graph, parts, at_least=at_least):
        sizes = [len(some) for some in members(owner).values()]
        assert min(sizes) >= at_least
        assert np.mean(sizes) < 2 * at_least


def test_sums_of_more_nodes_than_there_are_owners_are_not_made(
    graph: Graph, parts: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    assert not any(members(owner) for owner in linked(graph, parts, at_least=4))
    assert "links.at_least is 4, and 3 other owners take part" in caplog.text


@pytest.mark.slow
def test_links_that_nobody_knows_are_not_used(graph: Graph, parts: Partition) -> None:
    for owner in linked(graph, parts, share=0.0):
        assert not len(work(owner).held.ids)
    half = linked(graph, parts, share=0.5)
    whole = linked(graph, parts)
    count = [sum(len(work(one).links.here) for one in some) for some in (half, whole)]
    assert 0.3 < count[0] / count[1] < 0.7


@pytest.mark.slow
def test_hashes_and_intersection_find_the_same(graph: Graph, parts: Partition) -> None:
    for one, other in zip(
        linked(graph, parts), linked(graph, parts, match="hashes"), strict=True
    ):
        assert np.array_equal(work(one).held.ids, work(other).held.ids)
        assert np.array_equal(work(one).held.means, work(other).held.means)


@pytest.mark.slow
def test_whose_node_it_is_need_not_be_known(graph: Graph, parts: Partition) -> None:
    setup = small_setup(graph, parts, "links")
    owners = owners_of(setup)
    for owner in owners:
        assert owner.abroad is not None
        links = replace(owner.abroad.links, at=np.full_like(owner.abroad.links.at, UNKNOWN))
        owner.abroad = replace(owner.abroad, links=links)
    by_links(Exchange(InProcessEngine(owners), setup.plan))
    for owner, known in zip(owners, linked(graph, parts), strict=True):
        assert np.array_equal(work(owner).held.means, work(known).held.means)


@pytest.mark.parametrize(("match", "used"), [("intersection", True), ("hashes", False)])
def test_a_link_that_one_end_knows_is_used_there_unless_links_are_matched_by_hashes(
    graph: Graph, parts: Partition, match: str, used: bool
) -> None:
    setup = small_setup(graph, parts, "links", links={"match": match})
    owners = owners_of(setup)
    for owner in owners[1:]:
        assert owner.abroad is not None
        links, none = owner.abroad.links, np.empty(0, np.int64)
        owner.abroad = replace(owner.abroad, links=replace(links, here=none, there=[], at=none))
    by_links(Exchange(InProcessEngine(owners), setup.plan))
    assert bool(len(work(owners[0]).held.ids)) == used
    assert not any(len(work(owner).held.ids) for owner in owners[1:])


@pytest.mark.slow
def test_with_hidden_sums_the_classifier_is_the_same(graph: Graph, parts: Partition) -> None:
    found = []
    for level in ("open", "sums"):
        setup = small_setup(graph, parts, "links", privacy={"level": level})
        engine = InProcessEngine(owners_of(setup))
        exchange = Exchange(engine, setup.plan)
        if level == "sums":
            hide_sums(exchange, engine)
        found.append(trained(setup, exchange, 2).classifier.phi)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


class Watched(InProcessEngine):
    """A server that does as it likes with what it carries."""

    change: Callable[[Procedure[Any, Any, Any], Any, Any], Any]

    def carry(self, procedure: Any, requests: Any, lot: int | None = None) -> Any:
        found = super().carry(procedure, requests, lot)
        return self.change(procedure, requests, found)


def carried_by(
    graph: Graph, parts: Partition, change: Callable[..., Any]
) -> tuple[list[DataOwner], Exchange]:
    setup = small_setup(graph, parts, "links")
    owners = owners_of(setup)
    engine = Watched(owners)
    engine.change, engine.min_owners = change, 1
    return owners, Exchange(engine, setup.plan)


def test_letters_look_like_chance(graph: Graph, parts: Partition) -> None:
    seen: list[bytes] = []

    def look(procedure: Any, requests: Any, found: Mapping[OwnerId, Any]) -> Any:
        for reply in found.values():
            if isinstance(reply, Letters):
                seen.extend(box.numpy().tobytes() for box in reply.of.values())
        return found

    _, exchange = carried_by(graph, parts, look)
    by_links(exchange)
    count = np.bincount(np.frombuffer(b"".join(seen), np.uint8), minlength=256)
    expected = count.sum() / 256
    chi = ((count - expected) ** 2 / expected).sum()
    assert count.sum() > 20_000
    assert chi < 255 + 6 * np.sqrt(2 * 255)


def test_an_altered_letter_is_refused(graph: Graph, parts: Partition) -> None:
    def alter(procedure: Any, requests: Any, found: Mapping[OwnerId, Any]) -> Any:
        if procedure is contribute:
            for reply in found.values():
                for box in reply.of.values():
                    box[20] ^= 1
        return found

    _, exchange = carried_by(graph, parts, alter)
    with pytest.raises(PrivacyError, match="altered"):
        by_links(exchange)


def test_a_server_in_the_middle_is_found_out(graph: Graph, parts: Partition) -> None:
    hers = known_keys(range(4))

    def swap(procedure: Any, requests: Any, found: Mapping[OwnerId, Any]) -> Any:
        if procedure.name == "introduce":
            return {i: Channel(i, "simulation", hers[i]).introduction() for i in found}
        return found

    _, exchange = carried_by(graph, parts, swap)
    with pytest.raises(PrivacyError, match="signature of owner 0"):
        by_links(exchange)


@pytest.mark.slow
def test_an_owner_lost_on_the_way_takes_its_rows_with_it(
    graph: Graph, parts: Partition
) -> None:
    def lose(procedure: Any, requests: Any, found: Mapping[OwnerId, Any]) -> Any:
        if procedure is contribute:
            return {**found, 3: Miss(3, "contribute", "gone")}
        return found

    owners, exchange = carried_by(graph, parts, lose)
    by_links(exchange)
    for owner, whole in zip(owners, linked(graph, parts), strict=True):
        held, full = work(owner).held, work(whole).held
        gone = set(parts.nodes[3].tolist())
        lost = [str(u) for some in members(whole).values() if gone & set(some) for u in some]
        kept = ~np.isin(np.arange(len(full.means)), full.of(lost))
        if owner.id == 3:
            assert not len(held.ids)  # nobody's parts were brought to it
            continue
        assert lost and kept.any()
        assert np.array_equal(held.ids, full.ids[kept[full.group]])
        assert np.array_equal(held.means, full.means[kept])
        assert owner.mended is not None


def asks_of(owner: DataOwner, change: Callable[[GroupsAsked], GroupsAsked]) -> None:
    """Let an owner ask for other sums than it should."""
    mine = work(owner)
    honest = mine.requests

    def requests(group: Any) -> dict[OwnerId, GroupsAsked]:
        mine.asked = {j: change(one) for j, one in honest(group).items()}
        return mine.asked

    mine.requests = requests  # type: ignore[method-assign]


def hostile(
    graph: Graph, parts: Partition, change: Callable[[GroupsAsked], GroupsAsked]
) -> DataOwner:
    """Owner 0 after an exchange in which it asked for other sums than it should."""
    setup = small_setup(graph, parts, "links")
    owners = owners_of(setup)
    asks_of(owners[0], change)
    by_links(Exchange(InProcessEngine(owners), setup.plan))
    return owners[0]


def alone(asked: GroupsAsked) -> GroupsAsked:
    """Every group as if nobody else were in it."""
    parties = asked.parties.numpy()
    names = np.unique(asked.members.numpy()[:, 0])
    own = [o for o in np.unique(parties[:, 1]) if (parties[:, 1] == o).sum() == len(names)]
    found = parties[parties[:, 1] == own[0]]
    return replace(asked, parties=torch.from_numpy(found))


def twice(asked: GroupsAsked) -> GroupsAsked:
    """A node in another group too, which is not told to the others."""
    members = asked.members.numpy().copy()
    members[1, 1] = members[0, 1]
    return replace(asked, members=torch.from_numpy(members))


def by_one_owner(asked: GroupsAsked) -> GroupsAsked:
    """Two nodes of one owner in a group."""
    members = asked.members.numpy().copy()
    members[1, 0] = members[0, 0]
    return replace(asked, members=torch.from_numpy(members))


def elsewhere(asked: GroupsAsked) -> GroupsAsked:
    """Nodes that the other owner does not have."""
    members = asked.members.numpy().copy()
    members[:, 1] += 10_000
    return replace(asked, members=torch.from_numpy(members))


@pytest.mark.parametrize("change", [alone, twice, by_one_owner, elsewhere])
def test_sums_that_would_show_rows_are_refused(
    graph: Graph,
    parts: Partition,
    change: Callable[[GroupsAsked], GroupsAsked],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not len(hostile(graph, parts, change).parts["links"].held.ids)  # type: ignore[attr-defined]
    assert "was sent nothing" in caplog.text or "does not have" in caplog.text


def got_by_liar(
    graph: Graph, parts: Partition, name: str, lie: Callable[[Any], Any]
) -> tuple[np.ndarray, np.ndarray]:
    """The largest value of each mean of owner 0, and which ones have a node of owner 1.

    It tells owner 1 something else in one step than the others.
    """
    setup = small_setup(graph, parts, "links")
    owners = owners_of(setup)
    mine = work(owners[0])
    honest = getattr(mine, name)

    def told(*given: Any) -> Any:
        return {j: lie(one) if j == 1 else one for j, one in honest(*given).items()}

    setattr(mine, name, told)
    by_links(Exchange(InProcessEngine(owners), setup.plan))
    group = mine.held.at(mine.ends.ids[mine.ends.whose == 1])
    return np.abs(mine.held.means).max(axis=1), np.unique(group[group != ALONE])


LIES: dict[str, Callable[[Any], Any]] = {
    "requests": lambda one: replace(one, exponent=one.exponent + 1),
    "sought": lambda one: replace(one, usual=1000),  # or rows would be cut to another length
}


@pytest.mark.parametrize("step", LIES)
def test_who_tells_two_stories_gets_noise(graph: Graph, parts: Partition, step: str) -> None:
    largest, some = got_by_liar(graph, parts, step, LIES[step])
    assert len(some) and (largest[some] > 1).all()
    assert (np.delete(largest, some) <= 1).all()  # presence


@pytest.mark.slow
def test_a_node_is_never_shown_in_another_sum(graph: Graph, parts: Partition) -> None:
    setup = small_setup(graph, parts, "links")
    owners = owners_of(setup)
    exchange = Exchange(InProcessEngine(owners), setup.plan)
    by_links(exchange)
    before = work(owners[0]).held
    by_links(exchange)  # after a restart
    again = work(owners[0]).held
    assert np.array_equal(again.means, before.means)
    assert owners[0].abroad is not None
    links = owners[0].abroad.links
    fewer = replace(links, here=links.here[2:], there=links.there[2:], at=links.at[2:])
    mine = work(owners[0])
    mine.links = fewer
    by_links(exchange)
    assert not len(mine.held.ids)  # other groups of the same nodes: their difference is rows


def test_what_was_shown_outlasts_a_restart(graph: Graph, parts: Partition) -> None:
    owner = linked(graph, parts)[1]
    kept = shown(owner).state()
    assert kept is not None
    fresh = Shown(owner.graph.num_nodes)
    fresh.restore(kept)
    assert set(fresh.to) == set(shown(owner).to)
    for i, one in shown(owner).to.items():
        assert np.array_equal(fresh.to[i].nodes, one.nodes)
        assert fresh.to[i].groups == one.groups


def test_a_restarted_owner_mends_by_the_sums_it_got(graph: Graph, parts: Partition) -> None:
    setup = small_setup(graph, parts, "links")
    before = linked(graph, parts)[2]
    state = work(before).state()
    assert state is not None
    after = owners_of(setup)[2]
    work(after).restore(state)
    mend_by_links(after, Ask(0))
    assert before.mended is not None and after.mended is not None
    assert (before.mended.x != after.mended.x).nnz == 0


NO_GUESS = np.ones((40, 2))  # all classes alike


def rebuilt(rows: np.ndarray) -> int:
    """How many single nodes are combinations of sums: unit vectors in the space of rows."""
    _, sizes, vectors = np.linalg.svd(rows, full_matrices=False)
    return int(((vectors[sizes > 1e-9] ** 2).sum(axis=0) > 1 - 1e-9).sum())


def incidence(group: np.ndarray) -> np.ndarray:
    return np.stack([group == one for one in np.unique(group[group != ALONE])]).astype(float)


def test_overlapping_sums_can_be_solved_for_single_rows_and_groups_cannot() -> None:
    here, there = np.array([[0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 0, 2]])
    triangle = np.zeros((3, 3))
    triangle[here, there] = 1
    assert rebuilt(triangle) == 3  # though any two sums differ by two nodes
    group = safe_groups(here, there, np.arange(3), np.eye(3, dtype=np.float32), NO_GUESS[:3], 2)
    assert (group == 0).all()
    assert rebuilt(incidence(group)) == 0


@pytest.mark.parametrize("at_least", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_no_combination_of_sums_has_fewer_nodes_than_a_group(seed: int, at_least: int) -> None:
    draws = np.random.default_rng(seed)
    here, there = draws.integers(0, 40, 150), draws.zipf(1.5, 150) % 60
    owner = draws.integers(0, 12, 60)
    x = draws.normal(size=(40, 8)).astype(np.float32)
    group = safe_groups(here, there, owner, x, NO_GUESS[:40], at_least)
    assert (group[np.unique(there)] != ALONE).mean() > (0.99 if at_least < 5 else 0.6)
    for some in incidence(group).astype(bool):
        assert some.sum() >= at_least and len(np.unique(owner[some])) == some.sum()
    mix = draws.normal(size=group.max() + 1) @ incidence(group)
    assert all(np.isclose(mix, value).sum() >= at_least for value in mix)


def test_nodes_with_a_common_neighbor_are_summed_together() -> None:
    here, there = np.array([[0, 0, 1, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
    x = np.eye(4, dtype=np.float32)
    group = safe_groups(here, there, np.array([0, 1, 0, 1, 0, 1]), x, NO_GUESS[:4], 2)
    assert group[0] == group[1] != group[2] == group[3]
    assert group[4] == group[5]  # neighbors of two nodes with one link each


def test_nodes_whose_neighbors_look_alike_are_summed_together() -> None:
    x = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.1, 0.9]], np.float32)
    nodes = np.arange(4)
    group = safe_groups(nodes, nodes, nodes, x, NO_GUESS[:4], 2)
    assert group[0] == group[2] != group[1] == group[3]


def test_nodes_whose_neighbors_may_have_one_class_are_summed_together() -> None:
    x, y = np.eye(8, dtype=np.float32), np.array([0, 1, 0, 1, 0, 1, 0, 1])
    x[4:, :2] = x[:4, 2:4] = 0
    x[[0, 2, 4, 6], 0] += 1  # a word for each class
    x[[1, 3, 5, 7], 1] += 1
    guesses = class_guesses(x, y, np.arange(4), 2)
    assert (guesses.argmax(axis=1) == y).all()
    nodes = np.arange(4, 8)
    places = nodes - 4
    group = safe_groups(nodes, places, places, np.eye(8, dtype=np.float32), guesses, 2)
    assert group[0] == group[2] != group[1] == group[3]


def test_nodes_of_one_owner_alone_are_in_no_group() -> None:
    nodes = np.arange(4)
    x = np.eye(4, dtype=np.float32)
    group = safe_groups(nodes, nodes, np.zeros(4, np.int64), x, NO_GUESS[:4], 2)
    assert (group == ALONE).all()
    none = np.empty(0, np.int64)
    assert not len(safe_groups(none, none, none, x, NO_GUESS[:4], 2))


def test_parts_fit_into_their_numbers_whatever_the_features_are() -> None:
    from fedsage.mending.links.contributions import exponent_of, means_of, parts_of

    x = np.array([[1e6, -3.0, 0.0], [-1e6, 0.5, 0.25]], np.float32)
    members = torch.tensor([[0, 0], [1, 1]], dtype=torch.int32)
    parties = torch.tensor([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]], dtype=torch.int32)
    asked = GroupsAsked(members, parties, exponent_of(x))
    parts = parts_of(x, asked)
    found = means_of(parts, asked.exponent)
    unit = 2.0 ** (asked.exponent - 14)
    np.testing.assert_allclose(found, x / [[3], [2]], atol=unit / 2)
    assert parts.dtype == np.int16


def test_owners_who_know_no_links_say_so(graph: Graph, parts: Partition) -> None:
    setup = small_setup(graph, parts, "links")
    bare = replace(setup, graph=None)
    with pytest.raises(ConfigError, match="know none"):
        owners_of(bare)


def test_no_row_outweighs_the_others_of_a_sum() -> None:
    x = np.array([[9.0, 0], [0, 3], [4, 0], [0, 0.1], [0, 0], [3, 1]], np.float32)
    assert may_be_summed(x, 2, 0).tolist() == [1, 2, 5]


@pytest.mark.parametrize("sparse", [True, False])
def test_of_words_only_their_presence_is_summed(sparse: bool) -> None:
    """Scaled rows can be told apart in a sum by their values; presence cannot."""
    draws = np.random.default_rng(0)
    x = (draws.random((60, 200)) < draws.uniform(0.05, 0.2, (60, 1))).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    member = members_of(np.arange(60) // 2)
    assert told_apart(member, x).mean() > 0.5
    given = csr_array(x) if sparse else x
    words = words_from(given, RAW)
    assert words == 0
    assert told_apart(member, csr_array(present(given, words))).mean() == 0
    usual = usual_values(given, words)
    np.testing.assert_allclose(usual, x.sum(axis=0) / (x > 0).sum(axis=0), rtol=1e-5)


def test_numbers_are_summed_as_they_are() -> None:
    x = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    assert words_from(x, RAW) == 6
    assert np.array_equal(summed_rows(x, 6, 0), x)
    assert np.array_equal(usual_values(x, 6), np.ones(6))
    mixed = np.concatenate([x[:, :2], (x[:, 2:] > 1.5) * x[:, 2:]], axis=1)
    assert words_from(mixed, replace(RAW, first=2)) == 2
    for given in (mixed, csr_array(mixed)):
        summed = csr_array(summed_rows(given, 2, 1)).toarray()
        assert np.array_equal(summed[:, :2], x[:, :2])
        assert set(np.unique(summed[:, 2:])) == {0.0, 1.0}


def drawn_words(count: np.ndarray, width: int = 300) -> csr_array:
    """Rows with so many words each."""
    draws = np.random.default_rng(0)
    rows = [np.isin(np.arange(width), draws.choice(width, n, replace=False)) for n in count]
    return csr_array(np.stack(rows).astype(np.float32))


def test_rows_are_summed_with_nearly_as_many_words_each() -> None:
    x = drawn_words(np.arange(100))
    usual = usual_count(x, 0)
    assert usual == 50
    fits, summed = may_be_summed(x, 0, usual), summed_rows(x, 0, usual)
    assert fits.tolist() == list(range(30, 100))
    count = words_in(summed, 0)[fits]
    assert count.min() == FEWEST * usual and count.max() == MOST * usual
    assert (csr_array(summed - x) > 0).nnz == 0  # no word is put in
    backwards = summed_rows(x[::-1], 0, usual)  # what is kept depends on the row alone
    assert (backwards != summed[::-1]).nnz == 0


def test_words_of_a_short_row_that_a_long_one_has_are_not_shown() -> None:
    """Before lengths were bounded, the words that such a sum has twice were the short row."""
    long = drawn_words(np.full(60, 40))
    short = long.tolil()
    for row in range(60):
        short[row, long[[row]].indices[12:]] = 0
    member, order = members_of(np.arange(120) // 2), np.arange(120).reshape(2, 60).T.ravel()
    rows = csr_array(vstack([long, csr_array(short)]))[order]
    assert told_apart(member, rows).all()
    offered = may_be_summed(rows, 0, 40)
    assert offered.tolist() == list(range(0, 120, 2))


def test_of_three_rows_two_equal_ones_give_the_third_away() -> None:
    x = drawn_words(np.full(40, 20))
    rows = csr_array(vstack([x, x[::-1], x[::-1]]))
    group = np.tile(np.arange(40), 3)
    assert told_apart(members_of(group), rows).all()
    assert (without_alike(group, rows, 0) == ALONE).all()
    unlike = csr_array(vstack([x, x[np.roll(np.arange(40), 1)], x[np.roll(np.arange(40), 2)]]))
    kept = without_alike(group, unlike, 0)
    assert (kept != ALONE).mean() > 0.9 and not told_apart(members_of(kept), unlike).any()


def with_twins(graph: Graph) -> Graph:
    """A graph in which all nodes of a class have the same row."""
    return replace(graph, x=graph.x[[np.flatnonzero(graph.y == y)[0] for y in graph.y]])


def test_rows_that_are_alike_are_not_shown(graph: Graph, parts: Partition) -> None:
    twins = with_twins(graph)
    owners = linked(twins, partition(twins, 4, how="random", seed=1))
    got = 0
    for owner in owners:
        for nodes in members(owner).values():
            alike = len({int(graph.y[u]) for u in nodes}) == 1
            shown_it = (work(owner).held.of([str(u) for u in nodes]) != ALONE).any()
            assert not (alike and shown_it)
            got += not alike
    assert got


def test_links_to_owners_who_are_away_are_left_out_and_listed(
    graph: Graph, parts: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    setup = small_setup(graph, parts, "links")
    owners = owners_of(setup)
    by_links(Exchange(InProcessEngine(owners[:3]), setup.plan))
    count = sum(work(owners[0]).links.at == 3)
    assert f"{count} links to owner 3, who does not take part" in caplog.text
    held, gone = work(owners[0]).held, [str(v) for v in parts.nodes[3]]
    assert len(held.ids) and (held.of(gone) == ALONE).all()


def test_a_neighbor_counts_what_its_link_weighs(graph: Graph) -> None:
    weights = np.random.default_rng(0).uniform(0.5, 2, graph.num_links)
    heavy = Graph.from_arrays(graph.x, graph.links, graph.y, weights=weights)
    parts = partition(heavy, 4, how="random", seed=1)
    for owner in linked(heavy, parts, others="nothing"):
        assert owner.mended is not None and owner.mended.weights is not None
        here, _, weighs = work(owner).neighbors()
        n = owner.graph.num_nodes
        start = owner.mended.indptr[n]
        assert weighs is not None
        assert np.allclose(owner.mended.weights[start:], weighs)  # a leaf has one link
        assert owner.mended.indices[start:].tolist() == here.tolist()
        links = work(owner).links
        truth = {
            (int(v), str(u)): heavy.weights[heavy.indptr[parts.nodes[owner.id][v]] :][
                heavy.neighbors(parts.nodes[owner.id][v]).tolist().index(int(u))
            ]
            for v, u in zip(links.here, links.there, strict=True)
        }
        assert links.weights is not None
        assert np.allclose(links.weights, list(truth.values()))


def test_links_that_lead_nowhere_are_told_of(
    graph: Graph, parts: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    setup = small_setup(graph, parts, "links")
    owners = owners_of(setup)
    links = work(owners[1]).links
    there, at = list(links.there), links.at.copy()
    at[0] = 1  # said to be its own node, but it has none of that name
    for k in range(1, len(there) - 2):
        there[k] = f"N{there[k]}"  # ids that the others write in another way
    owners[1].parts.clear()
    abroad = owners[1].abroad
    assert abroad is not None
    owners[1].abroad = replace(abroad, links=replace(links, there=there, at=at))
    by_links(Exchange(InProcessEngine(owners), setup.plan))
    assert "Owner 1 has 1 link to own nodes that it does not have: left out." in caplog.text
    count = f"only 2 of {len(there) - 1} links to other owners lead to a node"
    assert count in caplog.text and "ids in the same way" in caplog.text
    assert "Owner 0" not in caplog.text


def finer(asked: GroupsAsked) -> GroupsAsked:
    """Parts so fine that large values do not fit: what is cut off depends on single rows."""
    return replace(asked, exponent=asked.exponent - 3)


def coarser(asked: GroupsAsked) -> GroupsAsked:
    """Parts so coarse that small values vanish, each by itself."""
    return replace(asked, exponent=asked.exponent + 3)


def test_sums_are_not_shown_cut_off(
    graph: Graph, parts: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    assert not len(work(hostile(graph, parts, finer)).held.ids)
    assert "a unit too fine for the largest values" in caplog.text


@pytest.mark.slow
def test_sums_are_not_shown_again_in_other_units(graph: Graph, parts: Partition) -> None:
    """Many units would show of how many rows a value is above some bound: each row's values."""
    setup = small_setup(graph, parts, "links")
    owners = owners_of(setup)
    exchange = Exchange(InProcessEngine(owners), setup.plan)
    by_links(exchange)
    assert len(work(owners[0]).held.ids)
    asks_of(owners[0], coarser)
    by_links(exchange)
    assert not len(work(owners[0]).held.ids)
