"""What a hostile frame may cost whoever reads it: next to nothing."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable

import pytest
import torch

from fedsage.errors import ProtocolError
from fedsage.protocol import wire
from fedsage.protocol.messages import ClassifierUpdate
from fedsage.protocol.wire import decode, encode

MB = 1 << 20


def head(**values: object) -> bytes:
    return json.dumps({"type": "ClassifierUpdate", "values": values}).encode() + b"\n"


def body(table: bytes, numbers: bytes = b"") -> bytes:
    return struct.pack("<Q", len(table)) + table + numbers


def tensor(name: str, kind: str, count: int, end: int) -> bytes:
    return json.dumps(
        {name: {"dtype": kind, "shape": [count], "data_offsets": [0, end]}}
    ).encode()


HOSTILE: dict[str, Callable[[], bytes]] = {
    "24 MB of keys": lambda: head(**{"/phi": [f"{k:09}" for k in range(1_800_000)]}),
    "24 MB of brackets": lambda: b"[" * 24 * MB,
    "a header of brackets": lambda: b"[" * (MB - 2) + b"\n",
    "a table of 900,000 tensors": lambda: (
        head() + body(b"{" + b",".join(b'"%d":{"a":1}' % k for k in range(900_000)) + b"}")),
    "64 MB that nothing describes": lambda: head() + body(b"{}", bytes(64 * MB)),
    "64 MB of another message": lambda: (
        head().replace(b"ClassifierUpdate", b"Classifier")
        + body(tensor("/phi/w", "F32", 16 * MB, 64 * MB), bytes(64 * MB))),
    "64 MB of a tensor that is no part of it": lambda: (
        head() + body(tensor("/x/w", "F32", 16 * MB, 64 * MB), bytes(64 * MB))),
    "numbers that would be 3 GB": lambda: (
        head() + body(tensor("/phi/w", "ZI32", 3 << 28, 64 * MB), bytes(64 * MB))),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_frame_is_refused_before_it_costs_memory(case: str) -> None:
    frame = HOSTILE[case]()
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        decode(ClassifierUpdate, frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * MB


def test_a_frame_may_be_no_longer_than_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    update = ClassifierUpdate({"w": torch.ones(1000)}, {}, 1.0, 0.0)
    frame = encode(update)
    assert decode(ClassifierUpdate, frame, len(frame)).weight == 1.0
    with pytest.raises(ProtocolError, match=f"{len(frame) - 1:,} is the limit"):
        decode(ClassifierUpdate, frame, len(frame) - 1)
    monkeypatch.setattr(wire, "MOST_TABLE", 10)
    with pytest.raises(ProtocolError, match="their table alone"):
        decode(ClassifierUpdate, frame)


def test_a_fitting_frame_costs_about_its_own_length() -> None:
    frame = encode(ClassifierUpdate({"w": torch.ones(4 * MB)}, {}, 1.0, 0.0))
    tracemalloc.start()
    decode(ClassifierUpdate, frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * len(frame)
