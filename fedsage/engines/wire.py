"""Messages ↔ bytes: lossless, no pickle, nothing that is not a message.

A frame is one line of JSON (the message's type, its numbers, the keys of its dictionaries),
then its tensors in the safetensors format. All are named by their path, ``field/key/field``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from fedsage.errors import ProtocolError
from fedsage.protocol.messages import MESSAGES

KINDS = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
PLAIN: dict[Any, tuple[type, ...]] = {
    int: (int,), float: (float, int), str: (str,), bool: (bool,),
}  # fmt: skip
Message: TypeAlias = Any  # one of MESSAGES, which ``encode`` makes sure of
M = TypeVar("M")
Reply = TypeVar("Reply")  # where two types meet


def encode(message: Message) -> bytes:
    """The message as bytes."""
    if type(message) not in MESSAGES:
        raise ProtocolError(
            f"A {type(message).__name__} is no message and must not leave its owner. Messages "
            "are listed in fedsage/protocol/messages.py."
        )
    return to_bytes(message)


def to_bytes(value: Any) -> bytes:
    """A dataclass of numbers, words, tensors, dictionaries and dataclasses, as a frame."""
    values: dict[str, object] = {}
    tensors: dict[str, Tensor] = {}
    flatten(value, "", values, tensors)
    head = json.dumps({"type": type(value).__name__, "values": values})
    return b"".join([head.encode(), b"\n", *packed(tensors)])


def packed(tensors: dict[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The tensors in the safetensors format, copied once, when the pieces are joined.

    The library's own ``save`` takes ten times as long as copying; what it reads back is
    tested.
    """
    header: dict[str, object] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        kind = KINDS[tensor.dtype]
        header[name] = {"dtype": kind, "shape": [*tensor.shape], "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text))
    yield text
    for tensor in tensors.values():
        yield (
            tensor.detach().cpu().contiguous().numpy().data.cast("B") if tensor.numel() else b""
        )


def flatten(
    value: object, path: str, values: dict[str, object], tensors: dict[str, Tensor]
) -> None:
    """Sort what is in ``value`` into tensors and values that JSON can hold."""
    if isinstance(value, Tensor):
        tensors[path] = value
    elif isinstance(value, dict):
        values[path] = list(value)
        for key, item in value.items():
            flatten(item, f"{path}/{key}", values, tensors)
    elif is_dataclass(value):
        for field in fields(value):
            flatten(getattr(value, field.name), f"{path}/{field.name}", values, tensors)
    else:
        values[path] = value


def decode(kind: type[M], frame: bytes) -> M:
    """The message in ``frame``, which must be of type ``kind``."""
    head, _, body = frame.partition(b"\n")
    try:
        header = json.loads(head)
        tensors = safetensors.torch.load(body)
        if not isinstance(header, dict) or not isinstance(header.get("values"), dict):
            raise ValueError("the header is no table")
    except (ValueError, SafetensorError) as error:
        raise ProtocolError(f"A message cannot be read ({error}). Ask for it again.") from None
    if header.get("type") != kind.__name__:
        raise ProtocolError(
            f"Expected a {kind.__name__}, got a {header.get('type')}. Do all parties run the "
            "same version of fedsage?"
        )
    try:
        built: M = unflatten(kind, "", header["values"], tensors)
        check_nothing_else(built, header["values"], tensors)
    except (KeyError, TypeError) as error:
        raise ProtocolError(
            f"A {kind.__name__} does not have the fields it should ({error}). Do all parties "
            "run the same version of fedsage?"
        ) from None
    return built


def unflatten(kind: Any, path: str, values: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """The inverse of ``flatten``, as the types of the message's fields say."""
    if path in tensors:
        if not is_tensor(kind):
            raise TypeError(f"{path} is a tensor")
        return tensors[path]
    if isinstance(kind, type) and is_dataclass(kind):
        types = field_types(kind)
        inside = {name: f"{path}/{name}" for name in types}
        return kind(
            **{name: unflatten(types[name], inside[name], values, tensors) for name in types}
        )
    if get_origin(kind) is dict:
        item = get_args(kind)[1]
        if not isinstance(values[path], list):
            raise TypeError(f"{path} is no table")
        return {key: unflatten(item, f"{path}/{key}", values, tensors) for key in values[path]}
    value = values[path]
    if is_tensor(kind) or ((plain := PLAIN.get(kind)) and type(value) not in plain):
        raise TypeError(f"{path} is {value!r:.40}")
    return value


def is_tensor(kind: Any) -> bool:
    """Whether a field holds a tensor; shapes in its type are for people and for tests."""
    return (
        kind is Tensor
        or (isinstance(kind, type) and issubclass(kind, Tensor))
        or (getattr(kind, "array_type", None) is Tensor)
    )


def check_nothing_else(
    built: object, values: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    """Refuse a frame that holds more than its message."""
    known: dict[str, object] = {}
    named: dict[str, Tensor] = {}
    flatten(built, "", known, named)
    if more := (set(values) - set(known)) | (set(tensors) - set(named)):
        raise TypeError(f"{min(more)} is nothing that belongs in it")


@cache
def field_types(kind: type) -> dict[str, Any]:
    """The type of every field of a message."""
    return get_type_hints(kind)
