"""A hostile server that puts questions so that a hidden sum would be one owner's reply."""

from __future__ import annotations

from typing import Any

import pytest

from fedsage.audit.attacks.singling_out import TRICKS, Trick, succeeds, words_of
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from tests.small import small_setup, traffic_of


@pytest.mark.parametrize("trick", TRICKS, ids=words_of)
def test_no_trick_shows_what_one_owner_added(
    trick: Trick, graph: Graph, owners: Partition
) -> None:
    more: dict[str, Any] = {"privacy": {"level": "sums"}, "traffic": traffic_of("low-rank")}
    assert not succeeds(trick, small_setup(graph, owners, "none", **more))
