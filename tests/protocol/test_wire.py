from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from math import prod
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsage.errors import ProtocolError
from fedsage.federation.before_training.earlier_run import Carried
from fedsage.mending.classes import ClassLinks
from fedsage.mending.generator import GenDone
from fedsage.mending.links.contributions import GroupParts, GroupsAsked
from fedsage.mending.links.far_ends import FoundNodes, SoughtNodes
from fedsage.mending.links.shared_nodes import Sides
from fedsage.mending.neighgen import GenGradient, GenGradients, GenOffer, GenOffers
from fedsage.mending.offers import (
    Answers,
    AnswerSum,
    HgNews,
    Offer,
    Offers,
    OfferTurn,
    Question,
)
from fedsage.mending.sealed_neighgen import SealedOffers, VeiledSum
from fedsage.mending.shared import NeighGenUpdate, SharedNeighGen
from fedsage.mending.subspace import (
    Directions,
    Sketch,
    SketchSizes,
    SketchUnits,
    Subspace,
    WholeSketch,
)
from fedsage.mending.whole_shared import NeighGenChange
from fedsage.protocol.agreement import (
    Able,
    Agreement,
    ColumnMeans,
    ColumnScale,
    ColumnSquares,
    ColumnSums,
    Consent,
    FeatureLooks,
    FeatureSums,
    Finish,
    Joined,
    NodeCount,
    Ready,
    Step,
    WordCounts,
    WordsFrom,
)
from fedsage.protocol.changes.follow import News, Turn
from fedsage.protocol.changes.state import Change
from fedsage.protocol.class_weights import ClassCounts
from fedsage.protocol.hidden_sums.messages import (
    Batch,
    Boxes,
    Held,
    Keys,
    Members,
    Note,
    Shares,
    State,
    Voucher,
    answered,
)
from fedsage.protocol.letters import Introduction, Introductions, Letters
from fedsage.protocol.measuring import AnswerCounts, Likelihoods, Query
from fedsage.protocol.messages import MESSAGES, Ask, Classifier, ClassifierUpdate, Hits, Mended
from fedsage.protocol.personal import OwnClassifier, OwnUpdate
from fedsage.protocol.private import NoisyCount, NoisyGradient, Weights
from fedsage.protocol.wire import (
    DEFLATED,
    MOST_DEFLATED,
    NUMBERS,
    Message,
    decode,
    deflated,
    encode,
    packed,
    unpacked,
)
from fedsage.rivals.feddep import OthersPrototypes, Prototypes
from fedsage.rivals.scaffold import Control

WEIGHTS = {
    "layers.0.bias": torch.randn(3),
    "a/b": torch.randn(2, 5),
    "turned": torch.randn(4, 3).T,
    "empty": torch.empty(0, 7),
}
OFFER = GenOffer(3, torch.randn(4, 2), WEIGHTS)
LOOKS = FeatureLooks(7, 2**40, 30, 1, 0, 0)
DONE = GenDone(1.5, 0.25, 1e-30, 0.1 + 0.2)
KEYS = Keys("00", "33", torch.ones(32, dtype=torch.int8), "a certificate\n", "22")
BYTES = torch.randint(-128, 128, (5, 2), dtype=torch.int8)
CHANGE = Change(
    {
        "left/w": torch.randint(-12, 13, (50, 8), dtype=torch.int8),
        "right/w": torch.randint(-(2**15), 2**15, (50, 8), dtype=torch.int16),
        "squares": torch.randint(-(2**31), 2**31, (9,), dtype=torch.int32),
        "none": torch.empty(0, 3, dtype=torch.int8),
    },
    2**70, 3, -1, 1,
)  # fmt: skip
WHOLE = {"left/w": torch.randint(-12, 13, (9, 2), dtype=torch.int8)}
NEWS = HgNews(2, WHOLE, WEIGHTS)
QUESTION = Question(torch.randint(-99, 99, (4, 2), dtype=torch.int8), -7, WHOLE)
INTRODUCTION = Introduction("00", "a certificate\n", "22")
POINTS = torch.randint(-128, 128, (4, 32), dtype=torch.int8)
PLACES = torch.randint(0, 99, (4, 3), dtype=torch.int32)
TRIED = [
    Ask(41),
    OFFER,
    GenOffers({0: OFFER, 7: OFFER}),
    GenOffers({}),
    GenGradients({2: WEIGHTS, 1: {}}),
    GenGradient(3, WEIGHTS),
    DONE,
    OfferTurn(3, True),
    NEWS,
    QUESTION,
    Offer(3, NEWS, QUESTION),
    Offers(3, {0: NEWS, 7: NEWS}, {7: QUESTION}),
    Answers({2: WHOLE, 1: {}}),
    AnswerSum(3, WHOLE, 1.5),
    SharedNeighGen(1, WEIGHTS),
    NeighGenUpdate(WEIGHTS, DONE),
    INTRODUCTION,
    Introductions({"0": INTRODUCTION}),
    Letters({"2": BYTES.reshape(-1)}),
    SoughtNodes(POINTS, POINTS[:0], 7, 20),
    FoundNodes(POINTS, POINTS[:0], torch.tensor([3, -1], dtype=torch.int32), -4, POINTS),
    GroupsAsked(PLACES[:, :2], PLACES, 7),
    Sides(PLACES[:, :2], torch.tensor([2**60, -5], dtype=torch.int64), PLACES[:, 0]),
    GroupParts(
        torch.randint(-(2**15), 2**15, (3, 5), dtype=torch.int16),
        torch.randint(0, 2**61, (2, 2, 16), dtype=torch.int64),
    ),
    ClassLinks(torch.randint(0, 99, (3, 3), dtype=torch.int32)),
    Subspace(torch.randn(5, 2)),
    Sketch(torch.randn(5, 2)),
    Directions(2, BYTES, BYTES[0]),
    SketchSizes(BYTES[0]),
    SketchUnits(3, BYTES[0]),
    WholeSketch(BYTES),
    Mended(),
    Classifier(WEIGHTS, {}),
    ClassifierUpdate(WEIGHTS, {"w.step": torch.tensor(3.0)}, 7.0, 0.1 + 0.2),
    Hits(3, 4, 5, 10),
    CHANGE,
    NeighGenChange(CHANGE, {"loss": 3, "degree": -1}),
    NodeCount(7),
    Batch(32, 32),
    KEYS,
    Members({"0": KEYS, "7": KEYS}),
    Boxes({"1": BYTES}),
    Note(BYTES, "22"),
    SealedOffers(3, {1: BYTES}, {0: "22", 1: "33"}),
    VeiledSum(3, {"rest": BYTES}, 1.5, {0: True, 1: True}),
    Held(),
    answered(3, [0, 2], {"1/0": torch.arange(64, dtype=torch.int8)}),
    Shares(torch.ones(2, 16, dtype=torch.int8), torch.zeros(64, dtype=torch.int8)),
    State("the classifier after 3 rounds"),
    Voucher("a certificate\n", "22"),
    Turn(3, True),
    News(3, 5, 60.0, WEIGHTS, {}, CHANGE, {"a": torch.zeros(3, dtype=torch.int16)}),
    Agreement("run", 2, "1.0", '{"a": 1}', "{}"),
    Joined("1.0", "abc", 5, 3, 100, 60.0, '["x", "ä"]', "{}"),
    ColumnSums(torch.ones(2, dtype=torch.int32), torch.ones(2, 3, dtype=torch.int32)),
    ColumnMeans(torch.randn(2).double()),
    ColumnSquares(torch.zeros(0, 3, dtype=torch.int32)),
    ColumnScale(torch.randn(2).double(), torch.ones(2).double()),
    Step("neighgen", 4, True),
    Able(True),
    Finish("both", "abc", 1.5, -0.5),
    ClassCounts(torch.ones(3, dtype=torch.int32)),
    Query("both", 1.5),
    Likelihoods({"0": 7}, 3),
    Carried(torch.arange(3, dtype=torch.int32), torch.ones(2, dtype=torch.int32)),
    AnswerCounts(torch.ones(2, 2, dtype=torch.int32), {"0": 4}, {"0": 3}, {"0": 9}),
    Ready(),
    Consent(True, False, "not this month"),
    LOOKS,
    FeatureSums(LOOKS, torch.ones(3, dtype=torch.int64)),
    WordCounts(torch.ones(3, dtype=torch.int32)),
    WordsFrom(7),
    NoisyCount(-5),
    NoisyGradient(torch.randint(-(2**40), 2**40, (4, 2), dtype=torch.int64)),
    Weights(3, 1200, torch.randn(4, 2)),
    OwnClassifier(WEIGHTS, {}, True),
    OwnUpdate(WEIGHTS, {}, 7.0, 0.5, torch.randn(6)),
    Control(WEIGHTS),
    Prototypes(torch.randn(2, 3)),
    OthersPrototypes({"0": Prototypes(torch.randn(2, 3))}),
]


def assert_same(sent: object, got: object) -> None:
    assert type(sent) is type(got)
    if isinstance(sent, torch.Tensor):
        assert torch.equal(sent, got) and sent.dtype == got.dtype
    elif isinstance(sent, dict):
        assert list(sent) == list(got)
        for key in sent:
            assert_same(sent[key], got[key])
    elif is_dataclass(sent):
        for field in fields(sent):
            assert_same(getattr(sent, field.name), getattr(got, field.name))
    else:
        assert sent == got


def test_every_message_is_tried() -> None:
    assert {type(message) for message in TRIED} == {
        one for one in MESSAGES if one.__module__.startswith("fedsage.")
    }


@pytest.mark.parametrize("message", TRIED, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_bit_for_bit(message: Message) -> None:
    assert_same(message, decode(type(message), encode(message)))


def test_a_message_without_a_field_is_refused() -> None:
    frame = encode(Hits(3, 4, 5, 10)).replace(b'"/both": 5, ', b"")
    with pytest.raises(ProtocolError, match="does not have the fields"):
        decode(Hits, frame)


def test_another_type_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Expected a Hits, got a Ask"):
        decode(Hits, encode(Ask(1)))


@pytest.mark.parametrize("cut", [0, 5, -3])
def test_a_broken_frame_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError, match="cannot be read"):
        decode(Classifier, encode(Classifier(WEIGHTS, {}))[:cut])


def body_of(header: object, values: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


def test_tensors_are_in_the_safetensors_format() -> None:
    tensors = WEIGHTS | {"odd": torch.arange(3), "exact": torch.randn(2).double()}
    body = b"".join(packed(tensors))
    assert_same(
        {name: t.contiguous() for name, t in tensors.items()}, unpacked(memoryview(body))
    )
    by_library = safetensors.torch.load(body)
    for name, tensor in tensors.items():
        assert torch.equal(by_library[name], tensor)


@pytest.mark.parametrize(
    "header",
    [
        [],
        {"w": 1},
        {"w": {"dtype": "F32", "shape": [1]}},
        {"w": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}},
        {"w": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}},
        {"w": {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}},
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "more": 1}},
        {"w": {"dtype": "F32", "shape": [2**63 - 1] * 9, "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]}},
        {"__metadata__": {"a": "b"}},
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
         "again": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
    ],
    ids=repr,
)  # fmt: skip
def test_tensors_that_are_not_where_they_say_are_refused(header: object) -> None:
    frame = json.dumps({"type": "Classifier", "values": {"/phi": [], "/moments": []}}).encode()
    if isinstance(header, dict):
        header = {f"/phi/{name}": about for name, about in header.items()}
    with pytest.raises(ProtocolError, match="cannot be read"):
        decode(Classifier, frame + b"\n" + body_of(header, bytes(4)))


def test_a_table_longer_than_its_frame_is_refused() -> None:
    frame = json.dumps({"type": "Classifier", "values": {"/phi": [], "/moments": []}}).encode()
    for size in (3, 2**64 - 1):
        with pytest.raises(ProtocolError, match="their table alone"):
            decode(Classifier, frame + b"\n" + struct.pack("<Q", size) + b"{}")


def test_a_frame_with_more_than_its_message_is_refused() -> None:
    frame = encode(Classifier({"w": torch.ones(2)}, {}))
    for more in (frame.replace(b'["w"]', b"[]"), frame.replace(b'"/phi"', b'"/x": 1, "/phi"')):
        with pytest.raises(ProtocolError, match="does not belong in it"):
            decode(Classifier, more)


def test_what_is_decoded_shares_no_memory_with_its_frame() -> None:
    frame = encode(Classifier({"w": torch.ones(2)}, {}))
    decode(Classifier, frame).phi["w"].zero_()
    assert decode(Classifier, frame).phi["w"].tolist() == [1.0, 1.0]


WHOLE = {"ZI8": torch.int8, "ZI16": torch.int16, "ZI32": torch.int32}


@st.composite
def whole_tensors(draw: st.DrawFn) -> torch.Tensor:
    """Of all three sizes: from a few numbers near zero to any that there are."""
    dtype = draw(st.sampled_from(list(WHOLE.values())))
    limits = torch.iinfo(dtype)
    largest = draw(st.sampled_from([0, 1, 3, 100, limits.max]))
    low = limits.min if largest == limits.max else -largest
    shape = draw(st.lists(st.integers(0, 9), max_size=4))
    seed = draw(st.integers(0, 99))
    drawn = np.random.default_rng(seed).integers(low, largest, shape, endpoint=True)
    tensor = torch.from_numpy(np.asarray(drawn)).to(dtype)
    return tensor.T if draw(st.booleans()) and tensor.ndim == 2 else tensor


@given(st.lists(whole_tensors(), max_size=4), st.booleans())
def test_whole_numbers_come_back_as_they_were(tensors: list[torch.Tensor], mixed: bool) -> None:
    sent = {str(k): tensor for k, tensor in enumerate(tensors)}
    if mixed:  # what comes after deflated bytes may begin at an odd place
        sent |= {"w": torch.randn(3), "x": torch.randn(2, 2).double()}
    body = b"".join(packed(sent))
    assert_same({name: t.contiguous() for name, t in sent.items()}, unpacked(memoryview(body)))
    assert_same(Change(sent, 1, 1, 0, 1), decode(Change, encode(Change(sent, 1, 1, 0, 1))))


@pytest.mark.parametrize("kind", WHOLE)
def test_small_whole_numbers_are_sent_in_fewer_bytes(kind: str) -> None:
    small = torch.randint(-3, 4, (400,)).to(WHOLE[kind])
    _, table, numbers = packed({"w": small})
    assert json.loads(table)["w"]["dtype"] == kind and len(numbers) < small.nbytes
    limits = torch.iinfo(small.dtype)
    large = torch.randint(limits.min, limits.max, (400,)).to(small.dtype)
    _, table, _ = packed({"w": large})
    assert json.loads(table)["w"]["dtype"] == kind[1:]  # deflated it would be longer


def change_of(kind: str, shape: Any, short: bytes, **more: Any) -> bytes:
    """A frame with one deflated tensor that says this of itself."""
    values = {"/parts": ["w"], "/weight": 1, "/steps": 1, "/loss": 0, "/count": 1,
              "/proof": 0}  # fmt: skip
    head = json.dumps({"type": "Change", "values": values}).encode()
    about = {"dtype": kind, "shape": shape, "data_offsets": [0, len(short)], **more}
    about = {key: value for key, value in about.items() if value is not ...}
    return head + b"\n" + body_of({"/parts/w": about}, short)


def zeros_of(kind: str, count: int) -> bytes:
    return deflated(np.zeros(count, NUMBERS[DEFLATED[kind]]))


def repeated(count: int) -> bytes:
    """So many zeros in a thousandth of the bytes: any inflater takes them, we send none."""
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    return coder.compress(bytes(count)) + coder.flush()


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("asked", [[30], [5, 6], [10, 3, 1]])
def test_deflated_bytes_that_do_not_fill_the_shape_are_refused(
    kind: str, asked: list[int]
) -> None:
    fits = decode(Change, change_of(kind, asked, zeros_of(kind, 30)))
    assert_same(fits.parts["w"], torch.zeros(asked, dtype=WHOLE[kind]))
    for count in (0, 1, 29, 31, 60):
        with pytest.raises(ProtocolError, match=r"30 numbers in|integers that"):
            decode(Change, change_of(kind, asked, zeros_of(kind, count)))


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "more after the end": lambda short: short + b"x",
    "twice": lambda short: short + short,
    "cut": lambda short: short[:-1],
    "no stream": lambda short: bytes([255]) * len(short),
    "with the header of zlib": lambda short: zlib.compress(zlib.decompress(short, -15)),
}


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("how", SPOILED)
def test_deflated_bytes_with_anything_else_in_them_are_refused(how: str, kind: str) -> None:
    with pytest.raises(ProtocolError, match="cannot be read"):
        decode(Change, change_of(kind, [40], SPOILED[how](zeros_of(kind, 40))))


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize(
    "shape",
    [[10**9], [2**62], [2**31, 2**31], [2**63 - 1] * 8, [10**6, 10**6]],
    ids=repr,
)
def test_a_shape_beyond_its_bytes_is_refused_and_not_inflated(
    kind: str, shape: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb: a few bytes that would be gigabytes."""
    monkeypatch.setattr(zlib, "decompressobj", lambda *_: pytest.fail("it was inflated"))
    for short in (zeros_of(kind, 8), repeated(10**6), b""):
        with pytest.raises(ProtocolError, match="numbers in"):
            decode(Change, change_of(kind, shape, short))


@pytest.mark.parametrize("kind", WHOLE)
def test_what_would_inflate_without_end_is_stopped_at_its_shape(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that hold far more than they say: no more of it is made than was said."""
    short, made = repeated(10**7), []
    count = (
        MOST_DEFLATED * len(short) // WHOLE[kind].itemsize
    )  # the largest shape that is not refused at sight
    real = zlib.decompressobj

    class Watched:
        def __init__(self, *how: int) -> None:
            self.coder = real(*how)

        def decompress(self, given_bytes: bytes, most: int) -> bytes:
            found = self.coder.decompress(given_bytes, most)
            made.append(len(found))
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(self.coder, name)

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    with pytest.raises(ProtocolError, match="integers that are not"):
        decode(Change, change_of(kind, [count], short))
    assert made == [count * WHOLE[kind].itemsize + 1]
    with pytest.raises(ProtocolError, match="numbers in"):
        decode(Change, change_of(kind, [count + 1], short))
    assert len(made) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"data_offsets": ...},
        {"data_offsets": []},
        {"data_offsets": 7},
        {"data_offsets": None},
        {"data_offsets": "07"},
        {"data_offsets": {"0": 7}},
        {"data_offsets": [0, 7.0]},
        {"data_offsets": [0, True]},
        {"data_offsets": [0, -1]},
        {"data_offsets": [1, 7]},
        {"data_offsets": [0, 0]},
        {"data_offsets": [0, 10**6]},
        {"data_offsets": [0, 1, 7]},
        {"shape": [0]},
        {"shape": [-1]},
        {"shape": [0, 2**62, 2**62]},
        {"shape": ...},
        {"dtype": "ZI64"},
        {"dtype": "ZF32"},
        {"more": 1},
    ],
    ids=repr,
)
def test_a_deflated_tensor_that_is_not_where_it_says_is_refused(more: dict[str, Any]) -> None:
    short = zeros_of("ZI8", 20)
    with pytest.raises(ProtocolError, match="cannot be read"):
        decode(Change, change_of("ZI8", more.pop("shape", [20]), short, **more))


@given(
    st.sampled_from(list(WHOLE)),
    st.binary(max_size=40),
    st.lists(st.integers(0, 50), max_size=3),
)
def test_any_bytes_at_all_are_a_tensor_or_refused(
    kind: str, short: bytes, shape: list[int]
) -> None:
    try:
        found = decode(Change, change_of(kind, shape, short)).parts["w"]
    except ProtocolError:
        return
    assert [*found.shape] == shape and found.dtype == WHOLE[kind]
    assert prod(shape) <= MOST_DEFLATED * len(short)
