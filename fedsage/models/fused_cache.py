"""What tells kept code of an earlier version from that of this one."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedsage.shapes import Array


def stamp_of_sources() -> int:
    """A number above zero that changes with any line of compiled code."""
    files = sorted(Path(__file__).parent.glob("fused_*.py"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()
    return int.from_bytes(digest[:6], "big") + 1


def read_only(array: Array) -> Array:
    """A view that cannot be written: the compiler takes it for a type of its own."""
    view = array.view()
    view.setflags(write=False)
    return view


SOURCES_STAMP = stamp_of_sources()
