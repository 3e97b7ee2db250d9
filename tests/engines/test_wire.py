from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from fedsage.engines.wire import Message, decode, encode
from fedsage.errors import ProtocolError
from fedsage.protocol.messages import Ask, Classifier, ClassifierUpdate, Hits

WEIGHTS = {"layers.0.bias": torch.randn(3), "a/b": torch.randn(2, 5)}
MESSAGES = [
    Classifier(WEIGHTS, {}),
    ClassifierUpdate(WEIGHTS, {"w.step": torch.tensor(3.0)}, 7.0, 0.1 + 0.2),
    Hits(3, 4, 5, 10),
    Ask(41),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_bit_for_bit(message: Message) -> None:
    back = decode(type(message), encode(message))
    for field in fields(message):
        sent, got = getattr(message, field.name), getattr(back, field.name)
        if isinstance(sent, dict):
            assert set(sent) == set(got)
            assert all(torch.equal(sent[name], got[name]) for name in sent)
        else:
            assert sent == got


def test_another_type_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Expected a Hits, got a Ask"):
        decode(Hits, encode(Ask(1)))


@pytest.mark.parametrize("cut", [0, 5, -3])
def test_a_broken_frame_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError, match="cannot be read"):
        decode(Classifier, encode(MESSAGES[0])[:cut])
