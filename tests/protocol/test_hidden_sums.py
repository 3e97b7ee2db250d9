"""Hidden sums: the same model to the bit, whoever vanishes, and nothing of one owner to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chisquare

from fedsage.data.synthetic import synthetic
from fedsage.engines.inprocess import InProcessEngine
from fedsage.engines.simulated import hide_sums
from fedsage.errors import ConfigError, PrivacyError, ProtocolError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, partition
from fedsage.mending.classes import ClassLinks, count_class_links
from fedsage.models.parameters import sha256_of
from fedsage.privacy.keys import SIZE, circle, in_bytes, joined, sealed, split, threshold_of
from fedsage.privacy.proof import PRIME, proof_of
from fedsage.privacy.sums import masked
from fedsage.protocol.exchange import Exchange, add_up
from fedsage.protocol.hidden_sums.integers import (
    in_numbers,
    in_raw,
    leaves_of,
    whole_numbers,
    with_points,
)
from fedsage.protocol.hidden_sums.messages import Batch, Boxes, Members, Voucher, answered
from fedsage.protocol.hidden_sums.owner import (
    give_shares,
    hold_shares,
    make_keys,
    share_secrets,
)
from fedsage.protocol.messages import Ask, Hits
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Miss
from fedsage.protocol.procedures import Summed
from fedsage.rng import generator
from fedsage.runs.setup import Setup
from tests.small import owners_of, small_setup, traffic_of, trained

SUMS = {"privacy": {"level": "sums"}}
GEN = {"widths": [8, 6], "hidden": [10], "batch_size": 12, "rounds_gen": 2, "min_batch": 4}


class Vanishing(InProcessEngine):
    """Some owners do not answer some procedures, from some round on."""

    gone: Mapping[str, set[int]] = {}

    def carry(self, procedure: Any, requests: Any, lot: int | None = None) -> Any:
        away = self.gone.get(procedure.name, set())
        here = {i: request for i, request in requests.items() if i not in away}
        missed = {i: Miss(i, procedure.name, "gone") for i in requests if i in away}
        return {**super().carry(procedure, here, lot), **missed}


def hidden(setup: Setup, gone: Mapping[str, set[int]] | None = None) -> Exchange:
    """An exchange with masks; some may vanish."""
    engine = Vanishing(owners_of(setup))
    engine.gone, engine.min_owners = gone or {}, 1
    exchange = Exchange(engine, setup.plan)
    hide_sums(exchange, engine)
    return exchange


def opened(setup: Setup, gone: Mapping[str, set[int]] | None = None) -> Exchange:
    """The same without masks."""
    engine = Vanishing(owners_of(setup))
    engine.gone, engine.min_owners = gone or {}, 1
    return Exchange(engine, setup.plan)


def set_up(graph: Graph, owners: Partition, how: str, level: str, form: str) -> Setup:
    more = {"privacy": {"level": level}, "traffic": traffic_of(form), "neighgen": GEN}
    return small_setup(graph, owners, how, **more)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["whole", "low-rank"])
@pytest.mark.parametrize("how", ["none", "copy", "classes", "subspace", "shared", "neighgen"])
def test_masks_change_no_bit(how: str, form: str, graph: Graph, owners: Partition) -> None:
    masked_run = set_up(graph, owners, how, "sums", form)
    plain = set_up(graph, owners, how, "open", form)
    one = trained(masked_run, hidden(masked_run), 3)
    other = trained(plain, opened(plain), 3)
    assert sha256_of(one.classifier.phi) == sha256_of(other.classifier.phi)
    assert one.tested == other.tested
    assert one.hits == {} and len(other.hits) == 3


@pytest.mark.parametrize(
    "step", ["local_change_c", "receive_change", "make_keys", "hold_shares", "give_shares"]
)
def test_a_third_may_vanish_at_any_step(step: str, graph: Graph, owners: Partition) -> None:
    """The sum is that of those who answered; the model that of an open run without them."""
    setup = set_up(graph, owners, "none", "sums", "low-rank")
    found = trained(setup, hidden(setup, {step: {1}}), 3)
    absent: dict[str, set[int]] = {}
    if step in ("local_change_c", "receive_change"):
        absent = {step: {1}}
    elif step in ("make_keys", "hold_shares"):  # who has no keys adds nothing
        absent = {name: {1} for name in ("local_change_c", "receive_change")}
    plain = set_up(graph, owners, "none", "open", "low-rank")
    without = trained(plain, opened(plain, absent), 3)
    assert sha256_of(found.classifier.phi) == sha256_of(without.classifier.phi)


class Losing(Vanishing):
    """Replies to give_shares get lost in some sums, after the owner has sent them."""

    lost: Mapping[int, set[int]] = {}

    def carry(self, procedure: Any, requests: Any, lot: int | None = None) -> Any:
        replies = super().carry(procedure, requests, lot)
        if procedure is give_shares:
            (number,) = {request.lot for request in requests.values()}
            for i in self.lost.get(number, set()):
                replies[i] = Miss(i, procedure.name, "lost")
        return replies


@pytest.mark.parametrize("lost", [{2: {1}}, {2: {1}, 3: {1}, 4: {0}}])
def test_a_lost_share_does_not_end_the_run(
    lost: dict[int, set[int]], graph: Graph, owners: Partition
) -> None:
    setup = set_up(graph, owners, "none", "sums", "low-rank")
    engine = Losing(owners_of(setup))
    engine.lost, engine.min_owners = lost, 3
    exchange = Exchange(engine, setup.plan)
    hide_sums(exchange, engine)
    found = trained(setup, exchange, 3)
    plain = set_up(graph, owners, "none", "open", "low-rank")
    assert sha256_of(found.classifier.phi) == sha256_of(
        trained(plain, opened(plain), 3).classifier.phi
    )


def test_keys_are_made_again_without_who_vanishes_meanwhile(
    graph: Graph, owners: Partition
) -> None:
    setup = set_up(graph, owners, "classes", "sums", "low-rank")
    exchange = hidden(setup, {"share_secrets": {2}})
    total = exchange.sum(count_class_links, Ask(0)).count
    own = [count_class_links(owner, Ask(0)).count for owner in owners_of(setup)]
    assert torch.equal(total, own[0] + own[1])


def test_with_more_than_a_third_gone_nothing_is_opened(graph: Graph, owners: Partition) -> None:
    setup = set_up(graph, owners, "classes", "sums", "low-rank")
    exchange = hidden(setup, {"count_class_links": {1, 2}})
    with pytest.raises((PrivacyError, ProtocolError)):
        exchange.sum(count_class_links, Ask(0))


@pytest.mark.slow
def test_what_leaves_looks_like_chance(graph: Graph, owners: Partition) -> None:
    """Bits, places of a byte, bytes and neighboring bytes of what one owner adds.

    Eleven figures, each at a bound that chance exceeds in one of 10¹¹ runs: together, one run
    in 10¹⁰ fails although nothing is wrong.
    """
    setup = set_up(graph, owners, "subspace", "sums", "low-rank")
    seen: list[np.ndarray] = []

    class Watched(Vanishing):
        def carry(self, procedure: Any, requests: Any, lot: int | None = None) -> Any:
            replies = super().carry(procedure, requests, lot)
            if procedure.uses is Summed:
                seen.extend(whole_numbers(replies[0])[0].values())
            return replies

    engine = Watched(owners_of(setup))
    exchange = Exchange(engine, setup.plan)
    hide_sums(exchange, engine)
    trained(setup, exchange, 12)
    bits = np.concatenate([np.unpackbits(row.view(np.uint8)) for row in seen])
    assert len(bits) > 50_000
    found = np.packbits(bits)
    assert all(p > RARE for p in chances(found))
    low = (np.abs(generator(0, "low").standard_normal(len(found))) * 20).astype(np.uint8)
    assert min(chances(low)) < RARE  # numbers as they are would be noticed


RARE = 1e-11  # of eleven figures


def chances(found: np.ndarray) -> list[float]:
    """How likely uniform bytes are to be as odd, by eleven figures."""
    places = np.unpackbits(found).reshape(-1, 8)
    ones = [*places.sum(axis=0), places.sum()]
    of = [*[len(places)] * 8, places.size]
    by_bits = [binomtest(int(k), n).pvalue for k, n in zip(ones, of, strict=True)]
    pairs = (found[:-1] >> 4) * 16 + (found[1:] >> 4)  # of the upper halves of neighbors
    tables = [np.bincount(row, minlength=256) for row in (found, pairs[::2])]
    return [*by_bits, *(float(chisquare(counts).pvalue) for counts in tables)]


def test_one_owner_s_reply_is_another_each_time(graph: Graph, owners: Partition) -> None:
    setup = set_up(graph, owners, "classes", "sums", "low-rank")
    exchange = hidden(setup)
    engine = exchange.engine
    replies = [
        exchange.ask(count_class_links, dict.fromkeys((0, 1, 2), Ask(0)), Summed, lot=lot)
        for lot in (exchange.hidden.lot_for((0, 1, 2)) for _ in range(2))  # type: ignore[union-attr]
    ]
    assert isinstance(engine, InProcessEngine)
    for i in range(3):
        assert not torch.equal(replies[0][i].count, replies[1][i].count)


def test_a_door_lets_nothing_out_without_masks(graph: Graph, owners: Partition) -> None:
    setup = set_up(graph, owners, "classes", "sums", "low-rank")
    exchange = hidden(setup)
    with pytest.raises(PrivacyError, match="without masks"):
        exchange.ask(count_class_links, Ask(0), Summed)


def test_a_lot_is_used_once(graph: Graph, owners: Partition) -> None:
    """Two replies under one mask would show their difference."""
    setup = set_up(graph, owners, "classes", "sums", "low-rank")
    exchange = hidden(setup)
    exchange.sum(count_class_links, Ask(0))
    with pytest.raises(PrivacyError, match="asked for again"):
        exchange.ask(count_class_links, Ask(0), Summed, lot=0)


def members_of(exchange: Exchange) -> dict[int, Any]:
    assert isinstance(exchange.engine, InProcessEngine)
    return {i: door.masks for i, door in exchange.engine.doors.items()}


def ready(setup: Setup) -> tuple[Exchange, dict[int, Any]]:
    """An exchange after its first sum, and every owner's masks."""
    exchange = hidden(setup)
    exchange.sum(count_class_links, Ask(0))
    for one in members_of(exchange).values():
        one.remembered.sums.clear()  # as if it had been another question
    lot = exchange.hidden.lot_for((0, 1, 2))  # type: ignore[union-attr]
    exchange.ask(count_class_links, dict.fromkeys((0, 1, 2), Ask(0)), Summed, lot=lot)
    return exchange, members_of(exchange)


ALL = (0, 1, 2)


def test_a_sum_of_few_is_not_opened(graph: Graph, owners: Partition) -> None:
    exchange, masks = ready(set_up(graph, owners, "classes", "sums", "low-rank"))
    signed = exchange.hidden.signed[0]  # type: ignore[union-attr]
    with pytest.raises(PrivacyError, match="2 are required"):
        give_shares(masks[0], answered(1, [0], signed))


def test_two_stories_about_one_sum_are_refused(graph: Graph, owners: Partition) -> None:
    """A server that says to one owner that another answered, and to a third that it did not."""
    exchange, masks = ready(set_up(graph, owners, "classes", "sums", "low-rank"))
    signed = exchange.hidden.signed[0]  # type: ignore[union-attr]
    give_shares(masks[0], answered(1, ALL, signed))
    with pytest.raises(PrivacyError, match="two different lists"):
        give_shares(masks[0], answered(1, [0, 1], signed))


def test_two_stories_to_different_owners_are_found_out(graph: Graph, owners: Partition) -> None:
    exchange, masks = ready(set_up(graph, owners, "classes", "sums", "low-rank"))
    before = exchange.hidden.signed[0]  # type: ignore[union-attr]
    one = give_shares(masks[0], answered(1, ALL, before))
    give_shares(masks[1], answered(1, [0, 1], before))
    lot = exchange.hidden.lot_for((0, 1, 2))  # type: ignore[union-attr]
    exchange.ask(count_class_links, dict.fromkeys((0, 1, 2), Ask(0)), Summed, lot=lot)
    told = {"1/0": one.signature, "1/1": one.signature}
    with pytest.raises(PrivacyError, match="two different lists"):
        give_shares(masks[1], answered(lot, ALL, told))
    with pytest.raises(PrivacyError, match="more are required"):
        give_shares(masks[1], answered(lot, ALL, {}))


def test_never_both_shares_of_one_owner(graph: Graph, owners: Partition) -> None:
    exchange, masks = ready(set_up(graph, owners, "classes", "sums", "low-rank"))
    signed = exchange.hidden.signed[0]  # type: ignore[union-attr]
    found = give_shares(masks[0], answered(1, [0, 1], signed))
    own, keys = [1 + 2 * 1 + k for k in (1, 0)]  # where shares of the second sum are
    for i, place in enumerate((own, own, keys)):
        held = masks[0].shares[i][SIZE * place : SIZE * (place + 1)]
        assert in_raw(found.shares[i]) == held


def test_keys_of_somebody_else_are_refused(graph: Graph, owners: Partition) -> None:
    """A server in the middle that puts its own keys in an owner's place."""
    exchange = hidden(set_up(graph, owners, "classes", "sums", "low-rank"))
    masks = members_of(exchange)
    keys = {str(i): make_keys(one, Batch(0, 2)) for i, one in masks.items()}
    other = make_keys(replace(masks[1], batch=Batch(-1, 0)), Batch(0, 2))
    with pytest.raises(PrivacyError, match="signature of owner 1"):
        share_secrets(masks[0], Members(keys | {"1": replace(other, signature="00")}))
    forged = replace(keys["2"], channel=keys["0"].channel)
    with pytest.raises(PrivacyError, match="signature of owner 2"):
        share_secrets(masks[0], Members(keys | {"2": forged}))


def test_a_box_that_was_altered_is_refused(graph: Graph, owners: Partition) -> None:
    exchange = hidden(set_up(graph, owners, "classes", "sums", "low-rank"))
    masks = members_of(exchange)
    keys = Members({str(i): make_keys(one, Batch(0, 2)) for i, one in masks.items()})
    boxes = {i: share_secrets(one, keys) for i, one in masks.items()}
    first = {"1": boxes[1].boxes["0"], "2": boxes[2].boxes["1"]}  # for another owner
    with pytest.raises(PrivacyError, match="altered"):
        hold_shares(masks[0], replace(boxes[0], boxes=first))


def test_shares_that_are_too_few_or_not_for_all_are_refused(
    graph: Graph, owners: Partition
) -> None:
    """An owner that leaves somebody out, or sends half of what is needed, is named."""
    setup = set_up(graph, owners, "classes", "sums", "low-rank")
    exchange = hidden(setup)
    masks = members_of(exchange)
    keys = Members({str(i): make_keys(one, Batch(0, 2)) for i, one in masks.items()})
    boxes = {i: share_secrets(one, keys) for i, one in masks.items()}
    few = Boxes({"1": boxes[0].boxes["1"]})
    refused = exchange.guard.refusals(share_secrets, {0: keys}, {0: few}, setup.plan)
    assert refused == {0: "shares that are not for all other owners"}
    assert not exchange.guard.refusals(share_secrets, {0: keys}, {0: boxes[0]}, setup.plan)
    half = in_numbers(sealed(masks[1].key(0), bytes(SIZE), "from 1 to 0"))
    with pytest.raises(PrivacyError, match="Owner 1 sent shares that cannot be used"):
        hold_shares(masks[0], Boxes({"1": half, "2": boxes[2].boxes["0"]}))


def test_nothing_is_masked_before_owners_have_a_secret_in_common(
    graph: Graph, owners: Partition
) -> None:
    """A server that leaves out the last step of agreeing on keys could forge every proof."""
    exchange = hidden(set_up(graph, owners, "classes", "sums", "low-rank"))
    masks = members_of(exchange)
    keys = Members({str(i): make_keys(one, Batch(0, 2)) for i, one in masks.items()})
    share_secrets(masks[0], keys)
    with pytest.raises(PrivacyError, match="no keys for sum 0"):
        masks[0].masked(DataOwner.test_classifier, Ask(0), Hits(1, 1, 1, 1), 0)


def test_keys_for_too_many_sums_are_not_made(graph: Graph, owners: Partition) -> None:
    exchange = hidden(set_up(graph, owners, "classes", "sums", "low-rank"))
    with pytest.raises(PrivacyError, match="1000000000 sums"):
        make_keys(members_of(exchange)[0], Batch(0, 10**9))


def test_the_server_holds_no_secret_of_a_batch(graph: Graph, owners: Partition) -> None:
    """What it passes on are public keys and ciphertext, different for each owner."""
    exchange = hidden(set_up(graph, owners, "classes", "sums", "low-rank"))
    masks = members_of(exchange)
    keys = Members({str(i): make_keys(one, Batch(0, 2)) for i, one in masks.items()})
    boxes = {i: share_secrets(one, keys) for i, one in masks.items()}
    passed = b"".join(in_raw(box) for one in boxes.values() for box in one.boxes.values())
    for one in masks.values():
        for secret in (*one.pairs, *one.own, one.part):
            assert in_bytes(secret) not in passed
            assert in_bytes(secret) not in b"".join(in_raw(k.lots) for k in keys.keys.values())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"traffic": {"how": "full"}}, "whole numbers"),
        ({"classifier": {"aggregate": "median"}}, "compares owners' updates"),
        ({"mend": {"how": "neighgen"}, "neighgen": GEN | {"partners": 1}}, "answer each other"),
    ],
)
def test_what_cannot_be_hidden_is_refused_in_words(
    more: dict[str, Any], words: str, graph: Graph, owners: Partition
) -> None:
    settings = {"traffic": {"how": "low-rank"}} | more | SUMS
    how = str(settings.pop("mend", {"how": "none"})["how"])
    with pytest.raises(ConfigError, match=words):
        small_setup(graph, owners, how, **settings)


@pytest.mark.parametrize(
    ("people", "stay"), [(1, 1), (2, 2), (3, 2), (5, 4), (10, 7), (21, 14)]
)
def test_a_third_may_vanish_and_fewer_shares_say_nothing(people: int, stay: int) -> None:
    assert threshold_of(people) == threshold_of(people, people) == stay
    shares = dict(enumerate(split(12345, people, stay)))
    some = dict(list(shares.items())[people - stay :])
    assert joined(some, people, stay) == 12345
    with pytest.raises(PrivacyError, match="needed"):
        joined(dict(list(shares.items())[: stay - 1]), people, stay)


def test_of_neighbors_among_many_more_than_half_must_stay() -> None:
    assert threshold_of(21, 100) == 11


def test_many_owners_have_twenty_neighbors_each() -> None:
    around = circle(range(100), b"seed", 10)
    assert {len(near) for near in around.values()} == {20}
    assert all(i in around[j] for i, near in around.items() for j in near)
    assert circle(range(100), b"other", 10) != around
    assert circle(range(5), b"seed", 10)[2] == [0, 1, 3, 4]


def test_masks_that_are_added_and_taken_off_leave_no_trace() -> None:
    stream = generator(0, "masks")
    numbers = {kind: stream.integers(-100, 100, 50).astype(kind) for kind in ("int8", "int64")}
    plus, minus = [b"a" * 32, b"b" * 32], [b"c" * 32]
    there = masked(numbers, plus, minus)
    back = masked(there, minus, plus)
    for kind, row in numbers.items():
        assert not np.array_equal(there[kind], row)
        assert np.array_equal(back[kind], row)


def test_a_message_comes_back_from_its_whole_numbers() -> None:
    hits = Hits(-3, 2**40, 0, 5)
    numbers, rebuilt = whole_numbers(hits)
    assert rebuilt(numbers) == hits
    links = ClassLinks(torch.tensor([[0.5, -1.25], [3.0, 2.0]]))
    numbers, rebuilt = whole_numbers(links)
    assert torch.equal(with_points(rebuilt(numbers)).count, links.count)


def test_words_cannot_be_added_up() -> None:
    with pytest.raises(PrivacyError, match="cannot be added up"):
        whole_numbers(Voucher("a", "b"))


def test_a_proof_is_of_the_sum_and_of_nothing_else() -> None:
    stream = generator(0, "proof")
    rows = [stream.integers(-(2**31), 2**31 - 1, 1000) for _ in range(5)]
    more = [[int(n) for n in stream.integers(2**50, size=2)] for _ in range(5)]
    parts = [proof_of(b"s" * 32, "t", *pair) for pair in zip(rows, more, strict=True)]
    total, extra = np.sum(rows, axis=0), [sum(pair) for pair in zip(*more, strict=True)]
    small = total >> 8  # a proof takes numbers of 32 bits
    assert proof_of(b"s" * 32, "t", small) != proof_of(b"s" * 32, "t", small + (small > 0))
    fits = [row >> 8 for row in rows]
    parts = [proof_of(b"s" * 32, "t", row, e) for row, e in zip(fits, more, strict=True)]
    assert sum(parts) % PRIME == proof_of(b"s" * 32, "t", np.sum(fits, axis=0), extra)
    assert proof_of(b"r" * 32, "t", small) != proof_of(b"s" * 32, "t", small)
    assert proof_of(b"s" * 32, "u", small) != proof_of(b"s" * 32, "t", small)


def many_owners(count: int, how: str) -> Setup:
    """A run of many owners on a larger graph."""
    graph = synthetic(nodes=40 * count, classes=3, features=40, words=6.0, topicality=0.6)
    parts = partition(graph, count, "random", 0)
    return set_up(graph, parts, how, "sums", "low-rank")


class Lying(Vanishing):
    """Owner 4 sends shares that are not those it holds."""

    def carry(self, procedure: Any, requests: Any, lot: int | None = None) -> Any:
        replies = super().carry(procedure, requests, lot)
        if procedure is give_shares and 4 in replies:
            replies[4] = replace(replies[4], shares=torch.flip(replies[4].shares, (0, 1)))
        return replies


@pytest.mark.parametrize("count", [5, 7])
def test_who_sends_wrong_shares_is_named(count: int) -> None:
    """With two more than are needed the sum is right nevertheless."""
    setup = many_owners(count, "classes")
    engine = Lying(owners_of(setup))
    exchange = Exchange(engine, setup.plan)
    hide_sums(exchange, engine)
    if threshold_of(count) + 1 == count:
        with pytest.raises(ProtocolError, match="sent a wrong one: 0, 1, 2, 3, 4"):
            exchange.sum(count_class_links, Ask(0))
        return
    total = exchange.sum(count_class_links, Ask(0)).count
    own = [count_class_links(one, Ask(0)) for one in owners_of(setup)]
    assert torch.equal(total, add_up(own).count)
    assert {miss.owner for miss in exchange.misses} == {4}


STEPS = [
    "make_keys", "share_secrets", "hold_shares", "count_class_links", "local_change_c",
    "receive_change", "give_shares", "test_classifier",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_three_of_ten_may_be_killed_at_each_step(step: str) -> None:
    """The run goes on, and every sum is that of who answered."""
    setup = many_owners(10, "classes")
    engine = Checked(owners_of(setup))
    engine.gone, engine.min_owners = {step: {1, 4, 8}}, 1
    exchange = Exchange(engine, setup.plan)
    hide_sums(exchange, engine)
    exchange.on_sum = engine.compare
    outcome = trained(setup, exchange, 2)
    assert engine.compared >= 6
    assert outcome.tested.total > 0


class Checked(Vanishing):
    """Keeps what owners would have sent without masks, to hold sums against."""

    compared = 0

    def __init__(self, owners: Any) -> None:
        super().__init__(owners)
        self.plain: dict[int, Any] = {}
        for i, door in self.doors.items():
            door.links = [partial(self.note, i)]

    def note(self, i: int, procedure: Any, message: Any) -> Any:
        if procedure.uses is Summed:
            self.plain[i] = message
        return message

    def carry(self, procedure: Any, requests: Any, lot: int | None = None) -> Any:
        if procedure.uses is Summed:
            self.plain = {}
        return super().carry(procedure, requests, lot)

    def compare(self, procedure: Any, total: Any) -> None:
        wanted = add_up([self.plain[i] for i in sorted(self.plain)])
        for (path, one), (_, other) in zip(leaves_of(total), leaves_of(wanted), strict=True):
            same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
            assert same, (procedure.name, path)
        self.compared += 1


@pytest.mark.slow
def test_forty_owners_have_neighbors_and_the_right_sum() -> None:
    setup = many_owners(40, "classes")
    gone = {"count_class_links": {3, 11, 17, 29, 38}}
    total = hidden(setup, gone).sum(count_class_links, Ask(0)).count
    owners = owners_of(setup)
    here = [one for one in owners if one.id not in gone["count_class_links"]]
    own = [count_class_links(one, Ask(0)).count for one in here]
    assert torch.equal(total, add_up([ClassLinks(count) for count in own]).count)
