"""The exchange has a verb for each thing a reply can be for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedsage.errors import PrivacyError, ProtocolError
from fedsage.federation.before_training.columns import column_sums
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending.classes import ClassLinks, count_class_links, mend_by_classes
from fedsage.mending.generator import GenDone
from fedsage.protocol.door import Door
from fedsage.protocol.messages import Ask, Hits, added, divided
from fedsage.protocol.procedures import PROCEDURES, Procedure, Summed
from tests.small import exchange_on, owners_of, small_setup


def test_a_sum_is_the_sum_and_a_mean_its_share(graph: Graph, owners: Partition) -> None:
    setup = small_setup(graph, owners, "classes")
    own = [count_class_links(owner, Ask(0)).count for owner in owners_of(setup)]
    exchange = exchange_on(setup)
    assert torch.equal(exchange.sum(count_class_links, Ask(0)).count, sum(own))
    mean = exchange.mean(count_class_links, Ask(0)).count
    assert torch.equal(mean, exchange.sum(count_class_links, Ask(0)).count / 3)


def test_what_is_summed_cannot_be_asked_for_one_by_one(graph: Graph, owners: Partition) -> None:
    exchange = exchange_on(small_setup(graph, owners, "classes"))
    for verb in (exchange.all, exchange.pass_on):
        with pytest.raises(
            ProtocolError, match="count_class_links is summed: the server needs"
        ):
            verb(count_class_links, Ask(0))
    own = torch.zeros(3, 3, dtype=torch.int32)
    with pytest.raises(ProtocolError, match="is open"):
        exchange.sum(mend_by_classes, ClassLinks(own))


def test_messages_are_added_and_divided_number_by_number() -> None:
    one, two = Hits(1, 2, 3, 4), Hits(10, 20, 30, 40)
    assert added(one, two) == Hits(11, 22, 33, 44)
    losses = GenDone(1.0, 2.0, 3.0, 4.0)
    assert divided(added(losses, losses), 4) == GenDone(0.5, 1.0, 1.5, 2.0)


def test_the_door_checks_what_its_links_made_of_a_reply(
    graph: Graph, owners: Partition
) -> None:
    setup = small_setup(graph, owners, "classes")

    def larger(procedure: Procedure[Any, Any, Any], message: Any) -> Any:
        return ClassLinks(torch.zeros(9, 9, dtype=torch.int32))

    door = Door({}, setup.plan, [larger])
    with pytest.raises(PrivacyError, match="count has shape 9 × 9, not 3 × 3"):
        door.let_out(count_class_links, ClassLinks(torch.zeros(3, 3)))


def test_every_summed_reply_is_made_of_numbers_alone() -> None:
    """What is added up must be addable: no words, no yes or no."""
    assert column_sums.uses is Summed
    summed = [one for one in PROCEDURES.values() if one.uses is Summed]
    assert len(summed) >= 8
    for procedure in summed:
        for name, kind in procedure.reply.__annotations__.items():
            values = str(kind).replace("dict[str, ", "")  # names are not added up
            assert "str" not in values and "bool" not in values, (procedure.name, name)
