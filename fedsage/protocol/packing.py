"""Tensors ↔ bytes in the safetensors format, each way copied once.

The library's own ``save`` and ``load`` take several times as long; the tests hold both
together. What is read is refused unless its tensors follow one another without gaps.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from math import prod
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

KINDS = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
MOST_DIMENSIONS = 8  # more than any message has; a product of more could take for ever
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
NUMBERS = {"F32": np.float32, "F64": np.float64, "I64": np.int64}


def packed(tensors: dict[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The tensors as pieces, which are copied when they are joined."""
    header: dict[str, object] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = described(KINDS[tensor.dtype], [*tensor.shape], begin, end)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text))
    yield text
    for tensor in tensors.values():
        yield (
            tensor.detach().cpu().contiguous().numpy().data.cast("B") if tensor.numel() else b""
        )


def unpacked(body: memoryview) -> dict[str, Tensor]:
    """The tensors in ``body``, on memory of their own; a ValueError if it is not just that."""
    (size,) = struct.unpack("<Q", body[:8]) if len(body) >= 8 else (0,)
    if 8 + size > len(body):
        raise ValueError(f"{len(body)} bytes of tensors, where their table alone has {size}")
    header = json.loads(bytes(body[8 : 8 + size]))
    if not isinstance(header, dict) or not all(isinstance(a, dict) for a in header.values()):
        raise ValueError("the tensors have no table")
    values = bytearray(body[8 + size :])
    tensors: dict[str, Tensor] = {}
    end = 0
    for name, about in header.items():
        tensors[name], end = tensor_at(end, about, values)
    if end != len(values):
        raise ValueError(f"{len(values)} bytes of tensors, where {end} are described")
    return tensors


def tensor_at(begin: int, about: dict[str, object], values: bytearray) -> tuple[Tensor, int]:
    """The tensor that begins there, and where it ends."""
    kind, shape = str(about.get("dtype")), about.get("shape")
    if kind not in DTYPES or not is_shape(shape):
        raise ValueError(f"{about!r:.80} is no tensor of a message")
    dtype, count = DTYPES[kind], prod(shape)
    end = begin + count * dtype.itemsize
    if about != described(kind, shape, begin, end):
        raise ValueError(f"{about!r:.80} does not begin at byte {begin} of the tensors")
    if end > len(values):
        raise ValueError(f"{len(values)} bytes of tensors, where {end} are described")
    if count == 0:
        return torch.empty(shape, dtype=dtype), end
    found = np.ndarray(shape, NUMBERS[kind], values, begin)
    return torch.from_numpy(found if found.flags.aligned else found.copy()), end


def described(kind: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    """How the header speaks of a tensor."""
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def is_shape(shape: object) -> TypeGuard[list[int]]:
    """Whether this can be the shape of a tensor."""
    return (
        isinstance(shape, list)
        and len(shape) <= MOST_DIMENSIONS
        and all(type(size) is int and 0 <= size < 2**63 for size in shape)
    )
