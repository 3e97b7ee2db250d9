"""What tells kept code of an earlier version from that of this one."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedsage.compiled import OPTIONS
from fedsage.shapes import Array


def stamp_of_sources() -> int:
    """A number above zero that changes with compiled code, and with how it is compiled."""
    files = sorted(Path(__file__).parent.glob("fused_*.py"))
    parts = [repr(OPTIONS).encode(), *(file.read_bytes() for file in files)]
    return int.from_bytes(hashlib.sha256(b"".join(parts)).digest()[:6], "big") + 1


def read_only(array: Array) -> Array:
    """A view that cannot be written: the compiler takes it for a type of its own."""
    view = array.view()
    view.setflags(write=False)
    return view


SOURCES_STAMP = stamp_of_sources()
