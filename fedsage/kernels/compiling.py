"""How code is compiled, and kept on disk for the next process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kept_on_disk(with_stamp: Callable[[int], Callable[..., Any]]) -> Any:
    """Compile the function that ``with_stamp`` makes; cache its machine code if possible.

    Note:
        To decide whether cached code is still valid, Numba looks at the function's own file,
        not at the files of functions that it calls. But it does distinguish functions by the
        values that they close over. So each of ours closes over a stamp of all sources.
    """
    function = with_stamp(STAMP)
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # no folder for the cache
        return njit(**OPTIONS)(function)


def stamp_of(folder: Path) -> int:
    """A positive number that changes with the sources in ``folder``."""
    read = b"".join(source.read_bytes() for source in sorted(folder.glob("*.py")))
    return int.from_bytes(hashlib.sha256(read).digest()[:6], "big") + 1


STAMP = stamp_of(Path(__file__).parent)
