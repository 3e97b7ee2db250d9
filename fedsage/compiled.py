"""How compiled code is compiled, kept on disk for the next process, and has memory fetched."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
LINE = 16  # numbers of four bytes in a cache line
INT32, INT64 = ir.IntType(32), ir.IntType(64)
blocks: Any = cgutils  # neither has types
intrinsic: Any = extending.intrinsic

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


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


def stamp_of(*sources: Path) -> int:
    """A number above zero that changes with these files, and with this one."""
    read = b"".join(source.read_bytes() for source in (Path(__file__), *sources))
    return int.from_bytes(hashlib.sha256(read).digest()[:6], "big") + 1


@intrinsic
def prefetch(typing, array, at):
    """Have ``array.flat[at]`` brought near, for it will be read soon."""

    def codegen(context, build, signature, args):
        data = context.make_array(signature.args[0])(context, build, args[0]).data
        fetch_line(build, build.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


def fetch_line(build: Any, pointer: Any) -> None:
    """Have the cache line at ``pointer`` brought near."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32])
    fetch = blocks.get_or_insert_function(build.module, kind, "llvm.prefetch.p0i8")
    to_read, keep, data = INT32(0), INT32(3), INT32(1)
    build.call(fetch, [build.bitcast(pointer, byte), to_read, keep, data])
