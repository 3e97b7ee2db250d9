"""Which replies the server uses, and who is left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ConfigError, ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending.neighgen import GenGradients, GenOffer, mend_graph
from fedsage.mending.shared import NeighGenUpdate
from fedsage.mending.subspace import Sketch
from fedsage.protocol.engine import Miss
from fedsage.protocol.messages import Ask, ClassifierUpdate, Hits, Mended
from fedsage.protocol.owner import DataOwner
from fedsage.runs.setup import Setup
from tests.small import exchange_on, owners_of, small_setup, trained

GEN = {"widths": [8, 6], "hidden": [10], "batch_size": 12, "rounds_gen": 2}
Alter = Callable[[Any], Any]
SetUp = Callable[..., Setup]


class Faulty(InProcessEngine):
    """Owner 2's replies of one type are altered, or lost, while ``on`` says so."""

    def __init__(self, owners: Any, kind: type, alter: Alter | None, least: int = 2) -> None:
        super().__init__(owners)
        self.kind, self.alter, self.min_owners, self.on = kind, alter, least, True
        self.asked: list[tuple[int, str]] = []

    def carry(self, procedure: Any, requests: Mapping[int, Any]) -> dict[int, Any]:
        self.asked += [(i, procedure.name) for i in requests]
        lost = self.on and procedure.reply is self.kind and 2 in requests
        if lost and self.alter is None:
            rest = {i: request for i, request in requests.items() if i != 2}
            return {**super().carry(procedure, rest), 2: Miss(2, procedure.name, "gone")}
        replies = super().carry(procedure, requests)
        if lost and self.alter is not None:
            replies[2] = self.alter(replies[2])
        return replies


@pytest.fixture
def set_up(graph: Graph, owners: Partition) -> SetUp:
    return lambda way="none": small_setup(graph, owners, way, neighgen=GEN)


def phi_with(change: Callable[[torch.Tensor], torch.Tensor]) -> Alter:
    def alter(update: ClassifierUpdate) -> ClassifierUpdate:
        name, weight = next(iter(update.phi.items()))
        return dataclasses.replace(update, phi=update.phi | {name: change(weight)})

    return alter


WRONG: dict[str, tuple[str, type, Alter, str]] = {
    "not a number": ("none", ClassifierUpdate, phi_with(lambda w: w * torch.nan), "not finite"),
    "infinite": ("none", ClassifierUpdate, phi_with(lambda w: w + torch.inf), "not finite"),
    "other shape": ("none", ClassifierUpdate, phi_with(lambda w: w[1:]), "is of shape"),
    "whole numbers": ("none", ClassifierUpdate, phi_with(lambda w: w.long()), "float32 was"),
    "too large": ("none", ClassifierUpdate, phi_with(lambda w: w + 1e4), "is usual"),
    "missing weight": (
        "none", ClassifierUpdate, lambda u: dataclasses.replace(u, phi={}), "missing"),
    "extra weight": (
        "none", ClassifierUpdate,
        lambda u: dataclasses.replace(u, phi=u.phi | {"x": torch.ones(2)}), "nothing of that"),
    "strange moment": (
        "none", ClassifierUpdate,
        lambda u: dataclasses.replace(u, moments={"x.step": torch.ones(2)}), "moment x.step"),
    "moment of one number": (
        "none", ClassifierUpdate,
        lambda u: dataclasses.replace(
            u, moments={f"{name}.exp_avg": torch.ones(()) for name in u.phi}),
        "of shape ()"),
    "negative weight": (
        "none", ClassifierUpdate, lambda u: dataclasses.replace(u, weight=-1.0), "weight -1"),
    "loss not a number": (
        "none", ClassifierUpdate, lambda u: dataclasses.replace(u, loss=float("nan")), "nan"),
    "more hits than nodes": ("none", Hits, lambda h: Hits(9, 9, 9, 4), "9 right answers"),
    "stale offer": (
        "neighgen", GenOffer, lambda o: dataclasses.replace(o, t=o.t - 1), "an offer of round"),
    "gradient for nobody": ("neighgen", GenGradients, lambda g: GenGradients({}), "gradients"),
    "gradient of other shape": (
        "neighgen", GenGradients,
        lambda g: GenGradients({j: {"fgen.x": torch.ones(1)} for j in g.of}), "fgen."),
    "sketch of other shape": (
        "subspace", Sketch, lambda s: Sketch(s.product[:, :1]), "was agreed"),
    "NeighGen of other shape": (
        "shared", NeighGenUpdate, lambda u: dataclasses.replace(u, theta={}), "missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_reply_is_refused_counted_and_never_used(case: str, set_up: SetUp) -> None:
    way, kind, alter, why = WRONG[case]
    setup = set_up(way)
    exchange = exchange_on(setup, Faulty(owners_of(setup), kind, alter))
    outcome = trained(setup, exchange, 3)
    missed = exchange.misses
    assert missed and all(miss.owner == 2 and why in miss.why for miss in missed)
    assert all(bool(torch.isfinite(w).all()) for w in outcome.classifier.phi.values())
    strict = exchange_on(setup, Faulty(owners_of(setup), kind, alter, least=3))
    with pytest.raises(ProtocolError, match="2 of 3 owners gave an answer"):
        trained(setup, strict, 3)


@pytest.mark.parametrize("kind", [GenOffer, GenGradients, ClassifierUpdate, Hits])
def test_a_run_goes_on_without_an_owner_that_is_gone(kind: type, set_up: SetUp) -> None:
    setup = set_up("neighgen")
    exchange = exchange_on(setup, Faulty(owners_of(setup), kind, None))
    trained(setup, exchange, 2)
    assert {miss.owner for miss in exchange.misses} == {2}


def test_who_missed_the_broadcast_does_not_train_on_an_old_classifier(set_up: SetUp) -> None:
    setup = set_up()
    engine = Faulty(owners_of(setup), Hits, None)
    exchange = exchange_on(setup, engine)
    for t, on, expected in ((0, True, [0, 1]), (1, False, [0, 1, 2])):
        engine.on = on
        exchange.sum(DataOwner.receive_classifier, setup.plan.phi)
        exchange.sum(DataOwner.local_update_c, Ask(t))
        assert exchange.answered["local_update_c"] == expected


def test_who_missed_mending_mends_before_anything_else(set_up: SetUp) -> None:
    setup = set_up("neighgen")
    owners = owners_of(setup)
    engine = Faulty(owners, Mended, None)
    exchange = exchange_on(setup, engine)
    exchange.all(mend_graph, Ask(0))
    assert owners[2].mended is None
    exchange.sum(DataOwner.receive_classifier, setup.plan.phi)
    assert exchange.answered["receive_classifier"] == [0, 1]  # still away
    engine.on = False
    exchange.sum(DataOwner.receive_classifier, setup.plan.phi)
    assert exchange.answered["receive_classifier"] == [0, 1, 2]
    assert owners[2].mended is not None
    assert [name for i, name in engine.asked if i == 2][-2:] == [
        "mend_graph", "receive_classifier",
    ]  # fmt: skip


def test_all_owners_without_a_number_is_divergence(set_up: SetUp) -> None:
    class Diverged(InProcessEngine):
        def carry(self, procedure: Any, requests: Mapping[int, Any]) -> dict[int, Any]:
            replies = super().carry(procedure, requests)
            if procedure.reply is not ClassifierUpdate:
                return replies
            return {i: WRONG["not a number"][2](reply) for i, reply in replies.items()}

    setup = set_up()
    with pytest.raises(ConfigError, match="Training diverged"):
        trained(setup, exchange_on(setup, Diverged(owners_of(setup))), 1)
