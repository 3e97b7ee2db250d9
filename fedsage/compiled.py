"""How compiled code is compiled, and kept on disk for the next process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kept_on_disk(function: Callable[..., Any]) -> Any:
    """Compile a function; keep its machine code where that can be written.

    Note:
        Numba looks at the function's own file to tell whether kept code is still good, not at
        the files of functions that it calls. But it does tell functions apart by the values
        that they close over: one that calls others may close over a stamp of their sources.
    """
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # no folder for the cache
        return njit(**OPTIONS)(function)
