"""Decode cost: how much memory a frame can cost its reader."""

from __future__ import annotations

import json
import tracemalloc

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.errors import FedSageError
from fedsage.protocol.messages import Classifier
from fedsage.protocol.wire import decode, encode

SIZE = 2**20  # bytes of a frame
HONEST, MOST = 2.0, 4.0  # the frame and its content; and what is still harmless
ATTEMPT = Attempt(
    "decode-cost",
    "anybody",
    "how frames are read",
    "bytes of memory for a byte of a frame",
)


@attack("decode-cost")
def decode_cost(case: Case) -> Finding:
    """How much memory do frames made to be expensive take before they are refused?"""
    costs = {name: cost_of(frame) for name, frame in hostile_frames(case).items()}
    worst = max(costs, key=lambda name: costs[name])
    note = f"the worst: {worst}; an honest frame of this run: {cost_of(honest(case)):.1f}"
    return ATTEMPT.found(costs[worst], HONEST, costs[worst] > MOST, note=note)


def honest(case: Case) -> bytes:
    """φ as a message."""
    return encode(case.plan.phi)


def hostile_frames(case: Case) -> dict[str, bytes]:
    """Frames of about the same size, by what they are filled with."""
    many = [0] * (SIZE // 3)
    keys = {f"k{k}": 0 for k in range(SIZE // 12)}
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    return {
        "many short numbers": header(many),
        "many short keys": header(keys),
        "many empty lists": header([[]] * (SIZE // 4)),
        "lists in lists": header([deep] * (SIZE // 1000)),
        "half of an honest frame": honest(case)[: len(honest(case)) // 2],
    }


def header(values: object) -> bytes:
    """A frame that consists only of its first line."""
    return json.dumps({"type": "Classifier", "values": {"/phi": values}}).encode() + b"\n"


def cost_of(frame: bytes) -> float:
    """The peak memory while a frame is read, divided by its size."""
    tracemalloc.start()
    try:
        decode(Classifier, frame)
    except (FedSageError, RecursionError):
        pass  # refused, as it should be; only the cost matters
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return 1 + peak / len(frame)
