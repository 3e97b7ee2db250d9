"""Nodes that two owners hold: found, compared, counted once, and each side sees the other's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsage.data.owned import load_owners
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import known_links, shared_nodes, with_shared
from fedsage.graph.partition import Partition, partition
from fedsage.mending.links.groups import ALONE
from fedsage.mending.links.steps import by_links, mend_by_links, work
from fedsage.mending.links.summed_rows import usual_values
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.private import records
from fedsage.runs.setup import Setup, data_owners, prepare
from fedsage.tables.write import tables_of, write_tables
from tests.small import small_config


def sharing(graph: Graph, share: float = 0.3) -> Partition:
    """Owners who hold some nodes in common, as if they had come with their own tables."""
    parts = partition(graph, 4, how="random", seed=1)
    more = shared_nodes(parts.nodes, share, seed=1)
    nodes = tuple(with_shared(parts.nodes, more))
    return replace(
        parts,
        nodes=nodes,
        subgraphs=tuple(map(graph.induced, nodes)),
        missing_links=None,
        known=tuple(known_links(graph, parts.nodes, 0.0, 1, more)),
    )


def exchanged(parts: Partition) -> tuple[Setup, list[DataOwner]]:
    setup = prepare(small_config("links"), parts, None)
    (owners,) = data_owners(setup)
    by_links(Exchange(InProcessEngine(owners), setup.plan))
    return setup, owners


def holders(parts: Partition) -> dict[int, list[int]]:
    """The owners of each node that has two."""
    found: dict[int, list[int]] = {}
    for i, ids in enumerate(parts.nodes):
        for v in ids.tolist():
            found.setdefault(v, []).append(i)
    return {v: who for v, who in found.items() if len(who) > 1}


def test_a_share_of_nodes_has_two_owners(graph: Graph) -> None:
    parts = partition(graph, 4, how="random", seed=1)
    more = shared_nodes(parts.nodes, 0.3, seed=1)
    assert 0.15 < sum(map(len, more)) / graph.num_nodes < 0.45
    for own, other in zip(parts.nodes, more, strict=True):
        assert not set(own) & set(other)
    assert [len(one) for one in shared_nodes(parts.nodes, 1.0, seed=1)] != [0] * 4


def test_each_side_has_links_to_the_neighbors_of_the_other_side(graph: Graph) -> None:
    parts = sharing(graph)
    _, owners = exchanged(parts)
    told = 0
    for v, (i, j) in holders(parts).items():
        for me, other in ((i, j), (j, i)):
            ends, place = work(owners[me]).ends, int(np.flatnonzero(parts.nodes[me] == v)[0])
            there = ends.there[ends.here == place]
            mine = there[ends.whose[there] == other]
            seen = work(owners[other]).order[ends.place[mine]]
            near = np.intersect1d(graph.neighbors(v), parts.nodes[other])
            near = np.setdiff1d(near, [*parts.nodes[me], *holders(parts)])
            offered = parts.nodes[other][work(owners[other]).order]
            assert sorted(parts.nodes[other][seen]) == sorted(np.intersect1d(near, offered))
            told += len(near)
    assert told > 10


def test_the_means_are_of_those_neighbors_in_groups_at_two_owners(graph: Graph) -> None:
    parts = sharing(graph)
    _, owners = exchanged(parts)
    summed = {
        (i, k): row
        for i, part in enumerate(parts.subgraphs)
        for k, row in enumerate(work(owners[i]).rows.toarray())
    }
    got = 0
    for owner in owners:
        mine, asked = work(owner), work(owner).group
        for group in np.unique(asked[asked != ALONE]):
            far = np.flatnonzero(asked == group)
            whose = mine.ends.whose[far]
            assert len(far) >= 2 and len(set(whose.tolist())) >= 2
            if (held := mine.held.at(mine.ends.ids[far]))[0] == ALONE:
                continue
            places = [
                work(owners[j]).order[p]
                for j, p in zip(whose, mine.ends.place[far], strict=True)
            ]
            rows = [summed[int(j), int(k)] for j, k in zip(whose, places, strict=True)]
            truth = np.mean(rows, axis=0) * usual_values(owner.graph.x, 0)
            np.testing.assert_allclose(mine.held.means[held[0]], truth, atol=1e-3)
            got += 1
    assert got > 3


def test_a_shared_node_is_counted_once_and_trained_on_twice(graph: Graph) -> None:
    parts = sharing(graph)
    setup, owners = exchanged(parts)
    for name in ("val", "test"):
        counted = [parts.nodes[o.id][getattr(o.split, name)] for o in owners]
        everyone = np.concatenate(counted)
        assert len(everyone) == len(set(everyone.tolist()))
        before = [
            ids[getattr(s, name)] for ids, s in zip(parts.nodes, setup.splits, strict=True)
        ]
        assert set(everyone) == set(np.concatenate(before))
    assert all(
        len(o.split.train) == len(s.train) for o, s in zip(owners, setup.splits, strict=True)
    )


def test_sides_that_differ_are_dropped_with_a_warning(
    graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    parts = sharing(graph)
    trained = prepare(small_config("links"), parts, None).splits
    v, (i, j) = next(
        (v, who)
        for v, who in holders(parts).items()
        if v in parts.nodes[who[0]][trained[who[0]].train]
    )
    y = parts.subgraphs[j].y.copy()
    y[parts.nodes[j] == v] = (graph.y[v] + 1) % graph.num_classes
    other = Graph.from_arrays(
        parts.subgraphs[j].x, parts.subgraphs[j].links, y, graph.class_names
    )
    changed = tuple(other if k == j else one for k, one in enumerate(parts.subgraphs))
    _, owners = exchanged(replace(parts, subgraphs=changed))
    assert caplog.text.count("1 node with another class") == 2
    for me in (i, j):
        place = int(np.flatnonzero(parts.nodes[me] == v)[0])
        split = owners[me].split
        assert place not in np.concatenate([split.train, split.val, split.test])


def test_a_restarted_owner_has_its_sides_again(graph: Graph) -> None:
    parts = sharing(graph)
    setup, owners = exchanged(parts)
    state = work(owners[2]).state()
    assert state is not None
    (fresh,) = data_owners(setup)
    work(fresh[2]).restore(state)
    mend_by_links(fresh[2], Ask(0))
    assert fresh[2].mended is not None and owners[2].mended is not None
    assert fresh[2].mended.same_nodes(owners[2].mended)
    assert np.array_equal(fresh[2].split.test, owners[2].split.test)


def test_without_the_word_same_ids_are_different_nodes(graph: Graph) -> None:
    parts = sharing(graph)
    apart = tuple(replace(one, shared=False) for one in parts.known)
    _, owners = exchanged(replace(parts, known=apart))
    assert not any(len(work(owner).ends.here) for owner in owners)


def test_a_node_of_two_owners_moves_a_private_sum_twice_as_far_so_it_is_refused(
    graph: Graph, tmp_path: Path
) -> None:
    config = small_config("none", privacy={"level": "private"}, model={"widths": [2048]})
    parts = sharing(graph)
    (owners,) = data_owners(prepare(config, parts, None))
    node, who = next(iter(holders(parts).items()))
    rows = [
        records(owners[i].plan, owners[i].graph, np.flatnonzero(parts.nodes[i] == node), 2**10)
        for i in who
    ]
    assert np.linalg.norm(np.sum(rows, axis=0)) > 1.9 * np.linalg.norm(rows[0])
    for i, (part, ids) in enumerate(zip(parts.subgraphs, parts.nodes, strict=True)):
        tables = tables_of(part, [str(v) for v in ids.tolist()])
        said = replace(tables.schema, shared="same")
        write_tables(replace(tables, schema=said), tmp_path / f"owner-{i}")
    with pytest.raises(ConfigError, match="hides what is summed once"):
        prepare(config, load_owners(tmp_path), None)
