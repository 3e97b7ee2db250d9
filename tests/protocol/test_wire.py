from __future__ import annotations

import json
import struct
from dataclasses import fields, is_dataclass

import pytest
import safetensors.torch
import torch

from fedsage.errors import ProtocolError
from fedsage.mending.classes import ClassLinks
from fedsage.mending.generator import GenDone
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
    Finish,
    Joined,
    Ready,
    Step,
)
from fedsage.protocol.changes import News, Turn
from fedsage.protocol.common import Change
from fedsage.protocol.messages import MESSAGES, Ask, Classifier, ClassifierUpdate, Hits, Mended
from fedsage.protocol.wire import Message, decode, encode, packed, unpacked

WEIGHTS = {
    "layers.0.bias": torch.randn(3),
    "a/b": torch.randn(2, 5),
    "turned": torch.randn(4, 3).T,
    "empty": torch.empty(0, 7),
}
OFFER = GenOffer(3, torch.randn(4, 2), WEIGHTS)
DONE = GenDone(1.5, 0.25, 1e-30, 0.1 + 0.2)
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
    ClassLinks(torch.randn(3, 3)),
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
    NeighGenChange(CHANGE, DONE),
    Turn(3, True),
    News(3, 5, 60.0, WEIGHTS, {}, CHANGE, {"a": torch.zeros(3, dtype=torch.int16)}),
    Agreement("run", 2, "1.0", '{"a": 1}', "{}"),
    Joined("1.0", "abc", 5, 3, 100, 60.0, '["x", "ä"]'),
    ColumnSums(torch.ones(2).double(), torch.randn(2).double()),
    ColumnMeans(torch.randn(2).double()),
    ColumnSquares(torch.zeros(0)),
    ColumnScale(torch.randn(2).double(), torch.ones(2).double()),
    Step("neighgen", 4, True),
    Able(True),
    Finish("both", "abc"),
    Ready(),
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
        with pytest.raises(ProtocolError, match="is nothing that belongs in it"):
            decode(Classifier, more)


def test_what_is_decoded_shares_no_memory_with_its_frame() -> None:
    frame = encode(Classifier({"w": torch.ones(2)}, {}))
    decode(Classifier, frame).phi["w"].zero_()
    assert decode(Classifier, frame).phi["w"].tolist() == [1.0, 1.0]
