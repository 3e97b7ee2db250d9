"""Messages ↔ bytes: lossless, no pickle, nothing that is not a message.

A frame is one line of JSON (the message's type and its numbers), then its tensors in the
safetensors format, named ``field/tensor``.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TypeAlias, TypeVar

import safetensors.torch
from safetensors import SafetensorError

from fedsage.errors import ProtocolError
from fedsage.models.parameters import under
from fedsage.protocol.messages import Ask, Classifier, ClassifierUpdate, Hits

Message: TypeAlias = Classifier | ClassifierUpdate | Hits | Ask
M = TypeVar("M", Classifier, ClassifierUpdate, Hits, Ask)
Reply = TypeVar("Reply", Classifier, ClassifierUpdate, Hits, Ask)  # where two types meet


def encode(message: Message) -> bytes:
    """The message as bytes."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    numbers = {name: value for name, value in values.items() if not isinstance(value, dict)}
    tensors = {
        f"{field}/{name}": tensor.contiguous()
        for field, value in values.items()
        if isinstance(value, dict)
        for name, tensor in value.items()
    }
    head = json.dumps({"type": type(message).__name__, "numbers": numbers})
    return head.encode() + b"\n" + safetensors.torch.save(tensors)


def decode(kind: type[M], frame: bytes) -> M:
    """The message in ``frame``, which must be of type ``kind``."""
    head, _, body = frame.partition(b"\n")
    try:
        header = json.loads(head)
        tensors = safetensors.torch.load(body)
    except (ValueError, SafetensorError) as error:
        raise ProtocolError(f"A message cannot be read ({error}). Ask for it again.") from None
    if header.get("type") != kind.__name__:
        raise ProtocolError(
            f"Expected a {kind.__name__}, got a {header.get('type')}. Do all parties run the "
            "same version of fedsage?"
        )
    values: dict[str, object] = {}
    for field in fields(kind):
        if field.name in header["numbers"]:
            values[field.name] = header["numbers"][field.name]
        else:
            values[field.name] = under(field.name, tensors)
    return kind(**values)  # type: ignore[arg-type]
