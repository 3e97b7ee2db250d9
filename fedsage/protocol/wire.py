"""Messages ↔ bytes: lossless, without pickle, and only for messages.

A frame is one line of JSON (the message's type, its numbers, the keys of its dictionaries),
then its tensors in the safetensors format. Each is named by its path, ``field/key/field``.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import prod
from typing import Any, TypeAlias, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from fedsage.errors import ProtocolError
from fedsage.protocol.messages import MESSAGES, OwnerId

PLAIN: dict[Any, tuple[type, ...]] = {
    int: (int,), float: (float, int), str: (str,), bool: (bool,),
}  # fmt: skip
MOST_BYTES = 1 << 29  # of a frame, and of its tensors after decoding
MOST_HEADER = 1 << 20  # bytes of its line of JSON: thousands of names
MOST_TABLE = 1 << 21  # bytes of the table of tensors
Message: TypeAlias = Any  # one of MESSAGES, as ``encode`` checks
M = TypeVar("M")


def encode(message: Message) -> bytes:
    """The message as bytes."""
    if type(message) not in MESSAGES:
        raise ProtocolError(
            f"A {type(message).__name__} is not a message and must not leave its owner. "
            "Messages are classes with @message."
        )
    return to_bytes(message)


def encoder(requests: Mapping[OwnerId, Message]) -> Callable[[OwnerId], bytes]:
    """Requests as bytes: one sent to all is encoded once, others when their turn comes."""
    first = next(iter(requests.values()), None)
    if all(request is first for request in requests.values()):
        frame = encode(first) if requests else b""
        return lambda i: frame
    return lambda i: encode(requests[i])


def to_bytes(value: Any) -> bytes:
    """A dataclass of numbers, strings, tensors, dictionaries and dataclasses, as a frame."""
    values: dict[str, object] = {}
    tensors: dict[str, Tensor] = {}
    flatten(value, "", values, tensors)
    head = json.dumps({"type": type(value).__name__, "values": values})
    return b"".join([head.encode(), b"\n", *packed(tensors)])


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


def decode(kind: type[M], frame: bytes, most: int = MOST_BYTES) -> M:
    """The message in ``frame``, which must be of type ``kind``; shares no memory with it.

    A frame that is longer than ``most`` bytes, has a long header, or holds anything that does
    not belong in the message is refused before its tensors are read.
    """
    known = {f"/{name}" for name in field_types(kind)}
    try:
        if len(frame) > most:
            raise ValueError(f"{len(frame):,} bytes, but {most:,} is the limit")
        end = frame.find(b"\n", 0, MOST_HEADER)
        if end < 0:
            raise ValueError(f"no header in its first {MOST_HEADER:,} bytes")
        header = json.loads(frame[:end])
        if not isinstance(header, dict) or not isinstance(header.get("values"), dict):
            raise ValueError("the header is not a table")
        if header.get("type") != kind.__name__:
            raise ProtocolError(
                f"Expected a {kind.__name__}, got a {header.get('type')!s:.40}. Do all parties "
                "run the same version of fedsage?"
            )
        tensors = unpacked(memoryview(frame)[end + 1 :], known, most)
        built: M = unflatten(kind, "", header["values"], tensors)
        if more := [*header["values"], *tensors]:
            raise TypeError(f"{more[0]:.40} does not belong in it")
    except (ValueError, RuntimeError) as error:
        raise ProtocolError(f"A message cannot be read ({error}). Ask for it again.") from None
    except (KeyError, TypeError) as error:
        raise ProtocolError(
            f"A {kind.__name__} does not have the fields it should ({error}). Do all parties "
            "run the same version of fedsage?"
        ) from None
    return built


def unflatten(kind: Any, path: str, values: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """The inverse of ``flatten``, following the types of the message's fields.

    Whatever is used is removed from ``values`` and ``tensors``.
    """
    if path in tensors:
        if not is_tensor(kind):
            raise TypeError(f"{path} is a tensor")
        return tensors.pop(path)
    if isinstance(kind, type) and is_dataclass(kind):
        types = field_types(kind)
        inside = {name: f"{path}/{name}" for name in types}
        return kind(
            **{name: unflatten(types[name], inside[name], values, tensors) for name in types}
        )
    value = values.pop(path)
    if get_origin(kind) is dict:
        item = get_args(kind)[1]
        if not isinstance(value, list):
            raise TypeError(f"{path} is not a table")
        return {key: unflatten(item, f"{path}/{key}", values, tensors) for key in value}
    if is_tensor(kind) or ((plain := PLAIN.get(kind)) and type(value) not in plain):
        raise TypeError(f"{path} is {value!r:.40}")
    return value


def is_tensor(kind: Any) -> bool:
    """Whether a field holds a tensor; shapes in its type are for readers and tests."""
    return (
        kind is Tensor
        or (isinstance(kind, type) and issubclass(kind, Tensor))
        or (getattr(kind, "array_type", None) is Tensor)
    )


field_types: Callable[[Any], dict[str, Any]] = cache(get_type_hints)  # of a message
KINDS = {
    torch.float32: "F32", torch.float64: "F64",
    torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64",
}  # fmt: skip
MOST_DEFLATED = 8  # bytes in one: Huffman has at least a bit for each
MOST_DIMENSIONS = 8  # more than any message has; a product of more could take forever
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
NUMBERS = {kind: torch.empty(0, dtype=dtype).numpy().dtype for dtype, kind in KINDS.items()}
DEFLATED = {f"Z{kind}": kind for kind in ("I8", "I16", "I32")}  # compressed integers


def packed(tensors: dict[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The tensors as pieces, which are copied when they are joined."""
    header: dict[str, object] = {}
    pieces, end = [], 0
    for name, tensor in tensors.items():
        kind, piece = piece_of(tensor)
        begin, end = end, end + len(piece)
        header[name] = described(kind, [*tensor.shape], begin, end)
        pieces.append(piece)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text))
    yield text
    yield from pieces


def piece_of(tensor: Tensor) -> tuple[str, bytes | memoryview]:
    """A tensor's bytes and their kind; integers are deflated if that is shorter."""
    kind = KINDS[tensor.dtype]
    if not tensor.numel():
        return kind, b""
    values = tensor.detach().cpu().contiguous().numpy()
    if f"Z{kind}" in DEFLATED:
        short = deflated(values)
        if len(short) < values.nbytes:
            return f"Z{kind}", short
    return kind, values.data.cast("B")


def deflated(values: np.ndarray) -> bytes:
    """Integers near their entropy: their low bytes, then the next, coded by Huffman."""
    planes = values.reshape(-1).view(np.uint8).reshape(-1, values.itemsize).T
    coder = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    return coder.compress(np.ascontiguousarray(planes).tobytes()) + coder.flush()


def inflated(short: memoryview, kind: str, shape: list[int]) -> Tensor:
    """The inverse of ``deflated``; a ValueError if the bytes hold anything else."""
    dtype, count = NUMBERS[kind], prod(shape)
    size = count * dtype.itemsize
    coder = zlib.decompressobj(-15)
    try:
        found = coder.decompress(short, size + 1)
    except zlib.error as error:
        raise ValueError(f"integers that cannot be read ({error})") from None
    if len(found) != size or not coder.eof or coder.unused_data:
        raise ValueError(f"integers that are not {size} bytes")
    planes = np.frombuffer(found, np.uint8).reshape(dtype.itemsize, count)
    return torch.from_numpy(planes.T.copy(order="C").view(dtype).reshape(shape))


def unpacked(
    body: memoryview, known: Collection[str] = (), most: int = MOST_BYTES
) -> dict[str, Tensor]:
    """The tensors in ``body``, in memory of their own; a ValueError if there is anything else.

    Args:
        body: A table, and the tensors that it describes.
        known: How names of tensors may begin, up to the second slash; any if empty.
        most: The most bytes that all of them together may have.
    """
    (size,) = struct.unpack("<Q", body[:8]) if len(body) >= 8 else (0,)
    if 8 + size > len(body) or size > MOST_TABLE:
        raise ValueError(f"{len(body)} bytes of tensors, but their table alone has {size}")
    table = json.loads(bytes(body[8 : 8 + size]))
    if not isinstance(table, dict) or not all(isinstance(a, dict) for a in table.values()):
        raise ValueError("the tensors have no table")
    for name in table if known else ():
        if "/".join(name.split("/", 2)[:2]) not in known:
            raise TypeError(f"{name:.40} does not belong in it")
    body, (last, room) = body[8 + size :], described_in(table)
    if room > most:
        raise ValueError(f"{room} bytes of numbers in tensors, but {most} is the limit")
    if last != len(body):
        raise ValueError(f"{len(body)} bytes of tensors, but {last} are described")
    values = bytearray(body)
    tensors: dict[str, Tensor] = {}
    end = 0
    for name, about in table.items():
        tensors[name], end = tensor_at(end, about, values)
    return tensors


def described_in(table: dict[str, dict[str, object]]) -> tuple[int, int]:
    """Where the last tensor of a table ends, and how many bytes all take once decoded."""
    last, room = 0, 0
    for about in table.values():
        kind, shape = str(about.get("dtype")), about.get("shape")
        offsets, number = about.get("data_offsets"), NUMBERS.get(DEFLATED.get(kind, kind))
        if number is None or not is_shape(shape) or not is_shape(offsets) or len(offsets) != 2:
            raise ValueError(f"{about!r:.80} is not a tensor of a message")
        last, room = offsets[1], room + prod(shape) * number.itemsize
    return last, room


def tensor_at(begin: int, about: dict[str, object], values: bytearray) -> tuple[Tensor, int]:
    """The tensor that begins there, and where it ends."""
    kind, shape = str(about.get("dtype")), about.get("shape")
    assert is_shape(shape)  # checked for every tensor in the table
    if kind in DEFLATED:
        return deflated_at(begin, about, kind, shape, values)
    dtype, count = DTYPES[kind], prod(shape)
    end = begin + count * dtype.itemsize
    if about != described(kind, shape, begin, end):
        raise ValueError(f"{about!r:.80} does not begin at byte {begin} of the tensors")
    if end > len(values):
        raise ValueError(f"{len(values)} bytes of tensors, but {end} are described")
    if count == 0:
        return torch.empty(shape, dtype=dtype), end
    found = np.ndarray(shape, NUMBERS[kind], values, begin)
    return torch.from_numpy(found if found.flags.aligned else found.copy()), end


def deflated_at(
    begin: int, about: dict[str, object], kind: str, shape: list[int], values: bytearray
) -> tuple[Tensor, int]:
    """The deflated tensor that begins there, and where it ends."""
    count, offsets = prod(shape), about.get("data_offsets")
    end = offsets[-1] if isinstance(offsets, list) and offsets else None
    if type(end) is not int or about != described(kind, shape, begin, end):
        raise ValueError(f"{about!r:.80} does not begin at byte {begin} of the tensors")
    room = count * NUMBERS[DEFLATED[kind]].itemsize
    if not begin <= end <= len(values) or room > MOST_DEFLATED * (end - begin):
        raise ValueError(f"{count} numbers in {end - begin} bytes")
    return inflated(memoryview(values)[begin:end], DEFLATED[kind], shape), end


def described(kind: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    """How the header describes a tensor."""
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def is_shape(shape: object) -> TypeGuard[list[int]]:
    """Whether this can be the shape of a tensor."""
    return (
        isinstance(shape, list)
        and len(shape) <= MOST_DIMENSIONS
        and all(type(size) is int and 0 <= size < 2**63 for size in shape)
    )
