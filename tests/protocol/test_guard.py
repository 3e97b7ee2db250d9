"""Which replies the server uses, and who is left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ConfigError, FedSageError, ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending.neighgen import GenGradients, GenOffer, mend_graph
from fedsage.mending.offers import Answers, Offer
from fedsage.mending.shared import NeighGenUpdate
from fedsage.mending.subspace import (
    NO_UNITS,
    Directions,
    Sketch,
    SketchSizes,
    SketchUnits,
    WholeSketch,
    sketch_in_whole,
    sketch_sizes,
)
from fedsage.mending.whole_shared import NeighGenChange
from fedsage.models.parameters import sha256_of
from fedsage.protocol.changes.owner import local_change_c
from fedsage.protocol.changes.server import ByChanges
from fedsage.protocol.changes.state import Change
from fedsage.protocol.messages import Ask, ClassifierUpdate, Hits, Mended
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Miss
from fedsage.protocol.server import average
from fedsage.runs.setup import Setup
from tests.small import HOWS, exchange_on, owners_of, small_setup, traffic_of, trained

GEN = {"widths": [8, 6], "hidden": [10], "batch_size": 12, "rounds_gen": 2}
Alter = Callable[[Any], Any]
SetUp = Callable[..., Setup]


class Faulty(InProcessEngine):
    """Owner 2's replies of one type are altered, or lost, while ``on`` says so."""

    def __init__(self, owners: Any, kind: type, alter: Alter | None, least: int = 2) -> None:
        super().__init__(owners)
        self.kind, self.alter, self.min_owners, self.on = kind, alter, least, True
        self.asked: list[tuple[int, str]] = []

    def carry(
        self, procedure: Any, requests: Mapping[int, Any], lot: int | None = None
    ) -> dict[int, Any]:
        self.asked += [(i, procedure.name) for i in requests]
        lost = self.on and procedure.reply is self.kind and 2 in requests
        if lost and self.alter is None:
            rest = {i: request for i, request in requests.items() if i != 2}
            return {**super().carry(procedure, rest, lot), 2: Miss(2, procedure.name, "gone")}
        replies = super().carry(procedure, requests, lot)
        if lost and self.alter is not None:
            replies[2] = self.alter(replies[2])
        return replies


def agreed(graph: Graph, owners: Partition, way: str = "none", how: str = "full") -> Setup:
    """A run in which the owners' weights were agreed on: their training nodes."""
    setup = small_setup(graph, owners, way, neighgen=GEN, traffic=traffic_of(how))
    plan = dataclasses.replace(setup.plan, weights=dict.fromkeys(range(3), 12.0))
    return dataclasses.replace(setup, plan=plan)


@pytest.fixture
def set_up(graph: Graph, owners: Partition) -> SetUp:
    return partial(agreed, graph, owners)


def phi_with(change: Callable[[torch.Tensor], torch.Tensor]) -> Alter:
    def alter(update: ClassifierUpdate) -> ClassifierUpdate:
        name, weight = next(iter(update.phi.items()))
        return dataclasses.replace(update, phi=update.phi | {name: change(weight)})

    return alter


def part_with(change: Callable[[torch.Tensor], torch.Tensor]) -> Alter:
    """A change of which one part is altered: of a large layer, Δ·Q."""

    def alter(sent: Change) -> Change:
        name, numbers = next((name, n) for name, n in sent.parts.items() if n.ndim == 2)
        return dataclasses.replace(sent, parts=sent.parts | {name: change(numbers)})

    return alter


def beyond(numbers: torch.Tensor, by: int) -> torch.Tensor:
    """Numbers that leave no room in the ring for two more owners like this one."""
    share = torch.iinfo(numbers.dtype).max // 3
    return torch.full_like(numbers, share + by if by > 0 else -share + by)


def without(sent: Change, part: str) -> Change:
    return dataclasses.replace(
        sent, parts={name: numbers for name, numbers in sent.parts.items() if name != part}
    )


WRONG: dict[str, tuple[str, type, Alter, str]] = {
    "not a number": ("none", ClassifierUpdate, phi_with(lambda w: w * torch.nan), "not finite"),
    "infinite": ("none", ClassifierUpdate, phi_with(lambda w: w + torch.inf), "not finite"),
    "other shape": ("none", ClassifierUpdate, phi_with(lambda w: w[1:]), "has shape"),
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
    "weight of another owner": (
        "none", ClassifierUpdate, lambda u: dataclasses.replace(u, weight=24.0),
        "weight 24, but 12 was agreed"),
    "loss not a number": (
        "none", ClassifierUpdate, lambda u: dataclasses.replace(u, loss=float("nan")), "nan"),
    "more hits than nodes": ("none", Hits, lambda h: Hits(9, 9, 9, 4), "9 right predictions"),
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
    "a part too many": (
        "none", Change,
        lambda c: dataclasses.replace(c, parts=c.parts | {"x": torch.ones(2).to(torch.int8)}),
        "nothing of that"),
    "a part missing": ("none", Change, lambda c: without(c, "rest"), "rest is missing"),
    "no parts": ("none", Change, lambda c: dataclasses.replace(c, parts={}), "is missing"),
    "a part of other shape": ("none", Change, part_with(lambda n: n[1:]), "has shape"),
    "a part laid flat": ("none", Change, part_with(lambda n: n.flatten()), "has shape"),
    "fractions": ("none", Change, part_with(lambda n: n.float()), "torch.int8 was"),
    "numbers of 64 bits": ("none", Change, part_with(lambda n: n.long()), "torch.int8 was"),
    "more than its share": ("none", Change, part_with(lambda n: beyond(n, 1)), "beyond"),
    "less than its share": ("none", Change, part_with(lambda n: beyond(n, -1)), "beyond"),
    "the smallest number": (
        "none", Change,
        part_with(lambda n: torch.full_like(n, torch.iinfo(n.dtype).min)), "beyond"),
    "a change of two": (
        "none", Change, lambda c: dataclasses.replace(c, count=2), "more or less than one"),
    "a change of nobody": (
        "none", Change, lambda c: dataclasses.replace(c, weight=0, count=0), "not finite"),
    "a change without weight": (
        "none", Change, lambda c: dataclasses.replace(c, weight=0), "more or less than one"),
    "a change of negative weight": (
        "none", Change, lambda c: dataclasses.replace(c, weight=-c.weight), "more or less"),
    "a change of another weight": (
        "none", Change,
        lambda c: dataclasses.replace(c, weight=2 * c.weight, steps=2 * c.steps),
        "weight 24, but 12 was agreed"),
    "no second moments": ("none", Change, lambda c: without(c, "roots"), "another form"),
    "sizes of another sketch": (
        "subspace", SketchSizes, lambda s: SketchSizes(s.exponents[:1]), "sizes of 1 columns"),
    "sizes in fractions": (
        "subspace", SketchSizes, lambda s: SketchSizes(s.exponents.float()), "torch.int8 was"),
    "whole sketch of other shape": (
        "subspace", WholeSketch, lambda s: WholeSketch(s.product[:, :1]), "a sketch of rank 1"),
    "whole sketch of fewer words": (
        "subspace", WholeSketch, lambda s: WholeSketch(s.product[1:]), "has shape"),
    "sketch in fractions": (
        "subspace", WholeSketch, lambda s: WholeSketch(s.product.float()), "torch.int8 was"),
    "stale whole offer": (
        "neighgen", Offer, lambda o: dataclasses.replace(o, t=o.t - 1), "an offer of round"),
    "answers for nobody": ("neighgen", Answers, lambda a: Answers({}), "gradients"),
    "answers of other shape": (
        "neighgen", Answers,
        lambda a: Answers({i: {"x": torch.ones(1).to(torch.int16)} for i in a.of}), "missing"),
    "answers beyond a share": (
        "neighgen", Answers,
        lambda a: Answers({
            i: {p: torch.full_like(n, torch.iinfo(n.dtype).min) for p, n in one.items()}
            for i, one in a.of.items()}),
        "beyond"),
    "NeighGen's change of no parts": (
        "shared", NeighGenChange,
        lambda u: dataclasses.replace(u, change=dataclasses.replace(u.change, parts={})),
        "missing"),
    "NeighGen's change of two": (
        "shared", NeighGenChange,
        lambda u: dataclasses.replace(u, change=dataclasses.replace(u.change, count=2)),
        "more or less than one owner"),
}  # fmt: skip
ONLY = {
    **dict.fromkeys((ClassifierUpdate, Sketch, GenOffer, GenGradients, NeighGenUpdate), "full"),
    **dict.fromkeys(
        (Change, SketchSizes, WholeSketch, Offer, Answers, NeighGenChange), "low-rank"
    ),
}


def hows_of(kind: type) -> tuple[str, ...]:
    """The forms of messages in which a reply of that type is sent."""
    return (ONLY[kind],) if kind in ONLY else HOWS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "how"), [(case, how) for case in WRONG for how in hows_of(WRONG[case][1])]
)
def test_a_wrong_reply_is_refused_counted_and_never_used(
    case: str, how: str, set_up: SetUp
) -> None:
    way, kind, alter, why = WRONG[case]
    setup = set_up(way, how)
    exchange = exchange_on(setup, Faulty(owners_of(setup), kind, alter))
    outcome = trained(setup, exchange, 3)
    missed = exchange.misses
    assert missed and all(miss.owner == 2 and why in miss.why for miss in missed)
    assert all(bool(torch.isfinite(w).all()) for w in outcome.classifier.phi.values())
    gone = exchange_on(setup, Faulty(owners_of(setup), kind, None))
    same = trained(setup, gone, 3)  # as if it had not answered
    assert sha256_of(outcome.classifier.phi) == sha256_of(same.classifier.phi)
    strict = exchange_on(setup, Faulty(owners_of(setup), kind, alter, least=3))
    with pytest.raises(ProtocolError, match="2 of 3 owners gave a usable answer"):
        trained(setup, strict, 3)


HOSTILE: dict[str, Alter] = {
    "wider numbers than the others'": part_with(
        lambda n: torch.full_like(n, 2**31 // 3 - 1, dtype=torch.int32)),
    "a loss beyond all numbers": lambda c: dataclasses.replace(c, loss=10**400),
    "a weight beyond all numbers": lambda c: dataclasses.replace(c, weight=10**400),
    "steps beyond all numbers": lambda c: dataclasses.replace(c, steps=10**400),
    "steps backwards": lambda c: dataclasses.replace(c, steps=-10 * c.steps),
    "no steps": lambda c: dataclasses.replace(c, steps=0),
    "roots below zero": lambda c: dataclasses.replace(
        c, parts={p: -n.abs() // 2 - 1 if p == "roots" else n for p, n in c.parts.items()}),
    "squares below zero": lambda c: dataclasses.replace(
        c, parts={p: -n.abs() // 2 - 1 if p == "squares" else n for p, n in c.parts.items()}),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_change_that_no_training_leads_to_is_refused(case: str, set_up: SetUp) -> None:
    setup = set_up("none", "low-rank")
    exchange = exchange_on(setup, Faulty(owners_of(setup), Change, HOSTILE[case]))
    trained(setup, exchange, 3)
    assert exchange.misses and all(miss.owner == 2 for miss in exchange.misses)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (kind, how)
        for kind in (GenOffer, GenGradients, Offer, Answers, ClassifierUpdate, Change, Hits)
        for how in hows_of(kind)
    ],
)
def test_a_run_goes_on_without_an_owner_that_is_gone(
    kind: type, how: str, set_up: SetUp
) -> None:
    setup = set_up("neighgen", how)
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


def test_who_missed_the_news_does_not_train_on_an_old_classifier(set_up: SetUp) -> None:
    setup = set_up(how="low-rank")
    engine = Faulty(owners_of(setup), Hits, None)
    server = ByChanges(exchange_on(setup, engine), average)
    server.begin(setup.plan.phi)
    for t, on, expected in ((0, True, [0, 1]), (1, False, [0, 1]), (2, False, [0, 1, 2])):
        engine.on = on
        server.round(t, keep=False)
        assert server.exchange.answered[local_change_c.name] == expected


def test_who_did_not_tell_its_sizes_adds_no_sketch(set_up: SetUp) -> None:
    """Not even that of the step before, which it still has."""
    setup = set_up("subspace", "low-rank")
    engine = Faulty(owners_of(setup), SketchSizes, None)
    exchange = exchange_on(setup, engine)
    found = Directions(2, torch.empty(0, 2, dtype=torch.int8), NO_UNITS)
    units = SketchUnits(3, torch.zeros(2, dtype=torch.int16))
    for on, expected in ((False, [0, 1, 2]), (True, [0, 1]), (False, [0, 1, 2])):
        engine.on = on
        exchange.sum(sketch_sizes, found)
        exchange.sum(sketch_in_whole, units)
        assert exchange.answered["sketch_in_whole"] == expected


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


@pytest.mark.parametrize("case", ["not a number", "a change of nobody"])
def test_all_owners_without_a_number_is_divergence(case: str, set_up: SetUp) -> None:
    _, kind, alter, _ = WRONG[case]

    class Diverged(InProcessEngine):
        def carry(
            self, procedure: Any, requests: Mapping[int, Any], lot: int | None = None
        ) -> dict[int, Any]:
            replies = super().carry(procedure, requests, lot)
            if procedure.reply is not kind:
                return replies
            return {i: alter(reply) for i, reply in replies.items()}

    setup = set_up(how=ONLY[kind])
    wanted = ConfigError if kind is ClassifierUpdate else FedSageError
    with pytest.raises(wanted, match=r"[Tt]raining diverged"):
        trained(setup, exchange_on(setup, Diverged(owners_of(setup))), 1)
