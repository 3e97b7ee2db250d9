"""How compiled code is compiled, and kept on disk for the next process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

from fedsage.shapes import Array

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kept_on_disk(function: Callable[..., Any]) -> Any:
    """Compile a function; keep its machine code where that can be written.

    Note:
        Numba looks at the function's own file to tell whether kept code is still good, not at
        the files of functions that it calls. But it does tell functions apart by the values
        that they close over: let one of them be ``SOURCES_STAMP``.
    """
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # no folder for the cache
        return njit(**OPTIONS)(function)


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
