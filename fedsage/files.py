"""Files that are either complete or absent."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

PARTIAL = ".partial"  # ending of a file's name while it is written


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that it is either complete or absent, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(PARTIAL, f".{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def umask() -> int:
    """The permissions that this process removes from new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file, all or nothing."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time: whoever changes that file holds the lock beside it."""
    import fcntl  # not on Windows, where there are no federations

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
