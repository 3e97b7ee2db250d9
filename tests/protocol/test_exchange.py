"""The exchange has a verb for each thing a reply can be for, and a seam for masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.federation.site import Site
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending.classes import ClassLinks, count_class_links
from fedsage.mending.generator import GenDone
from fedsage.models.parameters import sha256_of
from fedsage.protocol.door import Door, Link
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Hits, added, divided
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import PROCEDURES, Procedure, Summed
from tests.small import exchange_on, owners_of, small_setup, trained

MASKED = ("count_class_links",)  # whole numbers, which float32 adds up exactly
SIZE = 1000


def mask_of(owner: int) -> torch.Tensor:
    """What owner i adds; a stand-in for what pairs of owners will agree on."""
    stream = torch.Generator().manual_seed(owner)
    return torch.randint(-SIZE, SIZE, (3, 3), generator=stream).float()


def masking(owner: int) -> Sequence[Link]:
    """A link of the door that hides each owner's reply."""

    def mask(procedure: Procedure[Any, Any, Any], message: Any) -> Any:
        if procedure.name not in MASKED:
            return message
        return ClassLinks(message.count + mask_of(owner))

    return [mask]


def unmask(procedure: Procedure[Any, Any, Any], total: Any, owners: Sequence[int]) -> Any:
    """Takes all masks off the sum."""
    if procedure.name not in MASKED:
        return total
    return ClassLinks(total.count - torch.stack([mask_of(i) for i in owners]).sum(dim=0))


def test_a_run_with_masked_sums_ends_in_the_same_model(graph: Graph, owners: Partition) -> None:
    setup = small_setup(graph, owners, "classes")
    plain = trained(setup, exchange_on(setup), 3)
    seen: list[ClassLinks] = []
    engine = InProcessEngine(
        owners_of(setup),
        links=masking,
        on_message=lambda i, m: seen.append(m) if isinstance(m, ClassLinks) else None,
    )
    masked = trained(setup, Exchange(engine, setup.plan, unmask=unmask), 3)
    assert sha256_of(masked.classifier.phi) == sha256_of(plain.classifier.phi)
    own = [count_class_links(owner, Ask(0)).count for owner in owners_of(setup)]
    replies = [m.count for m in seen if not any(torch.equal(m.count, sum(own)) for _ in (0,))]
    assert len(replies) == 3  # and three times the sum came back
    for reply in replies:
        assert not any(torch.equal(reply, one) for one in own)


def test_without_taking_them_off_the_masks_would_spoil_it(
    graph: Graph, owners: Partition
) -> None:
    setup = small_setup(graph, owners, "classes")
    exchange = Exchange(InProcessEngine(owners_of(setup), links=masking), setup.plan)
    spoiled = exchange.sum(count_class_links, Ask(0)).count
    assert not torch.equal(spoiled, exchange_on(setup).sum(count_class_links, Ask(0)).count)


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
    with pytest.raises(ProtocolError, match="is open"):
        exchange.sum(DataOwner.test_classifier, Ask(0))


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
        return ClassLinks(torch.zeros(9, 9))

    door = Door({}, setup.plan, [larger])
    with pytest.raises(PrivacyError, match="count is of shape 9 × 9, not 3 × 3"):
        door.let_out(count_class_links, ClassLinks(torch.zeros(3, 3)))


def test_every_summed_reply_is_made_of_numbers_alone() -> None:
    """What is added up must be addable: no words, no yes or no."""
    assert Site.column_sums.uses is Summed
    summed = [one for one in PROCEDURES.values() if one.uses is Summed]
    assert len(summed) >= 8
    for procedure in summed:
        for name, kind in procedure.reply.__annotations__.items():
            assert "str" not in str(kind) and "bool" not in str(kind), (procedure.name, name)
